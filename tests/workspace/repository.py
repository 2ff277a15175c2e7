"""A repository that a test makes: files, commits by several authors, fixed dates.

``git`` runs here without the configuration and the hooks of whoever runs the tests. The same calls make the same
commits everywhere, down to their names.
"""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Final

from tests.deadlines import patience

__all__ = ["ADA", "BEN", "CHI", "Repository", "copy", "new"]

ADA: Final = "Ada Moss <ada@example.org>"
BEN: Final = "Ben Reed <ben@example.org>"
CHI: Final = "Chi Lund <chi@example.org>"
_START: Final = 1_767_225_600  # 2026-01-01T00:00:00Z
_DAY: Final = 86_400
_PATIENCE: Final = patience(60)


@dataclass
class Repository:
    """A folder under git. Each commit is a day later than the one before it."""

    root: Path
    commits: list[str] = field(default_factory=list)
    """In the order in which they were made."""
    day: int = 0

    def git(self, *arguments: str, stdin: bytes = b"", env: Mapping[str, str] | None = None) -> str:
        """What git printed, without the line break at its end."""
        settings = ["-c", "commit.gpgsign=false", "-c", "protocol.file.allow=always", "-c", "core.hooksPath=/dev/null"]
        plain = {
            **{key: value for key, value in os.environ.items() if not key.startswith("GIT_")},
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_TERMINAL_PROMPT": "0",
            "LC_ALL": "C.UTF-8",
            **(env or {}),
        }
        done = subprocess.run(
            ["git", *settings, *arguments],
            cwd=self.root,
            env=plain,
            input=stdin,
            capture_output=True,
            timeout=_PATIENCE,
            check=False,
        )
        if done.returncode:
            raise AssertionError(f"git {' '.join(arguments)}: {done.stderr.decode(errors='replace')}")
        return done.stdout.decode(errors="surrogateescape").removesuffix("\n")

    def write(self, files: Mapping[str, str | bytes]) -> None:
        """Files by their names; folders are made."""
        for name, content in files.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())

    def commit(self, message: str, author: str = ADA, files: Mapping[str, str | bytes] | None = None) -> str:
        """Everything as it is now, after ``files`` were written."""
        self.write(files or {})
        self.git("add", "--all")
        return self.commit_staged(message, author)

    def commit_staged(self, message: str, author: str = ADA) -> str:
        """What is in the index now."""
        self.git("commit", "--quiet", "--allow-empty", "--message", message, env=self._who(author))
        return self._made()

    def merge(self, branch: str, message: str, author: str = ADA) -> str:
        """The branch into the current one, always with a commit of its own."""
        self.git("merge", "--quiet", "--no-ff", "--message", message, branch, env=self._who(author))
        return self._made()

    def _who(self, author: str) -> dict[str, str]:
        self.day += 1
        name, _, address = author.rstrip(">").partition(" <")
        who = {}
        for role in ("AUTHOR", "COMMITTER"):
            who[f"GIT_{role}_NAME"] = name
            who[f"GIT_{role}_EMAIL"] = address
            who[f"GIT_{role}_DATE"] = f"{_START + self.day * _DAY} +0000"
        return who

    def _made(self) -> str:
        self.commits.append(self.git("rev-parse", "HEAD"))
        return self.commits[-1]


def new(root: Path) -> Repository:
    root.mkdir(parents=True)
    repository = Repository(root)
    repository.git("init", "--quiet", "--initial-branch=main")
    return repository


@cache
def _made(make: Callable[[Path], Repository]) -> tuple[Path, Repository]:
    folder = Path(tempfile.mkdtemp(prefix="repository-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder / "made", make(folder / "made")


def copy(make: Callable[[Path], Repository], folder: Path) -> Repository:
    """As ``make`` makes it in a folder; it is made once in a process, and then copied."""
    template, made = _made(make)
    shutil.copytree(template, folder, symlinks=True, dirs_exist_ok=True)
    repository = replace(made, root=folder / made.root.relative_to(template), commits=[*made.commits])
    repository.git("status", "--porcelain")  # so that the index knows how the copies look
    return repository
