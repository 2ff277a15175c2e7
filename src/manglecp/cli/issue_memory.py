"""Where the issue memory of a command is, and what to say when it refuses."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from manglecp.store import Invalid, Refused, StoreError, open_database, place_of, system_clock
from manglecp.store.issues import StoredIssues

if TYPE_CHECKING:
    from manglecp.store.issues import IssueMemory

__all__ = ["opened", "opened_store", "refusal"]

PLACE: Final = Path(".manglecp", "issues.db")
_ALPHABET: Final = "0123456789abcdefghjkmnpqrstvwxyz"  # no letters that look like others


@contextmanager
def opened_store(db: str | None, *, create: bool = False) -> Iterator[StoredIssues]:
    """The store of a command. Whatever the store refuses ends the command, with status 1 or 2."""
    try:
        store = StoredIssues(open_database(_locate(db, create=create)))
        try:
            yield store
        finally:
            store.close()
    except Refused as error:
        raise refusal(f"error[{error.code}]: {error}") from None
    except Invalid as error:
        raise click.UsageError(str(error)) from None
    except StoreError as error:
        raise refusal(f"error[store]: {error}") from None


@contextmanager
def opened(db: str | None, *, create: bool = False) -> Iterator[IssueMemory]:
    """The issue memory of a command, on :func:`opened_store`."""
    from manglecp.store.issues import IssueMemory

    with opened_store(db, create=create) as store:
        yield IssueMemory(store, clock=system_clock, new_id=_new_id)


def _locate(db: str | None, *, create: bool) -> str | Path:
    if db is not None:
        path = place_of(db)
        if not isinstance(path, Path):
            return db
        if not create and not path.exists():
            raise click.UsageError(f"there is no issue memory {click.format_filename(path)}")
    else:
        here = Path.cwd()
        path = next((place for folder in (here, *here.parents) if (place := folder / PLACE).is_file()), here / PLACE)
        if not create and not path.exists():
            raise click.UsageError(f"there is no {PLACE} here or above; `manglecp issue add` makes one, --db names one")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise click.UsageError(f"cannot make {click.format_filename(path.parent)}: {error.strerror}") from None
    return path


def refusal(message: str) -> click.exceptions.Exit:
    """The end of a command that was understood and not done."""
    click.echo(message, err=True)
    return click.exceptions.Exit(1)


def _new_id() -> str:
    """Eight letters, about 10^12 ids; one that is taken is drawn again."""
    return "i-" + "".join(secrets.choice(_ALPHABET) for _ in range(8))
