"""A real PostgreSQL for tests: one that is named, or one that is started here.

Looked for in this order: the server of ``MANGLECP_TEST_POSTGRES`` (a URL whose user may make databases), ``initdb`` on
the PATH, the usual folders of Debian. A server that is started here listens on a socket in a temporary folder only, and
ends with the process that asked for it, however that ends. As root it runs as somebody else, since PostgreSQL insists.

Every test gets an empty database of its own: one that was used is emptied, since to make one takes longer. Where there
is no PostgreSQL the test is skipped, or fails if ``MANGLECP_REQUIRE_POSTGRES`` is 1. A ``conftest.py`` that wants this
imports :func:`postgres_url`.
"""

from __future__ import annotations

import atexit
import itertools
import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from urllib.parse import quote, urlsplit

import psycopg
import pytest

from tests.deadlines import patience
from tests.lanes.guard import uses

__all__ = ["empty_database", "postgres_url", "server_programs"]

_PATIENCE = patience(60.0)

# The shell outlives the tests by a moment: when its input ends, however that came, it stops the server.
_GUARD = """
"$@" </dev/null >log 2>&1 &
read -r _
kill -QUIT $!
wait $!
rm -rf "$PWD"
"""

_names = (f"test_{os.getpid()}_{number}" for number in itertools.count())
_free: list[str] = []
"""Names of databases that are empty and that nobody uses."""


class NoPostgres(Exception):
    """Says why there is none."""


@pytest.fixture
def postgres_url() -> Iterator[str]:
    """An empty database."""
    with empty_database() as url:
        yield url


@contextmanager
def empty_database() -> Iterator[str]:
    """The URL of a database that nobody else uses."""
    uses("postgres", "PostgreSQL")
    try:
        server = _server()
    except NoPostgres as error:
        if os.environ.get("MANGLECP_REQUIRE_POSTGRES") == "1":
            pytest.fail(f"PostgreSQL is required here: {error}")
        pytest.skip(f"no PostgreSQL: {error}")
    name = _free.pop() if _free else _made(server)
    url = _with_database(server, name)
    yield url  # what a test that fails leaves behind is not used again
    others = (
        f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}' AND pid <> pg_backend_pid()"
    )
    _execute(url, others, "DROP SCHEMA IF EXISTS manglecp CASCADE")
    _free.append(name)


def _made(server: str) -> str:
    name = next(_names)
    make = f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8'"
    try:  # one that orders texts as people do: whatever relies on code points has to say so
        _execute(server, f"{make} LOCALE 'C' LOCALE_PROVIDER icu ICU_LOCALE 'en'")
    except psycopg.Error:  # before version 15, or built without that
        _execute(server, make)
    if os.environ.get("MANGLECP_TEST_POSTGRES"):
        atexit.register(_execute, server, f"DROP DATABASE {name} WITH (FORCE)")
    return name


@lru_cache(maxsize=1)
def _server() -> str:
    """The URL of a server, without the name of a database in it that tests write to."""
    if given := os.environ.get("MANGLECP_TEST_POSTGRES"):
        return given
    programs = server_programs()
    # Not below a folder that only this user may enter, and with a short name: sockets cannot have long ones.
    folder = Path(tempfile.mkdtemp(prefix="manglecp-pg-", dir="/tmp" if os.access("/tmp", os.W_OK) else None))
    user = _other_user() if os.geteuid() == 0 else None
    if user is not None:
        os.chown(folder, user.pw_uid, user.pw_gid)
    make = ["initdb", "-D", "data", "-U", "tester", "--auth=trust", "--no-sync", "--locale=C", "--encoding=UTF8"]
    made = _start(programs, make, folder, user)
    _, complaint = made.communicate()
    if made.returncode:
        shutil.rmtree(folder)
        raise NoPostgres(f"initdb says: {complaint.strip()[-300:]!r}")
    settings = {
        "listen_addresses": "",
        "unix_socket_directories": str(folder),
        "fsync": "off",
        "full_page_writes": "off",
        "max_connections": "60",
        "shared_buffers": "32MB",
        "autovacuum": "off",
    }
    options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    guard = _start(programs, ["/bin/sh", "-c", _GUARD, "sh", "postgres", "-D", "data", *options], folder, user)
    assert guard.stdin is not None
    alive = guard.stdin

    @atexit.register
    def stop() -> None:
        alive.close()
        guard.wait(_PATIENCE)
        shutil.rmtree(folder, ignore_errors=True)

    url = f"postgresql://tester@{quote(str(folder), safe='')}/postgres"
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            psycopg.connect(url).close()
            return url
        except psycopg.OperationalError as error:
            if guard.poll() is not None or time.monotonic() > deadline:
                raise NoPostgres(f"the server did not start: {error}; {(folder / 'log').read_text()[-500:]}") from None
        time.sleep(0.02)


def _start(programs: Path, command: list[str], folder: Path, user: pwd.struct_passwd | None) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command,
        user=None if user is None else user.pw_uid,
        group=None if user is None else user.pw_gid,
        extra_groups=None if user is None else [],
        cwd=folder,
        env={"PATH": f"{programs}:{os.defpath}"},
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,  # an interrupt from the keyboard is for the tests
    )


def server_programs() -> Path:
    """The folder with initdb and postgres."""
    found = [shutil.which("initdb"), *sorted(map(str, Path("/usr/lib/postgresql").glob("*/bin/initdb")), reverse=True)]
    for initdb in filter(None, found):
        folder = Path(initdb).resolve().parent
        if (folder / "postgres").exists():
            return folder
    raise NoPostgres("neither MANGLECP_TEST_POSTGRES nor initdb; Debian has it in the package postgresql")


def _other_user() -> pwd.struct_passwd:
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise NoPostgres("root cannot run it, and there is neither a user postgres nor nobody")


def _execute(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement)


def _with_database(server: str, name: str) -> str:
    return urlsplit(server)._replace(path=f"/{name}").geturl()
