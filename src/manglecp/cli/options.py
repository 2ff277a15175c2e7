"""Arguments and options that several verbs share, and their values."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

import click

from manglecp.cli.files import FILE, combine
from manglecp.cli.output import GeneratorProgress, json_text, suggestion, write_text
from manglecp.cli.stores import refusing, store_key, store_options

if TYPE_CHECKING:
    from manglecp.intent import Identity
    from manglecp.invoke import PackOptions
    from manglecp.pack import Pack, PackError, SandboxPolicy
    from manglecp.store import Store
    from manglecp.wire import WireError


_ADDRESSES: Final = "http://, https://, ws:// or wss://"


class PackFolder(click.Path):
    """A folder that exists. Whether it is a pack is checked where it is loaded."""

    def __init__(self, *, or_url: bool = False) -> None:
        super().__init__(file_okay=False, path_type=Path)
        self._or_url = or_url

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        path = Path(value)
        if not os.path.isdir(path):  # noqa: PTH112 - a folder that may not be looked at is none
            self.fail(self._refusal(os.fspath(value), path), param, ctx)
        return path

    def _refusal(self, given: str, path: Path) -> str:
        shown = click.format_filename(path)
        if "://" in given:
            server = f"the address of a server begins with {_ADDRESSES}."
            return server if self._or_url else "give a folder of this machine."
        if os.path.isfile(path):  # noqa: PTH113 - as above
            holder = next((str(one) for one in path.absolute().parents if (one / "rules").is_dir()), None)
            pack = "" if holder is None else f" Did you mean {click.format_filename(os.path.relpath(holder))!r}?"
            return f"{shown!r} is a file, and a pack is a folder.{pack}"
        return f"there is no folder {shown!r}.{_sibling(path)} `manglecp new {shown}` writes a pack to begin with."


def _sibling(path: Path) -> str:
    try:
        others = [one.name for one in path.parent.iterdir() if one.is_dir()]
    except OSError:
        return ""
    return suggestion(path.name, others)


PACK: Final = PackFolder()
LOCAL: Final = "local"
_EXPLAIN_POLICY: Final = "explain_policy"
_EVERY: Final = "*"  # each program that the pack names, as toolhost spells it


def assignments(context: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    """Parse ``NAME=VALUE``, each name once."""
    found: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise click.BadParameter(f"{text!r} is not NAME=VALUE.", context, parameter)
        if name in found:
            raise click.BadParameter(f"{name} is given twice.", context, parameter)
        found[name] = value
    return found


pack_argument: Final = click.argument("folder", metavar="PACK", type=PACK)

statement_options: Final = combine(
    click.option(
        "--param",
        "params",
        metavar="KEY=VALUE",
        multiple=True,
        callback=assignments,
        help="A parameter of the intent; JSON, or else text.",
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
        help="More of them: .mg, a JSON array of facts, or a recorded intent_request.",
    ),
    click.option(
        "--now",
        metavar="TIME",
        help="The evaluation time in RFC 3339; by default that of a recorded request, or the clock.",
    ),
)
who_options: Final = combine(
    click.option("--as", "who", metavar="NAME", help="Who asks; by default 'local', who may have policy explained."),
    click.option("--permission", "permissions", metavar="P", multiple=True, help="A permission of whoever asks."),
)
degrade_option: Final = click.option(
    "--degrade", is_flag=True, help="Also on a machine that cannot lock the pack's Python files in completely."
)
program_option: Final = click.option(
    "--program",
    "programs",
    metavar="NAME",
    multiple=True,
    callback=lambda _context, _parameter, given: _programs(given),
    help="A program that the pack may start, if it names it too: locked in as its hosts are. By default each that it "
    "names and that is there; 'none' for none.",
)
cache_option: Final = click.option(
    "--facts-cache",
    "cache",
    metavar="DIR|none",
    callback=lambda _context, _parameter, given: _cache(given),
    help="Where the pack keeps what it found out; by default in your cache.",
)
_pack_options: Final = combine(
    click.option(
        "--set", "settings", metavar="NAME=VALUE", multiple=True, callback=assignments, help="A parameter of the pack."
    ),
    degrade_option,
    click.option(
        "--allow-weaker",
        is_flag=True,
        help="Lock the pack's Python files in only as far as it wishes: none or standard of its [sandbox].",
    ),
    program_option,
    cache_option,
)


@dataclass(frozen=True, slots=True)
class PackFlags:
    """The options of a verb that loads a pack. Turned into :class:`PackOptions` when a pack is loaded: that is slow."""

    params: dict[str, str]
    programs: tuple[str, ...]
    cache: Path | bool
    degrade: bool
    allow_weaker: bool = False

    @property
    def sandbox(self) -> SandboxPolicy:
        from manglecp.pack import SandboxPolicy

        return SandboxPolicy(degrade=self.degrade, allow_weaker=self.allow_weaker)

    def of(self, folder: Path, workspace: tuple[Path, ...] = ()) -> PackOptions:
        from manglecp.invoke import PackOptions

        return PackOptions(
            folder, self.params, workspace, self.programs, self.sandbox, self.cache, on_progress=GeneratorProgress()
        )


def pack_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """``pack``, from --set, --degrade, --allow-weaker, --program and --facts-cache."""

    @wraps(function)
    def with_pack(
        *args: Any,
        settings: dict[str, str],
        programs: tuple[str, ...],
        cache: Path | bool,
        degrade: bool,
        allow_weaker: bool,
        **more: Any,
    ) -> Any:
        return function(*args, pack=PackFlags(settings, programs, cache, degrade, allow_weaker), **more)

    return _pack_options(with_pack)


def _programs(given: tuple[str, ...]) -> tuple[str, ...]:
    if "none" not in given:
        return given or (_EVERY,)
    if len(given) > 1:
        raise click.UsageError("--program none goes with no other program")
    return ()


def _cache(given: str | None) -> Path | bool:
    return given != "none" if given in (None, "none") else Path(given or "")


def identity_of(who: str | None, permissions: tuple[str, ...]) -> Identity:
    """Return the caller: by default the owner of the machine, to whom everything is disclosed."""
    from manglecp.intent import ANONYMOUS, Identity

    if who is None:
        return Identity(LOCAL, frozenset({_EXPLAIN_POLICY, *permissions}), LOCAL)
    if who == ANONYMOUS.name:
        if permissions:
            raise click.UsageError("Nobody in particular has no permissions: leave --permission out.")
        return ANONYMOUS
    return Identity(who, frozenset(permissions), "user")


def message_of(kind: str, payload: dict[str, Any], pack: Pack) -> Any:
    """Build a message and decode it as the server does, with all of its checks."""
    from manglecp.wire import receive
    from manglecp.wire.messages import VERSION

    envelope = {"type": kind, "id": "shell", "manglecp": VERSION, "payload": payload}
    settings = pack.settings
    return receive(
        json_text(envelope).encode(errors="surrogatepass"),
        settings.limits.max_message_bytes,
        structured_facts=settings.structured_facts,
    )


def bold() -> Callable[[str], str]:
    """Return a function that makes text bold on a terminal, and leaves it as it is elsewhere or with NO_COLOR."""
    wanted = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    if sys.stdout is not None and sys.stdout.isatty() and wanted:
        return lambda text: click.style(text, bold=True)
    return str


def refuse_pack(error: PackError) -> NoReturn:
    """Print every diagnostic of the pack on standard error, and end the verb with status 1."""
    for problem in error.diagnostics:
        click.echo(problem.render(), err=True)
    raise click.exceptions.Exit(1)


@contextmanager
def refusing_packs() -> Iterator[None]:
    """End the verb with what the pack or the store refuses."""
    from manglecp.pack import PackError

    with refusing():
        try:
            yield
        except PackError as error:
            refuse_pack(error)


def refuse_request(error: WireError, identity: Identity, *, as_json: bool) -> NoReturn:
    from manglecp.cli.tool_text import refusal, what_to_state
    from manglecp.mangle import MangleError
    from manglecp.wire import encode

    if identity.trust == LOCAL and isinstance(error.__cause__, MangleError):
        click.echo(error.__cause__.render(), err=True)  # the owner of the machine may see which rule it was
    if as_json:
        write_text(encode(error.answering(error.id or "shell")).decode() + "\n")
    else:
        for line in (*refusal(error), *what_to_state(error)):
            click.echo(line, err=True)
    raise click.exceptions.Exit(1)


@dataclass(frozen=True, slots=True)
class RuntimeOptions:
    """The value of :func:`runtime_options`. ``where`` and ``key`` are those of the store."""

    where: str | None
    key: bytes | None = field(repr=False)
    pack: PackFlags
    workspace: tuple[Path, ...]

    def of_pack(self, folder: Path) -> PackOptions:
        return self.pack.of(folder, self.workspace)

    def open_store(self) -> Store:
        from manglecp.store import open_store

        return open_store(self.where, key=self.key)


_workspace: Final = click.option(
    "--workspace",
    metavar="DIR",
    multiple=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="A folder that actions may write; they work in the first. By default there is none.",
)


def runtime_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``runtime``, from --workspace, --store, --store-key and :data:`pack_options`."""

    @wraps(function)
    def placed(
        *args: Any,
        workspace: tuple[Path, ...],
        where: str | None,
        key_file: Path | None,
        pack: PackFlags,
        **more: Any,
    ) -> Any:
        runtime = RuntimeOptions(where, store_key(key_file), pack, workspace)
        return function(*args, runtime=runtime, **more)

    return _workspace(store_options(pack_options(placed)))
