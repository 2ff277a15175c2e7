"""A store on a PostgreSQL server, which several machines share.

The tables are in the schema ``manglecp``. Write transactions are *read committed* and lock the rows they depend on;
read transactions see one snapshot. Threads take connections from a small pool. If a connection breaks, the server rolls
back its transaction, and the caller gets :class:`.Busy`, or :class:`.CommitUnknown` if the connection broke during the
commit. Lock time-outs, deadlocks and serialisation failures raise ``Busy`` as well.

``synchronous = "normal"`` does not wait for the server's disk (``synchronous_commit = off``): a server crash may lose
the last commits. ``full`` waits. psycopg is imported when a database is opened.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs, unquote, urlsplit

from manglecp.base.extras import missing_extra
from manglecp.store.database import NOW, PATIENCE, Dialect, Rows, Synchronous
from manglecp.store.errors import Busy, CommitUnknown, StoreError, Unusable
from manglecp.store.schema import SchemaPart, create_parts, has_parts

if TYPE_CHECKING:
    import psycopg


SCHEMA: Final = "manglecp"

_MAX_CONNECTIONS: Final = 8

_BEGIN_WRITE: Final = "BEGIN"  # the session sets the isolation level, because a short statement is faster
_BEGIN_READ: Final = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"

_CREATION_LOCK: Final = 0x6D636973  # "mcis": an advisory lock, unlikely to be used by other programs


class PostgresTransaction:
    __slots__ = ("_connection",)

    dialect: Final[Dialect] = "postgresql"

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection

    def execute(self, sql: str, params: Sequence[Any] = (), /) -> Rows:
        return self._connection.execute(_translate(sql), params)

    def executemany(self, sql: str, rows: Iterable[Sequence[Any]], /) -> None:
        with self._connection.cursor() as cursor:
            cursor.executemany(_translate(sql), rows)

    def locked(self, sql: str, params: Sequence[Any] = (), *, wait: bool = False) -> Rows:
        return self.execute(f"{sql} FOR UPDATE" if wait else f"{sql} FOR UPDATE SKIP LOCKED", params)

    def now_ms(self) -> int:
        return int(self.execute(f"SELECT {NOW[self.dialect]}").fetchone()[0])


class PostgresDatabase:
    dialect: Final[Dialect] = "postgresql"

    def __init__(
        self,
        url: PostgresUrl,
        *,
        parts: Sequence[SchemaPart],
        synchronous: Synchronous = "normal",
        patience: float = PATIENCE,
    ) -> None:
        try:
            import psycopg
        except ImportError:
            raise Unusable(f"{url}: {missing_extra('psycopg', 'postgres')}") from None
        self._psycopg = psycopg
        self._url = url
        self._patience = patience
        self._settings = _settings(synchronous, patience)
        self._idle: list[psycopg.Connection[Any]] = []
        self._capacity = threading.Semaphore(_MAX_CONNECTIONS)
        self._pool_lock = threading.Lock()
        self._closed = False
        try:
            connection = self._connect()
        except psycopg.ProgrammingError:
            raise invalid_url() from None
        except psycopg.OperationalError as error:
            raise Unusable(
                f"{self.name} cannot be reached: {_first_line(error)}. "
                "Is the server running, and are host, port, database, user and password of the URL right?"
            ) from None
        self._idle.append(connection)
        try:
            self._create_parts(parts)
        except BaseException:
            self.close()
            raise

    @property
    def name(self) -> str:
        return str(self._url)

    def close(self) -> None:
        with self._pool_lock:
            self._closed = True
            while self._idle:
                self._idle.pop().close()

    @contextmanager
    def write_transaction(self) -> Iterator[PostgresTransaction]:
        with self._begun_connection(_BEGIN_WRITE) as connection:
            yield from self._transaction(connection, writes=True)

    @contextmanager
    def read_transaction(self) -> Iterator[PostgresTransaction]:
        with self._begun_connection(_BEGIN_READ) as connection:
            yield from self._transaction(connection, writes=False)

    def damage(self) -> list[str]:
        return []  # the server checks its own files

    @contextmanager
    def _begun_connection(self, begin: str) -> Iterator[psycopg.Connection[Any]]:
        """Yield a connection of the pool after the statement ``begin``; raises :class:`.Busy` at the timeout."""
        deadline = time.monotonic() + self._patience
        if not self._capacity.acquire(timeout=self._patience):
            raise Busy(f"all {_MAX_CONNECTIONS} connections to {self.name} are in use; nothing was changed. Try again.")
        try:
            connection = self._begin(begin, deadline)
            try:
                yield connection
            finally:
                with self._pool_lock:
                    if self._closed or connection.closed:
                        connection.close()
                    else:
                        self._idle.append(connection)
        finally:
            self._capacity.release()

    def _begin(self, begin: str, deadline: float) -> psycopg.Connection[Any]:
        while True:
            with self._pool_lock:
                if self._closed:
                    raise self._psycopg.InterfaceError("the database is closed")  # a bug: a use after close()
                connection = self._idle.pop() if self._idle else None
            was_idle = connection is not None
            try:
                connection = connection or self._connect()
                connection.execute(begin)
                return connection
            except self._psycopg.OperationalError as error:
                if connection is not None:
                    connection.close()
                if was_idle:  # the connection may have broken long ago: try the next, without delay
                    continue
                if time.monotonic() > deadline:
                    raise Busy(
                        f"{self.name} cannot be reached any more: {_first_line(error)}; nothing was changed. Try again."
                    ) from None
            time.sleep(0.05)

    def _connect(self) -> psycopg.Connection[Any]:
        connection = self._psycopg.connect(
            self._url.secret,
            autocommit=True,  # transactions begin and end in this module only
            connect_timeout=max(2, int(self._patience)),
            application_name="manglecp",
        )
        try:
            connection.execute(self._settings)
        except BaseException:
            connection.close()
            raise
        return connection

    def _transaction(self, connection: psycopg.Connection[Any], *, writes: bool) -> Iterator[PostgresTransaction]:
        """Yield the transaction that has begun on the connection, and commit it; roll back if the block raises."""
        committing = False
        try:
            yield PostgresTransaction(connection)
            committing = True
            status = connection.execute("COMMIT").statusmessage
        except self._psycopg.Error as error:
            broken = connection.broken
            _roll_back(connection)
            if broken and committing and writes:
                raise CommitUnknown(
                    f"the connection to {self.name} broke while a change was being committed: "
                    "it was made or it was not. Check the state before retrying."
                ) from None
            raise self._store_error(error, broken=broken) from error
        except BaseException:
            _roll_back(connection)
            raise
        if status != "COMMIT":  # the server rolled back after an error that the block caught
            raise StoreError(f"{self.name} rolled the transaction back: a statement in it had failed")

    def _store_error(self, error: psycopg.Error, *, broken: bool) -> Exception:
        """Translate a driver error, without its details, which quote values. ``broken``: the connection is broken."""
        errors = self._psycopg.errors
        text = error.diag.message_primary or _first_line(error)
        if broken:
            return Busy(f"the connection to {self.name} broke ({text}); nothing was changed. Try again.")
        if isinstance(error, errors.LockNotAvailable):
            return Busy(
                f"{self.name} is being written to by another process and was not free within {self._patience:g} s; "
                "nothing was changed. Try again, or end the process that holds it."
            )
        if isinstance(error, errors.SerializationFailure | errors.DeadlockDetected):
            return Busy(f"{self.name} is being written to by another process; nothing was changed. Try again. ({text})")
        if isinstance(error, errors.InsufficientPrivilege):
            return Unusable(f"{self.name} refuses: {text}. Give the user of the URL this right, or use another user.")
        if isinstance(error, errors.IntegrityError):
            return StoreError(f"{self.name} does not admit this row: {text}")
        if isinstance(error, errors.OperationalError | errors.DataError):
            return StoreError(f"{self.name} cannot be used: {text}")
        return error  # a bug in this package

    def _create_parts(self, parts: Sequence[SchemaPart]) -> None:
        with self.read_transaction() as tx:
            exists = tx.execute("SELECT to_regclass(?) IS NOT NULL", (f"{SCHEMA}.store_part",)).fetchone()[0]
            if exists and has_parts(tx, parts, name=self.name):
                return
        with self.write_transaction() as tx:
            tx.execute("SELECT pg_advisory_xact_lock(?)", (_CREATION_LOCK,))
            if tx.execute("SELECT 1 FROM pg_namespace WHERE nspname = ?", (SCHEMA,)).fetchone() is None:
                tx.execute(f"CREATE SCHEMA {SCHEMA}")
            create_parts(tx, parts, name=self.name)


def _settings(synchronous: Synchronous, patience: float) -> str:
    """Return the statements that configure a new connection."""
    settings = {
        "search_path": SCHEMA,
        "default_transaction_isolation": "'read committed'",
        "default_transaction_read_only": "off",
        "synchronous_commit": "on" if synchronous == "full" else "off",
        "lock_timeout": f"'{max(1, int(patience * 1000))}ms'",
        # A process that hangs in a transaction must not keep its locks: after this time the server ends the session.
        "idle_in_transaction_session_timeout": f"'{max(10_000, int(patience * 2000))}ms'",
        "client_encoding": "'UTF8'",
    }
    return "; ".join(f"SET {name} = {value}" for name, value in settings.items())


def _roll_back(connection: psycopg.Connection[Any]) -> None:
    try:
        connection.execute("ROLLBACK")
    except Exception:
        connection.close()


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0].rstrip(".")


@lru_cache(maxsize=512)
def _translate(sql: str) -> str:
    """Replace each ``?`` by ``%s``, psycopg's placeholder, except within quotes."""
    pieces = sql.replace("%", "%%").split("'")  # every second piece is a quoted text
    pieces[::2] = [piece.replace("?", "%s") for piece in pieces[::2]]
    return "'".join(pieces)


_SCHEMES: Final = ("postgresql://", "postgres://")
_HOST: Final = r"(?:\[[0-9A-Fa-f:.]+\]|[^:@,\[\]]*)(?::[0-9]+)?"
_AUTHORITY: Final = re.compile(rf"(?:(?P<user>[^:@]*)(?::[^@]*)?@)?(?P<hosts>{_HOST}(?:,{_HOST})*)")


def is_postgres(location: str) -> bool:
    return location.startswith(_SCHEMES)


class PostgresUrl:
    """A PostgreSQL URL. ``str()`` and ``repr()`` omit the password; :attr:`secret`, the whole URL, is for the driver.

    A password with unescaped ``@`` or ``/`` splits the URL at the wrong places, and a driver error would quote a part
    of the password. Such a URL is refused here, and the message does not quote it.
    """

    __slots__ = ("_text", "secret")

    def __init__(self, url: str) -> None:
        self.secret: Final = url
        try:
            parts = urlsplit(url)
            query = parse_qs(parts.query, strict_parsing=True) if parts.query else {}
        except ValueError:
            raise invalid_url() from None
        authority = _AUTHORITY.fullmatch(parts.netloc)
        if authority is None or "@" in parts.path or parts.fragment:
            raise invalid_url()
        user = authority["user"] or query.get("user", [""])[0]
        hosts = authority["hosts"] or query.get("host", [""])[0]
        self._text: Final = f"postgresql://{f'{user}@' if user else ''}{unquote(hosts)}{parts.path}"

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"PostgresUrl({self._text!r})"


def invalid_url() -> Unusable:
    return Unusable(
        "the URL of the PostgreSQL database cannot be read, or has an unknown option. Its form is "
        "postgresql://USER:PASSWORD@HOST:PORT/DATABASE; in user and password, signs other than letters, digits, "
        "'-', '.' and '_' are percent-encoded ('@' is %40)."
    )
