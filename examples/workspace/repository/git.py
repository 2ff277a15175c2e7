"""Git, asked and never trusted: what a repository says about itself must not run anything.

A repository can name programs: hooks, filters, monitors of the file system, pagers, editors, tools that show
differences or check signatures. All of them are switched off, filters and tools for differences one by one, by their
names. What would be left is stopped by the sandbox, which lets nothing start but git itself; but git would fail over
that, so it must not even try.

Git gets an environment made from nothing, no configuration but the repository's own, and settings that win over that
one: they are handed over as ``GIT_CONFIG_KEY_n``, where a name may hold any character. Paths are literal and come after
``--`` or by standard input, and results are read with NUL between them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple

from .gitdir import GitFolders, git_folders
from .programs import locate
from .refusal import Refused
from .talking import Talk, TookTooLong

__all__ = ["Answer", "Git", "GitError"]

_SECONDS: Final = 60.0
_LONGEST: Final = 3_600.0
"""Seconds, of an answer and of one that comes in parts."""
_MOST: Final = 64 << 20
"""Bytes of an answer."""
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


class GitError(Refused):
    """Git will not do it, or is not there. The text says what would help."""


class Answer(NamedTuple):
    """How one command ended."""

    code: int
    output: bytes
    cut: bool
    """There was more output than is here."""
    errors: bytes


class Git:
    """Git in one repository. One is good for one look: what the repository configures is asked for once."""

    def __init__(self, root: str | Path, git_dir: str = "", *, index: Path | None = None) -> None:
        """``git_dir`` as in :func:`git_folders`. ``index`` is used in place of the repository's, and may be written."""
        self._root: Final = str(root)
        try:
            self.folders: Final = git_folders(Path(root), git_dir)
            self._program: Final = locate("git")
        except Refused as refused:
            raise GitError(str(refused)) from None
        self._environ = _environ(self._root, self.folders, index, {})
        drivers = dict(_drivers(self.ask("config", "--list", "-z", "--name-only")))
        self._environ = _environ(self._root, self.folders, index, drivers)

    def run(
        self, *arguments: str, stdin: bytes = b"", environ: Mapping[str, str] | None = None, most: int = _MOST
    ) -> Answer:
        """One command, however it ends. Of a longer answer the beginning is kept."""
        pieces, size = [], 0
        talk = self._talk(arguments, stdin, environ, _SECONDS)
        try:
            with closing(iter(talk)) as said:
                for piece in said:
                    pieces.append(piece)
                    size += len(piece)
                    if size > most:
                        break
        except TookTooLong:
            raise GitError(f"git {arguments[0]} took more than {_SECONDS:g} s: is the disk busy?") from None
        return Answer(talk.code, b"".join(pieces)[:most], size > most, talk.errors)

    def ask(self, *arguments: str, stdin: bytes = b"", environ: Mapping[str, str] | None = None) -> bytes:
        """What git answers; a :class:`GitError` if it will not."""
        answer = self.run(*arguments, stdin=stdin, environ=environ)
        if answer.cut:
            raise GitError(f"git {arguments[0]} says more than can be read here: ask about fewer files")
        if answer.code:
            raise _failure(arguments[0], answer.code, answer.errors)
        return answer.output

    def line(self, *arguments: str) -> str | None:
        """One line of text; None if git says no or nothing."""
        answer = self.run(*arguments)
        return (answer.output.decode("utf-8", "replace").strip() or None) if answer.code == 0 else None

    def begin(self, *arguments: str, most: int, environ: Mapping[str, str] | None = None) -> tuple[str, bool]:
        """The beginning of what git answers, in whole lines, and whether there is more."""
        answer = self.run(*arguments, environ=environ, most=most)
        if answer.code and not answer.cut:
            raise _failure(arguments[0], answer.code, answer.errors)
        output = answer.output[: answer.output.rfind(b"\n") + 1] if answer.cut else answer.output
        return output.decode(errors="replace"), answer.cut

    def stream(self, *arguments: str, stdin: bytes) -> Iterator[bytes]:
        """The parts of a long answer, as they end in NUL; a :class:`GitError` at its end if git fails."""
        talk, rest = self._talk(arguments, stdin, None, _LONGEST), b""
        for piece in talk:
            *parts, rest = (rest + piece).split(b"\0")
            yield from parts
        if rest:
            yield rest
        if talk.code:
            raise _failure(arguments[0], talk.code, talk.errors)

    def revision(self, name: str) -> str:
        """The full name of a commit; a :class:`GitError` if it is none, or could be taken for something else."""
        if _REVISION.fullmatch(name) is None or ".." in name:
            raise GitError(f"{name!r} is no name of a commit")
        oid = self.tip(name)
        if not oid:
            raise GitError(f"there is no commit {name!r}: name a branch, a tag or the beginning of a hash")
        return oid

    def tip(self, name: str) -> str:
        """The commit that a name leads to; empty if there is none."""
        oid = self.line("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}") or ""
        return oid if _OID.fullmatch(oid) else ""

    def _talk(
        self, arguments: tuple[str, ...], stdin: bytes, environ: Mapping[str, str] | None, seconds: float
    ) -> Talk:
        argv = [self._program, "--no-pager", *arguments]
        given = {**self._environ, **(environ or {})}
        try:
            return Talk(argv, folder=self._root, environ=given, stdin=stdin, seconds=seconds)
        except PermissionError:
            raise GitError("git may not be started here: serve the pack with --program git") from None
        except (OSError, ValueError) as error:
            raise GitError(f"git cannot be started: {error}") from None


def _failure(command: str, status: int, errors: bytes) -> GitError:
    first = errors.decode(errors="replace").strip().partition("\n")[0][:_LONGEST_ERROR]
    said = "".join(sign if sign.isprintable() else "?" for sign in first)
    why = said or "it gives no reason"
    return GitError(f"git {command} failed with status {status}: {why}; can the repository be read, and is it whole?")


def _drivers(names: bytes) -> Iterator[tuple[str, str]]:
    """What the repository's configuration says of filters and diffs of its own, made to say nothing."""
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
