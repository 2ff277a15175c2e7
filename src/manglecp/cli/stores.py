"""The store of a verb: its options, and the report of its errors."""

from __future__ import annotations

import getpass
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from manglecp.cli.files import combine

if TYPE_CHECKING:  # a wrong command line is refused before anything is loaded
    from manglecp.base.hash_chain import Head
    from manglecp.store import Store

_KEY_BYTES: Final = 32

store_option: Final = click.option(
    "--store",
    "where",
    metavar="URL",
    envvar="MANGLECP_STORE",
    help="A path, sqlite:///PATH, postgresql://… or :memory:; by default $MANGLECP_STORE, or a file of this user.",
)
_key: Final = click.option(
    "--store-key",
    "key_file",
    metavar="FILE",
    envvar="MANGLECP_STORE_KEY_FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The key that values of runs are sealed with: 32 bytes, or 64 hexadecimal digits.",
)
as_json: Final = click.option("--json", "as_json", is_flag=True, help="Answer as one JSON document.")


store_options: Final = combine(store_option, _key)


def user_name() -> str:
    """Return the name of this process's user, or the number of an account without a name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # an account without a name
        return f"uid-{os.getuid()}"


operator_option: Final = click.option(
    "--by",
    metavar="NAME",
    envvar="MANGLECP_ACTOR",
    default=user_name,
    help="Who decides; by default $MANGLECP_ACTOR or the user.",
)


def store_key(file: Path | None) -> bytes | None:
    """Read the 32 bytes of the key, raw or as hexadecimal digits. Raises ``UsageError`` for anything else."""
    if file is None:
        return None
    try:
        key = file.read_bytes()
    except OSError as error:
        raise click.UsageError(f"cannot read {click.format_filename(file)}: {error.strerror}") from None
    if len(key) == _KEY_BYTES:
        return key
    try:
        key = bytes.fromhex(key.decode("ascii"))
    except ValueError:
        key = b""
    if len(key) != _KEY_BYTES:
        raise click.UsageError(f"{click.format_filename(file)} holds no key: 32 bytes, or 64 hexadecimal digits")
    return key


@contextmanager
def refusing() -> Iterator[None]:
    """Report errors of the store, and end the verb with status 1, or 2 for an invalid value."""
    from manglecp.store import Invalid, Refused, StoreError

    try:
        yield
    except Refused as error:
        click.echo(f"error[{error.code}]: {error}", err=True)
        if error.code == "no_run":
            click.echo("  manglecp runs list shows those that there are", err=True)
        raise click.exceptions.Exit(1) from None
    except Invalid as error:
        raise click.UsageError(str(error)) from None
    except StoreError as error:
        click.echo(f"error[store]: {error}", err=True)
        raise click.exceptions.Exit(1) from None


@contextmanager
def opened(where: str | None, key_file: Path | None = None) -> Iterator[Store]:
    """Open an existing store."""
    from manglecp.store import open_store

    key = store_key(key_file)
    with refusing():
        _has_to_exist(where)
        store = open_store(where, key=key)
        try:
            yield store
        finally:
            store.close()


def _has_to_exist(where: str | None) -> None:
    from manglecp.store import Unusable, place_of

    path = place_of(where)
    if isinstance(path, Path) and not path.exists():
        raise Unusable(f"there is no store {path}; `manglecp call` makes one, --store names another")


def read_head(option: str, given: str) -> Head:
    """Parse ``N:HASH``, the head of a hash chain."""
    from manglecp.base.hash_chain import Head

    number, colon, row_hash = given.partition(":")
    if not colon or not number.isascii() or not number.isdecimal() or len(number) > 18:
        raise click.UsageError(f"{option} is a number and a hash, such as 12:sha256:4f53…")
    return Head(int(number), row_hash)
