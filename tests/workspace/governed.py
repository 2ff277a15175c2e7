"""The whole workspace pack on a repository: scanned, asked, and run in its locked hosts."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from manglecp.testing import Answer, Pack, load_pack

__all__ = ["PACK", "as_it_is", "edit", "governed", "read_first"]

PACK: Final = Path(__file__).parents[2] / "examples" / "workspace"


@contextmanager
def as_it_is() -> Iterator[Path]:
    """A copy of the pack: somebody may be working on it while tests run."""
    with tempfile.TemporaryDirectory() as folder:
        yield shutil.copytree(PACK, Path(folder) / PACK.name, ignore=shutil.ignore_patterns("__pycache__"))


@contextmanager
def governed(root: Path, **settings: str) -> Iterator[Pack]:
    given = {"root": str(root), "python": sys.executable, **settings}
    with as_it_is() as copy, load_pack(copy, given, programs=["git", "python"], degrade=True) as pack:
        yield pack


def edit(path: str, old: str, new: str, **more: Any) -> dict[str, Any]:
    return {"path": path, "old": old, "new": new, **more}


def read_first(answer: Answer, tool: str) -> list[str]:
    """The files that the tool says to read, best first."""
    return [one.uri.removeprefix("file://") for one in answer.tool(tool).resources]
