"""Arguments and options that several verbs share, and their values."""

from __future__ import annotations

import getpass
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

import click

from manglecp.cli.files import FILE, group
from manglecp.cli.output import GeneratorProgress, refuse, suggestion, write_text

if TYPE_CHECKING:
    from manglecp.base.hash_chain import Head
    from manglecp.intent import Identity
    from manglecp.invoke import PackOptions
    from manglecp.pack import SandboxPolicy
    from manglecp.store import Store
    from manglecp.wire import WireError


_KEY_BYTES: Final = 32

store_option: Final = click.option(
    "--store",
    "where",
    metavar="URL",
    envvar="MANGLECP_STORE",
    help="A path, sqlite:///PATH, postgresql://… or :memory:; by default $MANGLECP_STORE, or a file of this user.",
)
key_option: Final = click.option(
    "--store-key",
    "key",
    metavar="FILE",
    envvar="MANGLECP_STORE_KEY_FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    callback=lambda _context, _parameter, file: _store_key(file),
    help="A file with the key that seals the values of runs: 32 bytes, or 64 hexadecimal digits.",
)
as_json: Final = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")


def user_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # an account without a name
        return f"uid-{os.getuid()}"


operator_option: Final = click.option(
    "--by",
    metavar="NAME",
    envvar="MANGLECP_ACTOR",
    default=user_name,
    help="The name under which the decision is recorded; by default $MANGLECP_ACTOR or the user.",
)


def _store_key(file: Path | None) -> bytes | None:
    """Read the 32 bytes of the key, raw or as hexadecimal digits. Raises ``UsageError`` for other content."""
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
        raise click.UsageError(f"{click.format_filename(file)} is not a key: 32 bytes, or 64 hexadecimal digits")
    return key


@contextmanager
def report_store_errors() -> Iterator[None]:
    """Print an error of the store, and end the verb with status 1, or 2 for an invalid value."""
    from manglecp.store import ChangeRefused, Invalid, StoreError

    try:
        yield
    except ChangeRefused as error:
        click.echo(f"error[{error.code}]: {error}", err=True)
        if error.code == "no_run":
            click.echo("  `manglecp runs list` lists the runs", err=True)
        raise click.exceptions.Exit(1) from None
    except Invalid as error:
        raise click.UsageError(str(error)) from None
    except StoreError as error:
        click.echo(f"error[store]: {error}", err=True)
        raise click.exceptions.Exit(1) from None


@contextmanager
def open_existing_store(where: str | None, key: bytes | None = None) -> Iterator[Store]:
    from manglecp.store import Unusable, open_store, parse_location

    with report_store_errors():
        path = parse_location(where)
        if isinstance(path, Path) and not path.exists():
            raise Unusable(f"there is no store {path}; `manglecp call` creates it, --store selects another")
        store = open_store(where, key=key)
        try:
            yield store
        finally:
            store.close()


def read_head(option: str, text: str) -> Head:
    """Parse ``N:HASH``, the head of a hash chain."""
    from manglecp.base.hash_chain import Head

    number, colon, row_hash = text.partition(":")
    if not colon or not number.isascii() or not number.isdecimal() or len(number) > 18:
        raise click.UsageError(f"{option} takes a number and a hash, such as 12:sha256:4f53…")
    return Head(int(number), row_hash)


_ADDRESSES: Final = "http://, https://, ws:// or wss://"


class PackFolder(click.Path):
    """The type of an existing folder. The loader of packs checks whether it is a pack."""

    def __init__(self, *, or_url: bool = False) -> None:
        super().__init__(file_okay=False, path_type=Path)
        self._or_url = or_url

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        path = Path(value)
        if not os.path.isdir(path):  # noqa: PTH112 - Path.is_dir raises for a folder without access
            self.fail(self._explain(os.fspath(value), path), param, ctx)
        return path

    def _explain(self, text: str, path: Path) -> str:
        shown = click.format_filename(path)
        if "://" in text:
            server = f"the address of a server begins with {_ADDRESSES}."
            return server if self._or_url else "give a folder of this machine."
        if os.path.isfile(path):  # noqa: PTH113 - as above
            parent = next((str(one) for one in path.absolute().parents if (one / "rules").is_dir()), None)
            pack = "" if parent is None else f" Did you mean {click.format_filename(os.path.relpath(parent))!r}?"
            return f"{shown!r} is a file, and a pack is a folder.{pack}"
        with suppress(OSError):
            similar = suggestion(path.name, [one.name for one in path.parent.iterdir() if one.is_dir()])
            return f"there is no folder {shown!r}.{similar} `manglecp new {shown}` creates an example pack."
        return f"there is no folder {shown!r}. `manglecp new {shown}` creates an example pack."


PACK: Final = PackFolder()
LOCAL: Final = "local"
_EXPLAIN_POLICY: Final = "explain_policy"
_ALL_PROGRAMS: Final = "*"  # toolhost's wildcard for the programs that the pack names


def assignments(context: click.Context, parameter: click.Parameter, texts: tuple[str, ...]) -> dict[str, str]:
    """Parse ``NAME=VALUE``, each name once."""
    values: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise click.BadParameter(f"{text!r} is not NAME=VALUE.", context, parameter)
        if name in values:
            raise click.BadParameter(f"{name} is given twice.", context, parameter)
        values[name] = value
    return values


pack_argument: Final = click.argument("folder", metavar="PACK", type=PACK)


@dataclass(frozen=True, slots=True)
class IntentOptions:
    """The parameters, facts and time of an intent."""

    params: dict[str, str]
    facts: tuple[str, ...]
    fact_files: tuple[str, ...]
    now: str | None

    def of(self, intent: str) -> dict[str, Any]:
        """Return the members of an ``intent_request`` payload."""
        from manglecp.cli.intent_request import given_facts, value_of

        at, facts = given_facts(self.facts, self.fact_files, self.now)
        params = {key: value_of(text) for key, text in self.params.items()}
        return {"intent": {"name": intent, "params": params}, "facts": facts, "eval_time": at}


intent_options: Final = group(
    "intent_values",
    IntentOptions,
    click.option(
        "--param",
        "params",
        metavar="KEY=VALUE",
        multiple=True,
        callback=assignments,
        help="A parameter of the intent: JSON, or text.",
    ),
    click.option(
        "--fact", "facts", metavar="FACT", multiple=True, help="A fact of the client, such as 'p(\"a\", 1)@[now]'."
    ),
    click.option(
        "--facts",
        "fact_files",
        metavar="FILE",
        multiple=True,
        type=FILE,
        help="A file of client facts: .mg, a JSON array, or a recorded intent_request.",
    ),
    click.option(
        "--now",
        metavar="TIME",
        help="The evaluation time in RFC 3339; by default that of a recorded request, or the current time.",
    ),
)


@dataclass(frozen=True, slots=True)
class CallerOptions:
    """The name and the permissions of the caller."""

    caller_name: str | None
    permissions: tuple[str, ...]

    @property
    def identity(self) -> Identity:
        """The caller: by default the owner of the machine, with full disclosure."""
        from manglecp.intent import ANONYMOUS, Identity

        if self.caller_name is None:
            return Identity(LOCAL, frozenset({_EXPLAIN_POLICY, *self.permissions}), LOCAL)
        if self.caller_name == ANONYMOUS.name:
            if self.permissions:
                raise click.UsageError("An anonymous caller has no permissions: leave --permission out.")
            return ANONYMOUS
        return Identity(self.caller_name, frozenset(self.permissions), "user")


caller_options: Final = group(
    "caller",
    CallerOptions,
    click.option(
        "--as",
        "caller_name",
        metavar="NAME",
        help="The identity of the caller; by default 'local', with the permission explain_policy.",
    ),
    click.option("--permission", "permissions", metavar="P", multiple=True, help="A permission of the caller."),
)
degrade_option: Final = click.option(
    "--degrade", is_flag=True, help="Start although this machine lacks sandbox mechanisms, and report the missing ones."
)
program_option: Final = click.option(
    "--program",
    "programs",
    metavar="NAME",
    multiple=True,
    callback=lambda _context, _parameter, names: _programs(names),
    help="A program that the pack may start in its sandbox, if the pack names it too. By default all installed "
    "programs that it names; 'none' for none.",
)
cache_option: Final = click.option(
    "--facts-cache",
    "cache",
    metavar="DIR|none",
    callback=lambda _context, _parameter, folder: _cache(folder),
    help="The cache folder of generated facts; by default in your cache directory.",
)
set_option: Final = click.option(
    "--set", "settings", metavar="NAME=VALUE", multiple=True, callback=assignments, help="A parameter of the pack."
)


@dataclass(frozen=True, slots=True)
class RuntimeOptions:
    """The options of a verb that loads a pack; only verbs that call actions have a workspace and a store."""

    settings: dict[str, str]
    programs: tuple[str, ...]
    cache: Path | bool
    degrade: bool
    allow_weaker: bool = False
    workspace: tuple[Path, ...] = ()
    where: str | None = None
    key: bytes | None = field(default=None, repr=False)

    @property
    def sandbox(self) -> SandboxPolicy:
        from manglecp.pack import SandboxPolicy

        return SandboxPolicy(degrade=self.degrade, allow_weaker=self.allow_weaker)

    def of_pack(self, folder: Path) -> PackOptions:
        from manglecp.invoke import PackOptions

        progress = GeneratorProgress()
        return PackOptions(
            folder, self.settings, self.workspace, self.programs, self.sandbox, self.cache, on_progress=progress
        )

    def open_store(self) -> Store:
        from manglecp.store import open_store

        return open_store(self.where, key=self.key)


_pack_options: Final = (
    set_option,
    degrade_option,
    click.option(
        "--allow-weaker",
        is_flag=True,
        help="Use the weaker sandbox, none or standard, that the pack sets in its [sandbox].",
    ),
    program_option,
    cache_option,
)
pack_options: Final = group("runtime", RuntimeOptions, *_pack_options)
runtime_options: Final = group(
    "runtime",
    RuntimeOptions,
    click.option(
        "--workspace",
        metavar="DIR",
        multiple=True,
        type=click.Path(exists=True, file_okay=False, path_type=Path),
        help="A folder that actions may write; the first is their working directory. By default none.",
    ),
    store_option,
    key_option,
    *_pack_options,
)


def _programs(names: tuple[str, ...]) -> tuple[str, ...]:
    if "none" not in names:
        return names or (_ALL_PROGRAMS,)
    if len(names) > 1:
        raise click.UsageError("--program none cannot be combined with other programs")
    return ()


def _cache(folder: str | None) -> Path | bool:
    return folder != "none" if folder in (None, "none") else Path(folder or "")


def bold() -> Callable[[str], str]:
    """Return a function that makes text bold on a terminal without NO_COLOR, and elsewhere returns it unchanged."""
    wanted = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    if sys.stdout is not None and sys.stdout.isatty() and wanted:
        return lambda text: click.style(text, bold=True)
    return str


@contextmanager
def report_pack_errors() -> Iterator[None]:
    """Print errors of the pack or the store, and end the verb with status 1 or 2."""
    from manglecp.pack import PackError

    with report_store_errors():
        try:
            yield
        except PackError as error:
            refuse(error)


def refuse_request(error: WireError, identity: Identity, *, as_json: bool) -> NoReturn:
    from manglecp.cli.tool_text import missing_fact_lines, wire_error_lines
    from manglecp.mangle import MangleError
    from manglecp.wire import encode

    if identity.trust == LOCAL and isinstance(error.__cause__, MangleError):
        click.echo(error.__cause__.render(), err=True)  # only the owner of the machine may see the rule
    if as_json:
        write_text(encode(error.answering(error.id or "shell")).decode() + "\n")
    else:
        for line in (*wire_error_lines(error), *missing_fact_lines(error)):
            click.echo(line, err=True)
    raise click.exceptions.Exit(1)
