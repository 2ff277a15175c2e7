"""The schema of a store, and its revision.

Each part of the store (ledger, registry, …) is a :class:`SchemaPart` with its tables, in ``sql/NAME.sql``; the table
``store_part`` lists the parts of a database. There are no migrations: a database of another revision is refused.

Statements are written once, with ``BIGINT``, ``TEXT`` and these placeholders, and :func:`translate` adapts them:
``{blob}`` is the type of bytes; ``{strict}`` follows the parenthesis that closes a table, and makes SQLite enforce the
types of columns; ``{clustered}`` also makes SQLite store the rows in the order of the primary key.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from importlib.resources import files
from typing import Final, NamedTuple

from manglecp.store.database import Dialect, Transaction
from manglecp.store.errors import Unusable

REVISION: Final = 8  # to be incremented with every change of a table


class ByDialect(NamedTuple):
    """Statements that differ between the dialects, in a field for each value of :data:`.Dialect`."""

    sqlite: Sequence[str]
    postgresql: Sequence[str]


class SchemaPart(NamedTuple):
    """Tables that belong together."""

    name: str
    statements: Sequence[str | ByDialect]


def read_part(package: str, name: str, *further: ByDialect) -> SchemaPart:
    """Return the part that the file ``sql/NAME.sql`` of a package defines, with further statements at its end.

    Empty lines separate statements. A statement that begins with ``-- only postgresql`` is left out in SQLite.
    """
    text = files(package).joinpath("sql", f"{name}.sql").read_text("utf-8")
    statements = (
        ByDialect(sqlite=(), postgresql=(statement,)) if statement.startswith("-- only postgresql") else statement
        for statement in text.split("\n\n")
    )
    return SchemaPart(name, (*statements, *further))


def append_only(table: str, rows: str) -> ByDialect:
    """Return triggers that refuse accidental changes of a table; ``rows`` names its rows in the message."""
    return ByDialect(
        sqlite=[
            f"CREATE TRIGGER {table}_stays BEFORE UPDATE ON {table}"
            f" BEGIN SELECT RAISE (ABORT, '{rows} are not changed'); END",
            f"CREATE TRIGGER {table}_is_kept BEFORE DELETE ON {table}"
            f" BEGIN SELECT RAISE (ABORT, '{rows} are not deleted'); END",
        ],
        postgresql=[
            f"CREATE FUNCTION {table}_stays() RETURNS trigger LANGUAGE plpgsql AS"
            f" $$ BEGIN RAISE EXCEPTION '{rows} are not changed or deleted' USING ERRCODE = '23001'; END $$",
            f"CREATE TRIGGER {table}_stays BEFORE UPDATE OR DELETE OR TRUNCATE ON {table}"
            f" FOR EACH STATEMENT EXECUTE FUNCTION {table}_stays()",
        ],
    )


# COLLATE "C" orders texts by code points, as SQLite does; the default would be the collation of the machine.
_TRANSLATIONS: Final[dict[Dialect, dict[str, str]]] = {
    "sqlite": {"BIGINT": "INTEGER", "{blob}": "BLOB", "{strict}": "STRICT", "{clustered}": "STRICT, WITHOUT ROWID"},
    "postgresql": {"TEXT": 'TEXT COLLATE "C"', "{blob}": "BYTEA", "{strict}": "", "{clustered}": ""},
}
_TRANSLATED: Final = re.compile(r"\b(?:BIGINT|TEXT)\b|\{\w+\}")
_STORE_PART: Final = "CREATE TABLE IF NOT EXISTS store_part (name TEXT PRIMARY KEY, version BIGINT NOT NULL) {strict}"


def translate(statement: str, dialect: Dialect) -> str:
    translations = _TRANSLATIONS[dialect]
    return _TRANSLATED.sub(lambda match: translations.get(match[0], match[0]), statement)


def has_parts(tx: Transaction, parts: Iterable[SchemaPart], *, name: str) -> bool:
    """Return whether all parts are in ``store_part``. Raises :class:`Unusable` if a part in it has another revision."""
    versions = dict(tx.execute("SELECT name, version FROM store_part").fetchall())
    for version in versions.values():
        _check_revision(version, name=name)
    return versions.keys() >= {part.name for part in parts}


def create_parts(tx: Transaction, parts: Iterable[SchemaPart], *, name: str) -> None:
    """Create missing tables. The caller's transaction must exclude other processes that create tables."""
    tx.execute(translate(_STORE_PART, tx.dialect))
    for part in parts:
        if has_parts(tx, [part], name=name):
            continue
        for entry in part.statements:
            for statement in [entry] if isinstance(entry, str) else getattr(entry, tx.dialect):
                tx.execute(translate(statement, tx.dialect))
        tx.execute("INSERT INTO store_part (name, version) VALUES (?, ?)", (part.name, REVISION))


def _check_revision(revision: int, *, name: str) -> None:
    if revision > REVISION:
        raise Unusable(
            f"{name} has store revision {revision} and this manglecp supports {REVISION}; "
            "use the newer manglecp that wrote it"
        )
    if revision < REVISION:
        raise Unusable(
            f"{name} was written by an older manglecp (store revision {revision}, this one has {REVISION}) and is not "
            "converted. Export what you need with the manglecp that wrote it (ledger export, issue export), then move "
            "the file away, or drop the schema `manglecp`, and start with a new store."
        )
