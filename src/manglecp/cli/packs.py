"""The argument PACK: a folder. Whoever names something else is told what would be one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

import click

__all__ = ["PACK", "PackFolder", "meant"]

_ADDRESSES: Final = "http://, https://, ws:// or wss://"


def meant(word: str, known: list[str]) -> str:
    """A question to add to a sentence, if one of the known words looks like it."""
    from difflib import get_close_matches  # only who slipped pays for it

    near = get_close_matches(word, known, 1, 0.7)
    return f" Did you mean {near[0]!r}?" if near else ""


class PackFolder(click.Path):
    """A folder that exists. Whether it is a pack is for whoever reads it to say."""

    def __init__(self, *, or_url: bool = False) -> None:
        super().__init__(file_okay=False, path_type=Path)
        self._or_url = or_url

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """The folder. The refusal says what could have been meant."""
        path = Path(value)
        if not os.path.isdir(path):  # noqa: PTH112 - a folder that may not be looked at is none
            self.fail(self._refusal(os.fspath(value), path), param, ctx)
        return path

    def _refusal(self, given: str, path: Path) -> str:
        shown = click.format_filename(path)
        if "://" in given:
            server = f"the address of a server begins with {_ADDRESSES}."
            return server if self._or_url else "give a folder of this machine."
        if os.path.isfile(path):  # noqa: PTH113 - as above
            holder = next((str(one) for one in path.absolute().parents if (one / "rules").is_dir()), None)
            pack = "" if holder is None else f" Did you mean {click.format_filename(os.path.relpath(holder))!r}?"
            return f"{shown!r} is a file, and a pack is a folder.{pack}"
        return f"there is no folder {shown!r}.{_beside(path)} `manglecp new {shown}` writes a pack to begin with."


def _beside(path: Path) -> str:
    try:
        others = [one.name for one in path.parent.iterdir() if one.is_dir()]
    except OSError:
        return ""
    return meant(path.name, others)


PACK: Final = PackFolder()
