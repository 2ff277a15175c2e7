"""Where the issue memory of a command is, and what to say when it refuses."""

from __future__ import annotations

import getpass
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from manglecp.store.errors import Invalid, Refused, StoreError
from manglecp.store.instants import system_clock
from manglecp.store.issues.sqlite_tables import SqliteIssueStore

if TYPE_CHECKING:
    from manglecp.harness.states import MutationReady
    from manglecp.store.issues import IssueMemory

__all__ = ["actor", "as_json", "database", "evidence", "opened", "opened_store", "right"]

PLACE: Final = Path(".manglecp", "issues.db")
_ALPHABET: Final = "0123456789abcdefghjkmnpqrstvwxyz"  # no letters that look like others

_Command = TypeVar("_Command", bound=Callable[..., Any])


def _default_actor() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # an account without a name
        return f"uid-{os.getuid()}"


database = click.option(
    "--db",
    metavar="PATH",
    type=click.Path(dir_okay=False, path_type=Path),
    envvar="MANGLECP_ISSUES",
    help="The issue memory; by default .manglecp/issues.db here or in the nearest folder above.",
)
as_json = click.option("--json", "as_json", is_flag=True, help="Answer as one JSON document.")
actor = click.option(
    "--actor",
    metavar="NAME",
    envvar="MANGLECP_ACTOR",
    default=_default_actor,
    help="Who does it; by default $MANGLECP_ACTOR or the user.",
)


def evidence(command: _Command) -> _Command:
    """The options of every verb that changes what is known."""
    command = click.option(
        "--active-policy",
        metavar="DIGEST",
        envvar="MANGLECP_ACTIVE_POLICY",
        help="The mutation policy in force, whatever the evidence says of it.",
    )(command)
    return click.option(
        "--evidence",
        "evidence_file",
        metavar="FILE",
        required=True,
        type=click.Path(exists=True, dir_okay=False, allow_dash=True),
        help="The turn that carries the change, as `manglecp harness check` takes it; - is standard input.",
    )(command)


@contextmanager
def opened_store(db: Path | None, *, create: bool = False) -> Iterator[SqliteIssueStore]:
    """The store of a command. Whatever the store refuses ends the command, with status 1 or 2."""
    try:
        store = SqliteIssueStore(_locate(db, create=create))
        try:
            yield store
        finally:
            store.close()
    except Refused as error:
        raise _refusal(f"error[{error.code}]: {error}") from None
    except Invalid as error:
        raise click.UsageError(str(error)) from None
    except StoreError as error:
        raise _refusal(f"error[store]: {error}") from None


@contextmanager
def opened(db: Path | None, *, create: bool = False) -> Iterator[IssueMemory]:
    from manglecp.store.issues import IssueMemory

    with opened_store(db, create=create) as store:
        yield IssueMemory(store, clock=system_clock, new_id=_new_id)


def right(file: str, active_policy: str | None) -> MutationReady:
    """The right that a turn's evidence carries, or the end of the command with everything that it lacks."""
    from manglecp.cli import files
    from manglecp.harness.errors import InvalidEvidence
    from manglecp.harness.replay import ready_from
    from manglecp.harness.states import Blocked
    from manglecp.wire.decoding import decode
    from manglecp.wire.faults import Fault

    try:
        return ready_from(decode(files.read(file)), active_policy)
    except Fault as fault:
        raise click.UsageError(f"{files.source_name(file)}: {fault.message}") from None
    except InvalidEvidence as error:
        raise click.UsageError(f"{files.source_name(file)}: {error}") from None
    except Blocked as blocked:
        for finding in blocked.findings:
            click.echo(
                f"  {finding.failure.name} at {finding.where}: {finding.message}; {finding.failure.remedy}", err=True
            )
        why = "the evidence does not carry the change" if blocked.findings else "the turn asks for no mutation"
        raise _refusal(f"error[blocked]: {blocked.state.title} is not reached: {why}") from None


def _locate(db: Path | None, *, create: bool) -> Path:
    if db is not None:
        if not create and not db.exists():
            raise click.UsageError(f"there is no issue memory {click.format_filename(db)}")
        path = db
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


def _refusal(message: str) -> click.exceptions.Exit:
    click.echo(message, err=True)
    return click.exceptions.Exit(1)


def _new_id() -> str:
    """Eight letters, about 10^12 ids; one that is taken is drawn again."""
    return "i-" + "".join(secrets.choice(_ALPHABET) for _ in range(8))
