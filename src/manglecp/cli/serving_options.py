"""What ``serve`` and ``dev`` have in common: where to listen, who may ask, and how it is logged."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Callable, Iterator
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypedDict

import click

from manglecp.cli.asking import refuse_pack
from manglecp.cli.places import Place
from manglecp.cli.stores import refusing
from manglecp.server import Refused

if TYPE_CHECKING:
    import socket

    from manglecp.server import Network, ServerSettings, Source, Who

__all__ = [
    "DEFAULT",
    "Limits",
    "address",
    "answering",
    "bound_at",
    "limit_options",
    "log_options",
    "not_here",
    "settings_of",
    "shared_figures",
    "source_of",
    "started",
    "started_in",
    "status_of",
    "who_of",
]

_HELP: Final = {
    errno.EADDRINUSE: "; another process has this port. Take another with --http HOST:PORT (port 0 is a free one)",
    errno.EACCES: "; ports below 1024 are for administrators. Take a higher one with --http HOST:PORT",
    errno.EADDRNOTAVAIL: "; it is no address of this machine. 127.0.0.1 is, and 0.0.0.0 stands for all of them",
}
EXTRA: Final = "manglecp[server]"
DEFAULT: Final = ("127.0.0.1", 8_000)
FILE: Final = click.Path(exists=True, dir_okay=False, path_type=Path)


def address(context: click.Context, parameter: click.Parameter, given: str | None) -> tuple[str, int] | None:
    """``HOST:PORT``, ``[::1]:PORT`` or ``:PORT`` of this machine."""
    if given is None:
        return None
    host, colon, port = given.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise click.BadParameter(f"{given!r} is not HOST:PORT, such as 127.0.0.1:8000.", context, parameter)
    host = host.removeprefix("[").removesuffix("]") if host.startswith("[") else host
    return host or DEFAULT[0], int(port)


def _elsewhere(context: click.Context, _parameter: click.Parameter, given: str | None) -> None:
    if given is not None:
        raise click.UsageError("host and port are one option here: say --http HOST:PORT", context)


not_here: Final = click.option("--port", "--host", "--bind", hidden=True, expose_value=False, callback=_elsewhere)
"""What the address is called by other servers."""


def bound_at(host: str, port: int) -> socket.socket:
    """A socket that listens there; if it cannot, whoever reads why knows what to do."""
    import socket

    from manglecp.server import bind

    try:
        return bind(host, port)
    except OSError as error:
        shown = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        what = _HELP.get(error.errno or 0, "")
        if isinstance(error, socket.gaierror):
            what = "; it has to be a name or an address of this machine"
        raise click.ClickException(f"cannot listen at {shown}: {error.strerror}{what}") from None


def _format() -> str:
    return "text" if sys.stderr is not None and sys.stderr.isatty() else "json"


def log_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """``log_level`` and ``log_format``."""
    level = click.option(
        "--log-level",
        type=click.Choice(["debug", "info", "warning", "error"]),
        default="info",
        envvar="MANGLECP_LOG_LEVEL",
        help="What is logged to standard error; info by default.",
    )
    form = click.option(
        "--log-format",
        type=click.Choice(["json", "text"]),
        default=_format,
        envvar="MANGLECP_LOG_FORMAT",
        help="One JSON object a line, or text for people, which is the default at a terminal.",
    )
    return level(form(function))


def source_of(folder: Path, place: Place) -> Source:
    """What a server is made of: the folder of the pack, and the options of :func:`place_options`."""
    from manglecp.server import Source

    return Source(folder=folder, **place)


def who_of(tokens: Path | None, jwt: dict[str, object] | None) -> Who:
    """Who may ask: anybody where neither is given. Bad tokens or keys are an error of usage."""
    from manglecp.server import Who

    if tokens is None and jwt is None:
        return Who()
    from manglecp.server import TokensError

    try:
        return Who.of(tokens, jwt)
    except (TokensError, ValueError) as error:
        raise click.UsageError(str(error)) from None


class Limits(TypedDict):
    """What :func:`limit_options` hands to a verb; :func:`settings_of` reads it."""

    config: Path | None
    proxies: tuple[Network, ...]
    drain_seconds: int | None


def limit_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """``limits``, from --config and what may be said without it."""

    @wraps(function)
    def limited(
        *args: Any, config: Path | None, proxies: tuple[Network, ...], drain_seconds: int | None, **more: Any
    ) -> Any:
        limits = Limits(config=config, proxies=proxies, drain_seconds=drain_seconds)
        return function(*args, limits=limits, **more)

    config = click.option("--config", metavar="FILE", type=FILE, help="Limits and times of the server: server.toml.")
    proxy = click.option(
        "--trusted-proxy",
        "proxies",
        metavar="ADDRESS|NET",
        multiple=True,
        callback=_networks,
        help="A proxy that is believed when it says where a request came from (X-Forwarded-For and -Proto).",
    )
    drain = click.option(
        "--drain-seconds",
        metavar="SECONDS",
        type=click.IntRange(1, 3_600),
        help="How long what is under way has to end after SIGTERM; 30 by default.",
    )
    return config(proxy(drain(limited)))


def _networks(context: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> tuple[Network, ...]:
    if not given:
        return ()
    from manglecp.server import network_of

    try:
        return tuple(map(network_of, given))
    except ValueError as error:
        raise click.BadParameter(f"{error}.", context, parameter) from None


def settings_of(limits: Limits, *, processes: int = 1) -> ServerSettings:
    """What holds for each of so many processes."""
    from dataclasses import replace

    from manglecp.server import ServerSettings

    settings = ServerSettings()
    if limits["config"] is not None:
        from manglecp.server import load_server_settings

        settings = load_server_settings(limits["config"])
    if limits["drain_seconds"] is not None:
        settings = replace(settings, grace=float(limits["drain_seconds"]))
    trusted = (*settings.trusted_proxies, *limits["proxies"])
    return replace(settings, trusted_proxies=trusted).of_one_of(processes)


def started(url: str) -> None:
    """Say on standard error where the server can be reached."""
    click.echo(f"serving at {url}", err=True)


def started_in(log_format: str) -> Callable[[str], None]:
    """A line among lines, and a record among records, at every level: whoever reads logs reads all of them.

    Somebody at a terminal gets the line.
    """
    at_terminal = sys.stderr is not None and sys.stderr.isatty()
    return _logged if log_format == "json" and not at_terminal else started


def _logged(url: str) -> None:
    import logging

    at = ("manglecp.server", logging.INFO, "", 0, "serving at %s", (url,), None)
    logging.getLogger("manglecp.server").handle(logging.getLogger().makeRecord(*at, extra={"url": url}))


def answering(work: Callable[[], None]) -> None:
    """Whatever keeps the server from serving is told to whoever started it."""
    from manglecp.pack import PackError

    with refusing():
        try:
            work()
        except PackError as error:
            refuse_pack(error)
        except Refused as error:
            raise click.UsageError(str(error)) from None
        except ModuleNotFoundError as error:
            raise click.ClickException(f"{error.name} is missing; install {EXTRA}") from None


def status_of(work: Callable[[], None]) -> int:
    """Of a process that was forked: what went wrong is shown, and becomes its exit status."""
    try:
        work()
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    return 0


@contextlib.contextmanager
def shared_figures() -> Iterator[Callable[[int], None]]:
    """Processes that serve one address add up their figures in a folder; what is called when one has ended."""
    import tempfile

    variable = "PROMETHEUS_MULTIPROC_DIR"
    with tempfile.TemporaryDirectory(prefix="manglecp-metrics-") as folder:
        os.environ[variable] = folder

        def forget(pid: int) -> None:
            for left in Path(folder).glob(f"gauge_live*_{pid}.db"):
                left.unlink(missing_ok=True)

        try:
            yield forget
        finally:
            del os.environ[variable]
