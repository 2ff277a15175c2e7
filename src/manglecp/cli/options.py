"""Arguments and options that several verbs share, and their values."""

from __future__ import annotations

import getpass
import os
import shlex
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from manglecp import intent, invoke, pack, store
from manglecp.cli import AS_JSON
from manglecp.cli.completion import complete_intents
from manglecp.cli.files import EXISTING_FILE, FILE, option, option_group, read
from manglecp.cli.output import GeneratorProgress, suggestion

if TYPE_CHECKING:
    from manglecp.base.hash_chain import Head

_KEY_BYTES: Final = 32

store_option: Final = option(
    "--store URL",
    "location",
    envvar="MANGLECP_STORE",
    help="A path, sqlite:///PATH, postgresql://… or :memory:; by default $MANGLECP_STORE, or a file of this user.",
)
key_option: Final = option(
    "--store-key FILE",
    envvar="MANGLECP_STORE_KEY_FILE",
    type=EXISTING_FILE,
    callback=lambda _context, _parameter, file: _read_store_key(file),
    help="A file with the key that seals the values of runs: 32 bytes, or 64 hexadecimal digits.",
)


def json_option(help_text: str) -> Callable[[Any], Any]:
    """Return the option --json, which is the argument ``as_json`` of a verb. With it, errors are JSON too."""
    return option("--json", "as_json", is_flag=True, callback=_note_as_json, help=help_text)


def _note_as_json(context: click.Context, _parameter: click.Parameter, is_set: bool) -> bool:
    context.meta[AS_JSON] = is_set
    return is_set


document_option: Final = json_option("Print one JSON document.")
message_option: Final = json_option("Print the message of the protocol instead.")


def user_name() -> str:
    """Return the name of the user of this process."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # an account without a name
        return f"uid-{os.getuid()}"


tokens_option: Final = option(
    "--tokens FILE", type=EXISTING_FILE, envvar="MANGLECP_TOKENS", help="Hashes of the accepted tokens."
)
operator_option: Final = option(
    "--by NAME",
    "operator",
    envvar="MANGLECP_ACTOR",
    default=user_name,
    help="The name under which the decision is recorded; by default $MANGLECP_ACTOR or the user.",
)


def _read_store_key(file: Path | None) -> bytes | None:
    """Read the 32 bytes of the key, raw or as hexadecimal digits. Raises ``UsageError`` for other content."""
    if file is None:
        return None
    data = read(str(file))
    with suppress(ValueError):
        data = data if len(data) == _KEY_BYTES else bytes.fromhex(data.decode("ascii"))
    if len(data) != _KEY_BYTES:
        raise click.UsageError(f"{click.format_filename(file)} is not a key: 32 bytes, or 64 hexadecimal digits")
    return data


def open_existing_store(location: str | None, store_key: bytes | None = None) -> AbstractContextManager[store.Store]:
    """Open the store at a location (None: the file of this user) for a ``with`` block. Raises ``Unusable``."""
    path = store.parse_location(location)
    if isinstance(path, Path) and not path.exists():
        raise store.Unusable(f"there is no store {path}; `manglecp call` creates it, --store selects another")
    return closing(store.open_store(location, key=store_key))


def read_head(option: str, text: str) -> Head:
    """Parse ``N:HASH``, the head of a hash chain. ``option`` is the name of the option in the error."""
    from manglecp.base.hash_chain import Head  # imported late, because it loads msgspec

    number, colon, row_hash = text.partition(":")
    if not colon or not number.isascii() or not number.isdecimal() or len(number) > 18:  # 18 digits always fit 64 bits
        raise click.UsageError(f"{option} takes a number and a hash, such as 12:sha256:4f53…")
    return Head(int(number), row_hash)


URL_SCHEMES: Final = ("http://", "https://", "ws://", "wss://")


class PackFolder(click.Path):
    """The type of an existing folder; its content is checked when the pack is loaded.

    With ``or_url`` the verb also takes the URL of a server, and the error names the valid schemes.
    """

    def __init__(self, *, or_url: bool = False) -> None:
        super().__init__(file_okay=False, path_type=Path)
        self._or_url = or_url

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        path = Path(value)
        if not os.path.isdir(path):  # noqa: PTH112 - Path.is_dir raises for a folder without access
            self.fail(self._error_text(os.fspath(value), path), param, ctx)
        return path

    def _error_text(self, text: str, path: Path) -> str:
        name = click.format_filename(path)
        if "://" in text:
            names = f"{', '.join(URL_SCHEMES[:-1])} or {URL_SCHEMES[-1]}"
            return f"the address of a server begins with {names}." if self._or_url else "give a folder of this machine."
        if os.path.isfile(path):  # noqa: PTH113 - as above
            root = next((folder for folder in path.absolute().parents if (folder / "rules").is_dir()), None)
            hint = "" if root is None else f" Did you mean {click.format_filename(os.path.relpath(root))!r}?"
            return f"{name!r} is a file, and a pack is a folder.{hint}"
        similar = ""
        with suppress(OSError):
            similar = suggestion(path.name, [sibling.name for sibling in path.parent.iterdir() if sibling.is_dir()])
        return f"there is no folder {name!r}.{similar} `manglecp new {name}` creates an example pack."


PACK: Final = PackFolder()
LOCAL: Final = "local"  # the name and the trust level of the operator of this machine
_EXPLAIN_POLICY: Final = "explain_policy"  # the permission to see the policy in explanations
_ALL_PROGRAMS: Final = "*"  # the wildcard of the toolhost package for the programs that the pack names


def assignments(context: click.Context, parameter: click.Parameter, texts: tuple[str, ...]) -> dict[str, str]:
    """Parse ``NAME=VALUE`` texts. Raises ``BadParameter`` for another form, and for a name that is given twice."""
    values: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise click.BadParameter(f"{text!r} is not NAME=VALUE.", context, parameter)
        if name in values:
            raise click.BadParameter(f"{name} is given twice.", context, parameter)
        values[name] = value
    return values


def intent_option(help_text: str, *, required: bool = False) -> Callable[[Any], Any]:
    """Return the option --intent, with shell completion."""
    return option("--intent NAME", required=required, shell_complete=complete_intents, help=help_text)


pack_argument: Final = click.argument("folder", metavar="PACK", type=PACK)
tool_args: Final = option(
    "--arg KEY=VALUE", "args", multiple=True, callback=assignments, help="An argument of the tool; JSON, or else text."
)


@dataclass(frozen=True, slots=True)
class IntentOptions:
    """The parameters, facts and time of an intent."""

    params: dict[str, str]
    facts: tuple[str, ...]
    fact_files: tuple[str, ...]
    now: str | None

    def payload(self, intent: str) -> dict[str, Any]:
        """Return the members ``intent``, ``facts`` and ``eval_time`` of an ``intent_request`` payload."""
        from manglecp.cli.intent_request import decode_value, read_client_facts

        eval_time, facts = read_client_facts(self.facts, self.fact_files, self.now)
        params = {key: decode_value(text) for key, text in self.params.items()}
        return {"intent": {"name": intent, "params": params}, "facts": facts, "eval_time": eval_time}


intent_options: Final = option_group(
    "inputs",
    IntentOptions,
    option(
        "--param KEY=VALUE",
        "params",
        multiple=True,
        callback=assignments,
        help="A parameter of the intent: JSON, or text.",
    ),
    option("--fact FACT", "facts", multiple=True, help="A fact of the client, such as 'p(\"a\", 1)@[now]'."),
    option(
        "--facts FILE",
        "fact_files",
        multiple=True,
        type=FILE,
        help="A file of client facts: .mg, a JSON array, or a recorded intent_request.",
    ),
    option(
        "--now TIME",
        help="The evaluation time in RFC 3339; by default that of a recorded request, or the current time.",
    ),
)


@dataclass(frozen=True, slots=True)
class CallerOptions:
    """The name and the permissions of the caller."""

    caller_name: str | None
    permissions: tuple[str, ...]

    @property
    def identity(self) -> intent.Identity:
        """The caller: by default the operator of this machine, with the permission to see all explanations."""
        if self.caller_name is None:
            return intent.Identity(LOCAL, frozenset({_EXPLAIN_POLICY, *self.permissions}), LOCAL)
        if self.caller_name == intent.ANONYMOUS.name:
            if self.permissions:
                raise click.UsageError("An anonymous caller has no permissions: leave --permission out.")
            return intent.ANONYMOUS
        return intent.Identity(self.caller_name, frozenset(self.permissions), "user")


CALLER_OPTIONS: Final = (
    option(
        "--as NAME",
        "caller_name",
        help="The identity of the caller; by default 'local', with the permission explain_policy.",
    ),
    option("--permission P", "permissions", multiple=True, help="A permission of the caller."),
)
caller_options: Final = option_group("caller", CallerOptions, *CALLER_OPTIONS)
degrade_option: Final = option(
    "--degrade", is_flag=True, help="Start although this machine lacks sandbox mechanisms, and report the missing ones."
)
program_option: Final = option(
    "--program NAME",
    "programs",
    multiple=True,
    callback=lambda _context, _parameter, names: _parse_programs(names),
    help="A program that the pack may start in its sandbox, if the pack names it too. By default all installed "
    "programs that it names; 'none' for none.",
)
cache_option: Final = option(
    "--facts-cache DIR|none",
    "cache",
    callback=lambda _context, _parameter, folder: _parse_cache(folder),
    help="The cache folder of generated facts; by default in your cache directory.",
)
set_option: Final = option(
    "--set NAME=VALUE", "pack_params", multiple=True, callback=assignments, help="A parameter of the pack."
)


def _parse_destinations(context: click.Context, parameter: click.Parameter, texts: tuple[str, ...]) -> tuple[str, ...]:
    from manglecp.base.destination import canonical_destinations  # imported late: the option is rare

    try:
        return canonical_destinations(texts)
    except ValueError as error:
        raise click.BadParameter(f"{error}.", context, parameter) from None


private_option: Final = option(
    "--private HOST:PORT",
    multiple=True,
    callback=_parse_destinations,
    help="A destination of the pack whose name may have a private address.",
)


@dataclass(frozen=True, slots=True)
class RuntimeOptions:
    """The options of a verb that loads a pack; only verbs that call actions have a workspace and a store."""

    pack_params: dict[str, str]
    programs: tuple[str, ...]
    cache: Path | bool  # a folder; True: the cache folder of the user; False: no cache
    degrade: bool
    allow_weaker: bool = False
    workspace: tuple[Path, ...] = ()
    location: str | None = None  # the store; None for the file of this user
    store_key: bytes | None = field(default=None, repr=False)
    private: tuple[str, ...] = ()

    @property
    def sandbox(self) -> pack.SandboxPolicy:
        return pack.SandboxPolicy(degrade=self.degrade, allow_weaker=self.allow_weaker, private=self.private)

    def for_pack(self, folder: Path) -> invoke.PackOptions:
        progress = GeneratorProgress()
        return invoke.PackOptions(
            folder, self.pack_params, self.workspace, self.programs, self.sandbox, self.cache, on_progress=progress
        )

    def open_store(self) -> store.Store:
        return store.open_store(self.location, key=self.store_key)

    @property
    def store_words(self) -> str:
        """The option ``--store`` for a printed command, after a space; without the password of a URL."""
        place = store.parse_location(self.location) or self.location
        return "" if self.location is None else f" --store {shlex.quote(str(place))}"


PACK_OPTIONS: Final = (
    set_option,
    degrade_option,
    option(
        "--allow-weaker",
        is_flag=True,
        help="Use the weaker sandbox, none or standard, that the pack sets in its [sandbox].",
    ),
    program_option,
    cache_option,
    private_option,
)
RUNTIME_OPTIONS: Final = (
    option(
        "--workspace DIR",
        multiple=True,
        type=click.Path(exists=True, file_okay=False, path_type=Path),
        help="A folder that actions may write; the first is their working directory. By default none.",
    ),
    store_option,
    key_option,
    *PACK_OPTIONS,
)
runtime_options: Final = option_group("runtime", RuntimeOptions, *RUNTIME_OPTIONS)


def _parse_programs(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the programs that may be started: without the option all that the pack names, for ``none`` no program."""
    if "none" not in names:
        return names or (_ALL_PROGRAMS,)
    if len(names) > 1:
        raise click.UsageError("--program none cannot be combined with other programs")
    return ()


def _parse_cache(folder: str | None) -> Path | bool:
    """Return the value of ``RuntimeOptions.cache``: True without the option, False for ``none``, else the folder."""
    return folder is None if folder in (None, "none") else Path(folder)


def bold() -> Callable[[str], str]:
    """Return a function that makes text bold on a terminal without NO_COLOR, and elsewhere returns it unchanged."""
    is_styling_allowed = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    if sys.stdout is not None and sys.stdout.isatty() and is_styling_allowed:
        return lambda text: click.style(text, bold=True)
    return str
