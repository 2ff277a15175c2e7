"""The store of a verb: where it is, how it is opened, and what is said when it refuses."""

from __future__ import annotations

import getpass
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:  # a wrong command line is refused before anything is loaded
    from manglecp.store import Store

__all__ = [
    "as_json",
    "opened",
    "operator_option",
    "refusing",
    "store_key",
    "store_option",
    "store_options",
    "user_name",
]

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


def store_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """``where`` and ``key_file``."""
    return store_option(_key(function))


def user_name() -> str:
    """Who runs this process: their name, or a number where the account has none."""
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
    """The 32 bytes of the key, raw or as hexadecimal digits in the file. Anything else is an error of usage."""
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
    """Whatever the store refuses ends the verb with status 1, and a wrong value with status 2."""
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
    """A store that is there already: to look at one does not make one."""
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
