"""Git, asked and never trusted: what a repository says about itself must not run anything.

A repository can name programs: hooks, filters, file system monitors, pagers, editors, external diffs. Those that an
option can switch off are switched off, and the sandbox lets nothing start but git itself. Configuration of the user, of
the system and of the environment is not read. Paths are literal, come after ``--`` or by standard input, and results
are read with NUL between them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import Final

from .programs import Ended, locate, run
from .refusal import Refused
from .roots import Root

__all__ = ["ask", "git", "revision"]

_SECONDS: Final = 60.0
_SETTINGS: Final = {
    "core.hooksPath": "/dev/null",
    "core.fsmonitor": "false",
    "core.untrackedCache": "false",
    "core.pager": "cat",
    "core.editor": "false",
    "core.askPass": "",
    "core.sshCommand": "false",
    "core.attributesFile": "/dev/null",
    "core.excludesFile": "/dev/null",
    "core.quotePath": "false",
    "core.packedGitWindowSize": "16m",
    "core.packedGitLimit": "256m",
    "credential.helper": "",
    "diff.external": "",
    "diff.ignoreSubmodules": "all",
    "commit.gpgSign": "false",
    "gpg.program": "false",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "protocol.allow": "never",
    "submodule.recurse": "false",
    "log.showSignature": "false",
}
_REVISION: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,200}(?:[~^][0-9]{0,4}){0,4}")
_OID: Final = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


def git(root: Root, arguments: Iterable[str], *, stdin: bytes = b"", environ: Mapping[str, str] | None = None) -> Ended:
    """Run one command of git in the repository."""
    settings = [word for name, value in _SETTINGS.items() for word in ("-c", f"{name}={value}")]
    argv = [
        locate("git"),
        "--no-pager",
        "--literal-pathspecs",
        f"--git-dir={root.path}/.git",
        f"--work-tree={root.path}",
    ]
    plain = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": "/nonexistent",
        "LC_ALL": "C.UTF-8",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_NO_LAZY_FETCH": "1",
        **(environ or {}),
    }
    ended = run(
        [*argv, *settings, "-c", f"safe.directory={root.path}", *arguments],
        folder=root.path,
        environ=plain,
        seconds=_SECONDS,
        stdin=stdin,
    )
    if ended.code is None:
        raise Refused(f"git took more than {_SECONDS:g} s")
    return ended


def ask(root: Root, *arguments: str, stdin: bytes = b"", environ: Mapping[str, str] | None = None) -> bytes:
    """What git answers; :class:`Refused` with what it says if it will not."""
    ended = git(root, arguments, stdin=stdin, environ=environ)
    if ended.code:
        said = ended.errors.decode(errors="replace").strip().partition("\n")[0]
        raise Refused(f"git {arguments[0]}: {said[:300] or f'exit status {ended.code}'}")
    if ended.cut:
        raise Refused(f"git {arguments[0]} says more than can be read here: ask about fewer files")
    return ended.output


def revision(root: Root, name: str) -> str:
    """The full name of a commit; :class:`Refused` if it is none, or could be taken for something else."""
    if _REVISION.fullmatch(name) is None or ".." in name:
        raise Refused(f"{name!r} is no name of a commit")
    oid = ask(root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}").decode().strip()
    if _OID.fullmatch(oid) is None:
        raise Refused(f"there is no commit {name!r}")
    return oid
