"""Policy packages and pins as files: a folder is read, a pin is written whole or not at all."""

from __future__ import annotations

import fcntl
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import click

from manglecp.cli.files import read
from manglecp.harness.policy import ENDINGS, Pin, PolicyPackage, observe, read_package, read_pin

__all__ = ["default_pin", "load_package", "load_pin", "locked", "write_pin"]


def load_package(name: str) -> PolicyPackage:
    """The package in a folder, or the built-in one of that name; :class:`.PolicyError` says what is wrong with it."""
    folder = Path(name)
    if not folder.is_dir():
        if name == "observe":
            return observe()
        shown = click.format_filename(name)
        raise click.UsageError(f"there is no folder {shown}; `observe` is a package that is built in")
    files = sorted(path for path in folder.iterdir() if path.suffix in ENDINGS)
    return read_package({path.name: read(str(path)) for path in files})


def default_pin(package: str) -> Path:
    """Beside the folder, not in it: a package does not say of itself that it is the right one."""
    folder = Path(package)
    if folder.name in ("", ".."):  # written as a way there, not as a name
        folder = folder.resolve()
    if not folder.name:
        raise click.UsageError("say with --pin where the pin is")
    return folder.with_name(f"{folder.name}.pin.json")


def load_pin(path: Path) -> Pin | None:
    """None if nothing is pinned."""
    return read_pin(read(str(path)), str(path)) if path.exists() else None


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Nobody else pins in this folder meanwhile."""
    try:
        folder = os.open(path.absolute().parent, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise click.UsageError(f"cannot write {click.format_filename(path)}: {error.strerror}") from None
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)  # which gives up the lock


def write_pin(path: Path, pin: Pin) -> None:
    """The old file or the new one, whatever happens in between."""
    text = json.dumps(pin.as_json(), ensure_ascii=False, indent=2, sort_keys=True) + "\n"
    temporary = None
    try:
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, delete=False) as out:
            temporary = Path(out.name)
            out.write(text)
            out.flush()
            os.fsync(out.fileno())
        temporary.chmod(0o644)
        temporary.replace(path)
    except OSError as error:
        if temporary is not None:
            with suppress(OSError):
                temporary.unlink()
        raise click.UsageError(f"cannot write {click.format_filename(path)}: {error.strerror}") from None
