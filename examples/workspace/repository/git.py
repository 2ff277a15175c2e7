"""Run git without executing any program that the repository configures.

A repository can configure hooks, filters, file system monitors, pagers, editors, diff drivers and signature checkers.
All of them are disabled here, filters and diff drivers one by one by name. The sandbox would refuse to start any other
program too, but git would then fail, so it must not try.

Git gets an empty environment, the repository's own configuration only, and overrides in ``GIT_CONFIG_KEY_n`` variables.
Paths are literal and follow ``--`` or come from standard input; output is separated by NUL.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple

from .gitdir import GitFolders, git_folders
from .process_stream import ProcessStream, ProcessTimeout
from .programs import locate
from .refusal import Refusal

__all__ = ["Git", "GitError", "GitResult"]

_SECONDS: Final = 60.0
_LONGEST: Final = 3_600.0
"""Time limits in seconds: of a command, and of a streamed command."""
_MOST: Final = 64 << 20
"""The most bytes of output."""
_SETTINGS: Final = {
    "commit.gpgSign": "false",
    "core.askPass": "",
    "core.attributesFile": os.devnull,
    "core.editor": "false",
    "core.excludesFile": os.devnull,
    "core.fsmonitor": "false",
    "core.hooksPath": os.devnull,
    "core.packedGitLimit": "256m",
    "core.packedGitWindowSize": "16m",
    "core.pager": "cat",
    "core.quotePath": "false",
    "core.splitIndex": "false",
    "core.sshCommand": "false",
    "core.untrackedCache": "false",
    "credential.helper": "",
    "diff.external": "",
    "diff.ignoreSubmodules": "all",
    "gc.auto": "0",
    "log.mailmap": "true",
    "log.showRoot": "true",
    "log.showSignature": "false",
    "maintenance.auto": "false",
    "protocol.allow": "never",
    "status.submoduleSummary": "false",
    "submodule.recurse": "false",
}
_ENVIRON: Final = {
    "GIT_ALLOW_PROTOCOL": "",
    "GIT_ASKPASS": "",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "HOME": os.devnull,
    "LC_ALL": "C.UTF-8",
}
_NEUTRAL: Final = {"clean": "", "smudge": "", "process": "", "required": "false", "command": "", "textconv": ""}
_MOST_DRIVERS: Final = 500
_REVISION: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,200}(?:[~^][0-9]{0,4}){0,4}")
_OID: Final = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_LONGEST_ERROR: Final = 200


class GitError(Refusal):
    """Git failed or is not available. The text has the reason and a fix."""


class GitResult(NamedTuple):
    """The exit status and the output of a command."""

    code: int
    output: bytes
    cut: bool
    """Whether the output was truncated."""
    errors: bytes


class Git:
    """Git in one repository. An instance reads the list of configured drivers once, so use it for one operation."""

    def __init__(self, root: str | Path, git_dir: str = "", *, index: Path | None = None) -> None:
        """``git_dir`` is as in :func:`git_folders`. ``index`` replaces the repository's index, and can be written."""
        self._root: Final = str(root)
        try:
            self.folders: Final = git_folders(Path(root), git_dir)
            self._program: Final = locate("git")
        except Refusal as refusal:
            raise GitError(str(refusal)) from None
        self._environ = _environ(self._root, self.folders, index, {})
        drivers = dict(_drivers(self.output("config", "--list", "-z", "--name-only")))
        self._environ = _environ(self._root, self.folders, index, drivers)

    def run(
        self, *arguments: str, stdin: bytes = b"", environ: Mapping[str, str] | None = None, most: int = _MOST
    ) -> GitResult:
        """Run a command and return its result, whatever its exit status. Output after ``most`` bytes is dropped."""
        pieces, size = [], 0
        stream = self._start(arguments, stdin, environ, _SECONDS)
        try:
            with closing(iter(stream)) as output:
                for piece in output:
                    pieces.append(piece)
                    size += len(piece)
                    if size > most:
                        break
        except ProcessTimeout:
            raise GitError(f"git {arguments[0]} took more than {_SECONDS:g} s: is the disk busy?") from None
        return GitResult(stream.code, b"".join(pieces)[:most], size > most, stream.errors)

    def output(self, *arguments: str, stdin: bytes = b"", environ: Mapping[str, str] | None = None) -> bytes:
        """Return the output of a command. Raises :class:`GitError` if it fails or its output is too long."""
        result = self.run(*arguments, stdin=stdin, environ=environ)
        if result.cut:
            raise GitError(f"the output of git {arguments[0]} is too long: name fewer files")
        if result.code:
            raise _failure(arguments[0], result.code, result.errors)
        return result.output

    def output_line(self, *arguments: str) -> str | None:
        """Return the output as one line of text; None if the command fails or its output is empty."""
        result = self.run(*arguments)
        return (result.output.decode("utf-8", "replace").strip() or None) if result.code == 0 else None

    def output_prefix(self, *arguments: str, most: int, environ: Mapping[str, str] | None = None) -> tuple[str, bool]:
        """Return the first complete lines of the output, and whether the output was truncated."""
        result = self.run(*arguments, environ=environ, most=most)
        if result.code and not result.cut:
            raise _failure(arguments[0], result.code, result.errors)
        output = result.output[: result.output.rfind(b"\n") + 1] if result.cut else result.output
        return output.decode(errors="replace"), result.cut

    def stream(self, *arguments: str, stdin: bytes) -> Iterator[bytes]:
        """Yield the NUL-terminated parts of the output. Raises :class:`GitError` at the end if the command fails."""
        stream, rest = self._start(arguments, stdin, None, _LONGEST), b""
        for piece in stream:
            *parts, rest = (rest + piece).split(b"\0")
            yield from parts
        if rest:
            yield rest
        if stream.code:
            raise _failure(arguments[0], stream.code, stream.errors)

    def commit_id(self, name: str) -> str:
        """Return the full hash of a commit. Raises :class:`GitError` if the name is malformed or unknown."""
        if _REVISION.fullmatch(name) is None or ".." in name:
            raise GitError(f"{name!r} is not the name of a commit: name a branch, a tag or the beginning of a hash")
        oid = self.resolve(name)
        if not oid:
            raise GitError(f"there is no commit {name!r}: name a branch, a tag or the beginning of a hash")
        return oid

    def resolve(self, name: str) -> str:
        """Return the hash of the commit that a name refers to; empty if there is none."""
        oid = self.output_line("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}") or ""
        return oid if _OID.fullmatch(oid) else ""

    def _start(
        self, arguments: tuple[str, ...], stdin: bytes, environ: Mapping[str, str] | None, seconds: float
    ) -> ProcessStream:
        argv = [self._program, "--no-pager", *arguments]
        given = {**self._environ, **(environ or {})}
        try:
            return ProcessStream(argv, folder=self._root, environ=given, stdin=stdin, seconds=seconds)
        except PermissionError:
            raise GitError("the sandbox does not permit git: serve the pack with --program git") from None
        except (OSError, ValueError) as error:
            raise GitError(f"git cannot be started: {error}") from None


def _failure(command: str, status: int, errors: bytes) -> GitError:
    first = errors.decode(errors="replace").strip().partition("\n")[0][:_LONGEST_ERROR]
    message = "".join(sign if sign.isprintable() else "?" for sign in first)
    why = message or "without a message"
    return GitError(f"git {command} failed with status {status}: {why}; is the repository readable and intact?")


def _drivers(names: bytes) -> Iterator[tuple[str, str]]:
    """Yield a neutral value for each filter and diff driver that the repository configures."""
    count = 0
    for name in sorted(set(names.decode(errors="surrogateescape").split("\0"))):
        section, _, rest = name.partition(".")
        word = rest.rpartition(".")[2]
        if section in ("filter", "diff") and "." in rest and word in _NEUTRAL:
            yield name, _NEUTRAL[word]
            count += 1
            if count > _MOST_DRIVERS:
                raise GitError(f"the repository configures more than {_MOST_DRIVERS} filters: remove some")


def _environ(root: str, folders: GitFolders, index: Path | None, drivers: Mapping[str, str]) -> dict[str, str]:
    settings = {**_SETTINGS, "safe.directory": root, **drivers}
    environ = {
        **_ENVIRON,
        "GIT_CONFIG_COUNT": str(len(settings)),
        "GIT_DIR": str(folders.own),
        "GIT_WORK_TREE": root,
        "PATH": os.environ.get("PATH", os.defpath),
    }
    if folders.own != folders.shared:
        environ["GIT_COMMON_DIR"] = str(folders.shared)
    if index is not None:
        environ |= {"GIT_INDEX_FILE": str(index), "GIT_OPTIONAL_LOCKS": "1"}
    for number, (name, value) in enumerate(settings.items()):
        environ[f"GIT_CONFIG_KEY_{number}"], environ[f"GIT_CONFIG_VALUE_{number}"] = name, value
    return environ
