"""A PostgreSQL server for one benchmark, on a socket in a temporary folder, with default settings.

``MANGLECP_TEST_POSTGRES`` is the URL of a writable database to use instead.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote


@contextmanager
def postgres() -> Iterator[str | None]:
    """Yield the URL of an empty database; None if PostgreSQL is not installed."""
    if given := os.environ.get("MANGLECP_TEST_POSTGRES"):
        yield given
        return
    programs = _programs()
    if programs is None:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="manglecp-pg-", ignore_cleanup_errors=True) as folder:
        user = None
        if os.geteuid() == 0:  # PostgreSQL refuses to run as root
            user = pwd.getpwnam("nobody").pw_uid
            os.chown(folder, user, -1)
        initdb = [
            str(programs / "initdb"),
            "-D",
            "data",
            "-U",
            "bench",
            "--auth=trust",
            "--locale=C",
            "--encoding=UTF8",
        ]
        subprocess.run(initdb, cwd=folder, user=user, check=True, stdout=subprocess.DEVNULL)
        server = subprocess.Popen(
            [programs / "postgres", "-D", "data", "-k", folder, "-c", "listen_addresses="],
            cwd=folder,
            user=user,
            stderr=subprocess.DEVNULL,
        )
        try:
            url = f"postgresql://bench@{quote(folder, safe='')}/postgres"
            _wait_for(url, server)
            yield url
        finally:
            server.send_signal(signal.SIGINT)  # fast shutdown
            server.wait(60)


def _wait_for(url: str, server: subprocess.Popen[bytes]) -> None:
    import psycopg

    deadline = time.monotonic() + 60
    while True:
        try:
            psycopg.connect(url).close()
            return
        except psycopg.OperationalError:
            if server.poll() is not None or time.monotonic() > deadline:
                raise
        time.sleep(0.05)


def _programs() -> Path | None:
    """Return the folder of initdb and postgres."""
    found = [shutil.which("initdb"), *sorted(map(str, Path("/usr/lib/postgresql").glob("*/bin/initdb")), reverse=True)]
    folders = [Path(initdb).resolve().parent for initdb in found if initdb is not None]
    return next((folder for folder in folders if (folder / "postgres").exists()), None)
