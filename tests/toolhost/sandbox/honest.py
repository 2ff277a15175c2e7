"""A plugin that does what plugins do; copied into a folder of its own before it runs."""

import errno
import os
from pathlib import Path

from manglecp import action


@action(effects=["none"])
def threads() -> list[int]:
    """Work in several threads."""
    import threading

    results: list[int] = []
    started = [threading.Thread(target=results.append, args=(n,)) for n in range(8)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    return sorted(results)


@action(effects=["none"])
async def loop() -> int:
    """Wait for a thread."""
    import asyncio

    return await asyncio.to_thread(len, "abc")


@action(effects=["none"])
def imports() -> str:
    """Import late: the standard library, this package, a neighbour."""
    import decimal  # noqa: F401
    import email.message  # noqa: F401
    import sqlite3  # noqa: F401
    import xml.etree.ElementTree  # noqa: F401
    import zoneinfo  # noqa: F401

    import neighbour  # type: ignore[import-not-found]  # it is put there by the test

    import manglecp.toolhost.leases  # noqa: F401

    return str(neighbour.NAME)


@action(effects=["filesystem"])
def temporary() -> str:
    """Use a temporary file."""
    import tempfile

    with tempfile.NamedTemporaryFile("w+") as file:
        file.write("x")
        return file.name


@action(effects=["filesystem"])
def leave(name: str) -> str:
    """Leave a file, or folders that are deeper than a path is long, in the temporary folder."""
    here, temporary = Path.cwd(), os.environ["TMPDIR"]
    *folders, file = name.split("/")
    os.chdir(temporary)
    for folder in folders:
        Path(folder).mkdir()
        os.chdir(folder)
    if file:
        Path(file).write_text("x")
    os.chdir(here)
    return f"{temporary}/{file}"


@action(effects=["filesystem"])
def left() -> list[str]:
    """The content of the temporary folder."""
    return os.listdir(os.environ["TMPDIR"])  # noqa: PTH208


@action(effects=["filesystem"])
def write(path: str) -> str:
    """Write a file, or say why not."""
    try:
        Path(path).write_text("x")
    except OSError as error:
        return _refused(error)
    return "written"


@action(effects=["filesystem"], mutates=False)
def read(path: str) -> str:
    """Read a file, or say why not."""
    try:
        return Path(path).read_text()
    except OSError as error:
        return _refused(error)


def _refused(error: OSError) -> str:
    return "refused" if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS) else repr(error)


@action(effects=["none"])
def place() -> list[str | int]:
    """Who and where we are."""
    return [str(Path.cwd()), os.getpid() - os.getpgrp(), os.getuid(), os.environ.get("TMPDIR", "")]
