"""The starter pack of ``manglecp new``, written under a temporary name and renamed: it is complete or absent."""

from __future__ import annotations

import os
import secrets
import shutil
import tomllib
from importlib.resources import files
from pathlib import Path
from typing import Final

from manglecp.pack.diagnostics import PackError
from manglecp.pack.settings import is_pack_name

INTENT: Final = "review"  # the intent of the starter pack


def write_scaffold(folder: Path) -> tuple[str, ...]:
    """Write a new pack and return the names of its files. Raises :class:`PackError` if the folder exists."""
    target = folder.absolute()
    name = target.name
    if not is_pack_name(name):
        fix = "use letters, digits, '.', '_' and '-'"
        raise PackError.at("", f"{name[:80]!r} is not a valid pack name", fix=fix)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.parent / f".{name}-{secrets.token_hex(8)}"
        temporary.mkdir()
    except OSError as error:
        raise _write_error(folder, error) from None
    starter = tomllib.loads(files(__package__).joinpath("starter.toml").read_text("utf-8"))  # texts by file name
    try:
        for file, text in starter.items():
            path = temporary / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text.replace("{name}", name), encoding="utf-8")
        target.mkdir()  # of two concurrent calls, one fails here
        os.replace(temporary, target)  # noqa: PTH105  # atomic: replaces the empty folder
    except FileExistsError:
        raise PackError.at("", f"{str(folder)[:300]!r} exists already", fix="choose another name") from None
    except OSError as error:
        raise _write_error(folder, error) from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return tuple(starter)


def _write_error(folder: Path, error: OSError) -> PackError:
    return PackError.at("", f"{str(folder)[:300]!r} cannot be written: {error.strerror}")
