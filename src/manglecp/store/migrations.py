"""The schema, brought up to date part by part.

Each part of the store (ledger, registry, …) brings its own tables as a :class:`Part`: a list of migrations, the n-th of
which leads from version n-1 to version n. What was released is never edited; a change is a migration more. The table
``store_part`` says which version of which part a database has, so that parts grow without knowing each other.

Data definition is written once. ``BIGINT`` and ``TEXT`` mean the same everywhere; these stand for what does not:

    {blob}        the type of bytes
    {strict}      after the closing parenthesis of a table: values have the type of their column
    {clustered}   the same, and rows are kept in the order of the primary key
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, TypeAlias

from manglecp.store.database import Dialect, Transaction
from manglecp.store.errors import Unusable

__all__ = ["ByDialect", "Migration", "Part", "append_only", "bring_up_to_date", "is_up_to_date"]


class ByDialect(NamedTuple):
    """A step that each database says in its own words: no statement, or several."""

    sqlite: Sequence[str]
    postgresql: Sequence[str]


Migration: TypeAlias = Sequence[str | ByDialect]
"""The statements that lead from one version of a part to the next."""


class Part(NamedTuple):
    """Tables that belong together."""

    name: str
    migrations: Sequence[Migration]


def append_only(table: str, rows: str) -> ByDialect:
    """Nobody changes or deletes a row of this table by mistake. Who means to is found out by the hash chain."""
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


# Order of texts is that of code points in both: PostgreSQL would otherwise ask the machine's language.
_WORDS: Final[dict[Dialect, dict[str, str]]] = {
    "sqlite": {
        "BIGINT": "INTEGER",
        "{blob}": "BLOB",
        "{strict}": "STRICT",
        "{clustered}": "STRICT, WITHOUT ROWID",
    },
    "postgresql": {"TEXT": 'TEXT COLLATE "C"', "{blob}": "BYTEA", "{strict}": "", "{clustered}": ""},
}
_WORD: Final = re.compile(r"\b(?:BIGINT|TEXT)\b|\{\w+\}")

_VERSIONS: Final = "SELECT name, version FROM store_part"


def write(statement: str, dialect: Dialect) -> str:
    """Data definition in the words of one database."""
    words = _WORDS[dialect]
    return _WORD.sub(lambda found: words.get(found[0], found[0]), statement)


def is_up_to_date(tx: Transaction, parts: Iterable[Part], *, name: str) -> bool:
    """Whether nothing is left to do; refuses what a newer manglecp has written. ``store_part`` has to be there."""
    versions = dict(tx.execute(_VERSIONS).fetchall())
    return all(_version(versions, part, name) == len(part.migrations) for part in parts)


def bring_up_to_date(tx: Transaction, parts: Iterable[Part], *, name: str) -> None:
    """Run what is missing, in a transaction during which nobody else does."""
    tx.execute(
        write(
            "CREATE TABLE IF NOT EXISTS store_part (name TEXT PRIMARY KEY, version BIGINT NOT NULL) {strict}",
            tx.dialect,
        )
    )
    versions = dict(tx.execute(_VERSIONS).fetchall())
    for part in parts:
        for migration in part.migrations[_version(versions, part, name) :]:
            for step in migration:
                for statement in [step] if isinstance(step, str) else getattr(step, tx.dialect):
                    tx.execute(write(statement, tx.dialect))
        tx.execute(
            "INSERT INTO store_part (name, version) VALUES (?, ?)"
            " ON CONFLICT (name) DO UPDATE SET version = excluded.version",
            (part.name, len(part.migrations)),
        )


def _version(versions: dict[str, int], part: Part, name: str) -> int:
    version = versions.get(part.name, 0)
    if version > len(part.migrations):
        raise Unusable(
            f"{name} has schema version {version} of {part.name} and this manglecp knows {len(part.migrations)}; "
            "use the newer manglecp that wrote it"
        )
    return version
