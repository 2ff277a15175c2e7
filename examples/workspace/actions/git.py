"""Git, asked and never trusted: what a repository says about itself must not run anything.

A repository can name programs: hooks, filters, file system monitors, pagers, editors, external diffs. All of them are
switched off, filters one by one, by their names. What would be left is stopped by the sandbox, which lets nothing start
but git itself. Configuration of the user, of the system and of the environment is not read. Paths are literal, come
after ``--`` or by standard input, and results are read with NUL between them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import Final

from .programs import Ended, locate, run
from .refusal import Refused
from .roots import Root

__all__ = ["Git"]

_SECONDS: Final = 60.0
_MOST: Final = 8 << 20
"""Bytes of an answer."""
_SETTINGS: Final = {
    "core.hooksPath": "/dev/null",
    "core.fsmonitor": "false",
    "core.untrackedCache": "false",
    "core.pager": "cat",
    "core.editor": "false",
    "core.askPass": "",
    "core.sshCommand": "false",
    "core.attributesFile": "/dev/null",
    "core.quotePath": "false",
    "core.packedGitWindowSize": "16m",
    "core.packedGitLimit": "256m",
    "credential.helper": "",
    "diff.external": "",
    "diff.ignoreSubmodules": "all",
    "commit.gpgSign": "false",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "protocol.allow": "never",
    "submodule.recurse": "false",
}
_ENVIRON: Final = {
    "HOME": "/nonexistent",
    "LC_ALL": "C.UTF-8",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_NO_LAZY_FETCH": "1",
}
_NEUTRAL: Final = {"clean": "", "smudge": "", "process": "", "required": "false", "command": "", "textconv": ""}
_MOST_DRIVERS: Final = 500
_REVISION: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,200}(?:[~^][0-9]{0,4}){0,4}")
_OID: Final = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


class Git:
    """Git in one repository."""

    def __init__(self, root: Root) -> None:
        self._root = root
        self._settings = {**_SETTINGS, "safe.directory": root.path}
        self._settings |= dict(_drivers(self.ask("config", "--list", "-z", "--name-only")))

    def run(
        self, *arguments: str, stdin: bytes = b"", environ: Mapping[str, str] | None = None, most: int = _MOST
    ) -> Ended:
        """One command of git, however it ends."""
        where = [f"--git-dir={self._root.path}/.git", f"--work-tree={self._root.path}"]
        ended = run(
            [locate("git"), "--no-pager", "--literal-pathspecs", *where, *arguments],
            folder=self._root.path,
            environ={
                "PATH": os.environ.get("PATH", os.defpath),
                **_ENVIRON,
                **self._configuration(),
                **(environ or {}),
            },
            seconds=_SECONDS,
            stdin=stdin,
            most=most,
        )
        if ended.code is None:
            raise Refused(f"git took more than {_SECONDS:g} s")
        return ended

    def ask(self, *arguments: str, stdin: bytes = b"", environ: Mapping[str, str] | None = None) -> bytes:
        """What git answers; :class:`Refused` with what it says if it will not."""
        ended = self.run(*arguments, stdin=stdin, environ=environ)
        if ended.code:
            raise _refusal(arguments[0], ended)
        if ended.cut:
            raise Refused(f"git {arguments[0]} says more than can be read here: ask about fewer files")
        return ended.output

    def begin(self, *arguments: str, most: int) -> tuple[str, bool]:
        """The beginning of what git answers, in whole lines, and whether there is more."""
        ended = self.run(*arguments, most=most)
        if ended.code:
            raise _refusal(arguments[0], ended)
        output = ended.output[: ended.output.rfind(b"\n") + 1] if ended.cut else ended.output
        return output.decode(errors="replace"), ended.cut

    def revision(self, name: str) -> str:
        """The full name of a commit; :class:`Refused` if it is none, or could be taken for something else."""
        if _REVISION.fullmatch(name) is None or ".." in name:
            raise Refused(f"{name!r} is no name of a commit")
        oid = self.tip(name)
        if not oid:
            raise Refused(f"there is no commit {name!r}")
        return oid

    def tip(self, name: str) -> str:
        """The commit that a name leads to; empty if there is none."""
        said = self.run("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
        oid = said.output.decode(errors="replace").strip()
        return oid if _OID.fullmatch(oid) else ""

    def _configuration(self) -> dict[str, str]:
        """As variables: a name in an option would end at its first ``=``."""
        told = {"GIT_CONFIG_COUNT": str(len(self._settings))}
        for number, (name, value) in enumerate(self._settings.items()):
            told[f"GIT_CONFIG_KEY_{number}"], told[f"GIT_CONFIG_VALUE_{number}"] = name, value
        return told


def _refusal(command: str, ended: Ended) -> Refused:
    said = ended.errors.decode(errors="replace").strip().partition("\n")[0]
    return Refused(f"git {command}: {said[:300] or f'exit status {ended.code}'}")


def _drivers(names: bytes) -> Iterator[tuple[str, str]]:
    """What the repository's configuration says of filters and diffs of its own, made to say nothing."""
    count = 0
    for name in set(names.decode(errors="surrogateescape").split("\0")):
        section, _, rest = name.partition(".")
        word = rest.rpartition(".")[2]
        if section in ("filter", "diff") and "." in rest and word in _NEUTRAL:
            yield name, _NEUTRAL[word]
            count += 1
            if count > _MOST_DRIVERS:
                raise Refused("the repository is configured in a way that git cannot be asked safely")
