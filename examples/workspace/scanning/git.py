"""Asking git about a repository that nobody trusts.

A repository can name programs that git runs: hooks, a monitor of the file system, filters, pagers, tools that show
differences or check signatures. None of them is ever wanted here. The sandbox would not start them; this module sees to
it that git does not even try, for it would fail over that. So git gets an environment made from nothing, no
configuration but the repository's own, and settings that win over that one: they are handed over as
``GIT_CONFIG_KEY_n``, where a name may hold any character. Names of files leave and enter as bytes that end in NUL.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

__all__ = ["Git", "GitError"]

_PATIENCE: Final = 60.0
_CHUNK: Final = 1 << 16
_NONE: Final = 1
"""The status with which git says that nothing is configured."""
_QUIET: Final = {
    "core.attributesFile": os.devnull,
    "core.excludesFile": os.devnull,
    "core.fsmonitor": "false",
    "core.hooksPath": os.devnull,
    "core.splitIndex": "false",
    "core.untrackedCache": "false",
    "diff.external": "",
    "gc.auto": "0",
    "log.mailmap": "true",
    "log.showRoot": "true",
    "log.showSignature": "false",
    "maintenance.auto": "false",
    "protocol.allow": "never",
    "status.submoduleSummary": "false",
    "submodule.recurse": "false",
}


class GitError(Exception):
    """Git refused, or is not there. The text names what was asked for, and nothing of what the repository says."""


class Git:
    """Git in one repository, which is never written to. One is good for one look: filters are asked for once."""

    def __init__(self, root: Path, index: Path | None = None) -> None:
        """``index`` is used in place of the repository's, and may be written."""
        if not (root / ".git").exists():
            raise GitError("the root is not the top folder of a git repository: name the folder that has .git in it")
        program = shutil.which("git")
        if program is None or not os.path.isabs(program):  # noqa: PTH117  # a text is at hand
            raise GitError("git is not installed")
        self._program: Final = program
        self._root: Final = root
        self._environment = _environment(root, [], index)
        self._environment = _environment(root, self._filters(), index)

    def ask(self, *arguments: str, stdin: bytes = b"") -> bytes:
        """What git says; a GitError if it says no."""
        answer = self._run(arguments, stdin)
        if answer.returncode:
            raise _failure(arguments, answer.returncode)
        return answer.stdout

    def line(self, *arguments: str) -> str | None:
        """One line of text; None if git says no or nothing."""
        answer = self._run(arguments, b"")
        return (answer.stdout.decode("utf-8", "replace").strip() or None) if answer.returncode == 0 else None

    def stream(self, *arguments: str, stdin: bytes) -> Iterator[bytes]:
        """The parts of a long answer, as they end in NUL; a GitError at its end if git fails.

        For commands that read all of ``stdin`` before they say anything.
        """
        with subprocess.Popen(
            [self._program, "--no-pager", *arguments],
            cwd=self._root,
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                with contextlib.suppress(BrokenPipeError), process.stdin:
                    process.stdin.write(stdin)
                rest = b""
                while chunk := process.stdout.read1(_CHUNK):  # type: ignore[attr-defined]  # it is buffered
                    *parts, rest = (rest + chunk).split(b"\0")
                    yield from parts
                if rest:
                    yield rest
            except BaseException:
                process.kill()  # whoever reads has had enough
                raise
        if process.returncode:
            raise _failure(arguments, process.returncode)

    def _run(self, arguments: tuple[str, ...], stdin: bytes) -> subprocess.CompletedProcess[bytes]:
        try:
            return subprocess.run(
                [self._program, "--no-pager", *arguments],
                cwd=self._root,
                env=self._environment,
                input=stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=_PATIENCE,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise GitError(f"git {arguments[0]} took longer than {_PATIENCE:.0f} s") from error
        except PermissionError as error:
            raise GitError("git may not be run: allow it with --program git") from error
        except OSError as error:
            raise GitError(f"git cannot be run: {error.strerror}") from error

    def _filters(self) -> list[str]:
        """The filters that the repository names: a file that changed would be sent through them to be compared."""
        answer = self._run(("config", "--null", "--name-only", "--get-regexp", r"^filter\..*"), b"")
        if answer.returncode not in (0, _NONE):
            if (self._root / ".git").is_file():
                raise GitError("the root is a linked work tree, whose history lies elsewhere: name the main work tree")
            raise _failure(("config",), answer.returncode)
        keys = answer.stdout.decode("utf-8", "surrogateescape").split("\0")
        return sorted({key.partition(".")[2].rpartition(".")[0] for key in keys if key})


def _failure(arguments: tuple[str, ...], status: int) -> GitError:
    return GitError(f"git {arguments[0]} failed with status {status}: can the repository be read, and is it whole?")


def _environment(root: Path, filters: list[str], index: Path | None) -> dict[str, str]:
    settings = {**_QUIET, "safe.directory": str(root)}
    for name in filters:
        settings |= {f"filter.{name}.{key}": "" for key in ("clean", "smudge", "process")}
        settings[f"filter.{name}.required"] = "false"
    environment = {
        "GIT_ALLOW_PROTOCOL": "",
        "GIT_ASKPASS": "",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_CONFIG_COUNT": str(len(settings)),
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_DIR": str(root / ".git"),
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_WORK_TREE": str(root),
        "HOME": os.devnull,
        "LC_ALL": "C",
        "PATH": os.defpath,
    }
    if index is not None:
        environment |= {"GIT_INDEX_FILE": str(index), "GIT_OPTIONAL_LOCKS": "1"}
    for number, (key, value) in enumerate(settings.items()):
        environment[f"GIT_CONFIG_KEY_{number}"] = key
        environment[f"GIT_CONFIG_VALUE_{number}"] = value
    return environment
