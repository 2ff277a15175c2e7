"""``manglecp serve``: a pack behind HTTP and WebSocket, or on the standard streams."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from manglecp.base.extras import missing_extra
from manglecp.cli import VerbError
from manglecp.cli.files import group
from manglecp.cli.options import RuntimeOptions, pack_argument, report_pack_errors, runtime_options
from manglecp.server import ListenOptions, ServeError, check_exposure

if TYPE_CHECKING:
    import socket

    from manglecp.server import AuthConfig, Network, ServerSettings


_REMEDIES: Final = {
    errno.EADDRINUSE: "; another process uses this port. Choose another with --http HOST:PORT (port 0 is a free one)",
    errno.EACCES: "; ports below 1024 are for administrators. Choose a higher one with --http HOST:PORT",
    errno.EADDRNOTAVAIL: "; this machine does not have this address. Use 127.0.0.1, or 0.0.0.0 for all addresses",
}
DEFAULT: Final = ("127.0.0.1", 8_000)
FILE: Final = click.Path(exists=True, dir_okay=False, path_type=Path)


def address(context: click.Context, parameter: click.Parameter, text: str | None) -> tuple[str, int] | None:
    if text is None:
        return None
    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise click.BadParameter(f"{text!r} is not HOST:PORT, such as 127.0.0.1:8000.", context, parameter)
    host = host.removeprefix("[").removesuffix("]") if host.startswith("[") else host
    return host or DEFAULT[0], int(port)


def _refuse_foreign(context: click.Context, _parameter: click.Parameter, text: str | None) -> None:
    if text is not None:
        raise click.UsageError("host and port are one option: use --http HOST:PORT", context)


# Names of the option in other servers; the error names --http.
foreign_address_options: Final = click.option(
    "--port", "--host", "--bind", hidden=True, expose_value=False, callback=_refuse_foreign
)


def bind_socket(host: str, port: int) -> socket.socket:
    """Return a listening socket. Raises ``ClickException`` with a remedy if the address cannot be bound."""
    import socket

    from manglecp.server import bind

    try:
        return bind(host, port)
    except OSError as error:
        shown = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        remedy = _REMEDIES.get(error.errno or 0, "")
        if isinstance(error, socket.gaierror):
            remedy = "; use a name or an address of this machine"
        raise click.ClickException(f"cannot listen at {shown}: {error.strerror}{remedy}") from None


class LogOptions(NamedTuple):
    log_level: str
    log_format: str

    def configure(self) -> None:
        from manglecp.server import configure_logging

        configure_logging(self.log_level, as_json=self.log_format == "json")


log_options: Final = group(
    "log",
    LogOptions,
    click.option(
        "--log-level",
        type=click.Choice(["debug", "info", "warning", "error"]),
        default="info",
        envvar="MANGLECP_LOG_LEVEL",
        help="The lowest level that is logged to standard error; info by default.",
    ),
    click.option(
        "--log-format",
        type=click.Choice(["json", "text"]),
        default=lambda: "text" if sys.stderr is not None and sys.stderr.isatty() else "json",
        envvar="MANGLECP_LOG_FORMAT",
        help="One JSON object per line, or text, which is the default at a terminal.",
    ),
)


class AuthOptions(NamedTuple):
    """The accepted credentials: a file of tokens, or the settings of access tokens."""

    tokens: Path | None
    jwt: dict[str, Any] | None

    def load(self) -> AuthConfig:
        """Return the authentication of the server. Raises ``UsageError`` for invalid tokens or keys."""
        from manglecp.server import AuthConfig

        if self == (None, None):
            return AuthConfig()
        from manglecp.server import TokensError

        try:
            return AuthConfig.of(self.tokens, self.jwt)
        except (TokensError, ValueError) as error:
            raise click.UsageError(str(error)) from None


def _auth(tokens: Path | None, algorithms: tuple[str, ...], **jwt: str | None) -> AuthOptions:
    if not any(jwt.values()) and not algorithms:
        return AuthOptions(tokens, None)
    if not all(jwt.values()):
        raise click.UsageError("Access tokens need --jwt-issuer, --jwt-audience, --jwt-keys and --token-url.")
    return AuthOptions(tokens, {**jwt, **({"algorithms": algorithms} if algorithms else {})})


auth_options: Final = group(
    "auth",
    _auth,
    click.option(
        "--tokens", metavar="FILE", type=FILE, envvar="MANGLECP_TOKENS", help="Hashes of the accepted tokens."
    ),
    click.option("--jwt-issuer", "issuer", metavar="URL", help="The issuer of the accepted access tokens."),
    click.option(
        "--jwt-audience", "audience", metavar="URL", help="The audience of the accepted access tokens: this server."
    ),
    click.option("--jwt-keys", "keys", metavar="URL", help="The address of the issuer's keys (JWKS)."),
    click.option("--token-url", metavar="URL", help="The address where clients get access tokens."),
    click.option("--jwt-algorithm", "algorithms", metavar="NAME", multiple=True, help="RS256 and ES256 by default."),
)


def _networks(context: click.Context, parameter: click.Parameter, texts: tuple[str, ...]) -> tuple[Network, ...]:
    if not texts:
        return ()
    from manglecp.server import parse_network

    try:
        return tuple(map(parse_network, texts))
    except ValueError as error:
        raise click.BadParameter(f"{error}.", context, parameter) from None


class LimitOptions(NamedTuple):
    """``--config``, and the options that override it."""

    config: Path | None
    proxies: tuple[Network, ...]
    drain_seconds: int | None

    def settings(self, *, processes: int = 1) -> ServerSettings:
        from dataclasses import replace

        from manglecp.server import ServerSettings, load_server_settings

        settings = ServerSettings() if self.config is None else load_server_settings(self.config)
        if self.drain_seconds is not None:
            settings = replace(settings, grace=float(self.drain_seconds))
        trusted = (*settings.trusted_proxies, *self.proxies)
        return replace(settings, trusted_proxies=trusted).divide_rates(processes)


limit_options: Final = group(
    "limits",
    LimitOptions,
    click.option("--config", metavar="FILE", type=FILE, help="The limits and timeouts of the server: server.toml."),
    click.option(
        "--trusted-proxy",
        "proxies",
        metavar="ADDRESS|NET",
        multiple=True,
        callback=_networks,
        help="A proxy whose X-Forwarded-For and X-Forwarded-Proto headers are trusted.",
    ),
    click.option(
        "--drain-seconds",
        metavar="SECONDS",
        type=click.IntRange(1, 3_600),
        help="The time limit of the drain after SIGTERM; 30 by default.",
    ),
)


def announce(url: str) -> None:
    click.echo(f"serving at {url}", err=True)


def announce_callback(log_format: str) -> Callable[[str], None]:
    """Return the callback that announces the address: as text, or as a JSON record if logs are JSON."""
    at_terminal = sys.stderr is not None and sys.stderr.isatty()
    return _log_address if log_format == "json" and not at_terminal else announce


def _log_address(url: str) -> None:
    import logging

    at = ("manglecp.server", logging.INFO, "", 0, "serving at %s", (url,), None)
    logging.getLogger("manglecp.server").handle(logging.getLogger().makeRecord(*at, extra={"url": url}))


def report_failures(work: Callable[[], None]) -> None:
    with report_pack_errors():
        try:
            work()
        except ServeError as error:
            raise click.UsageError(str(error)) from None
        except ModuleNotFoundError as error:
            raise click.ClickException(missing_extra(error.name, "server")) from None


def exit_status(work: Callable[[], None]) -> int:
    """Run ``work`` in a forked process: print an error, and return the exit status."""
    try:
        work()
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    return 0


@contextlib.contextmanager
def shared_metrics() -> Iterator[Callable[[int], None]]:
    """Share metrics between processes in a folder. Yield a function to call with the pid of a process that ended."""
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


@click.command("serve")
@pack_argument
@click.option("--http", "at", metavar="HOST:PORT", callback=address, help="The address; 127.0.0.1:8000 by default.")
@foreign_address_options
@click.option("--stdio", is_flag=True, help="Serve the parent process on the standard streams instead.")
@click.option("--workers", metavar="N", type=click.IntRange(1, 256), default=1, help="The number of server processes.")
@click.option("--host-name", "hosts", metavar="NAME", multiple=True, help="A name of this server in Host headers.")
@click.option("--origin", "origins", metavar="URL", multiple=True, help="An origin whose web pages may send requests.")
@click.option("--tls-cert", "certificate", metavar="FILE", type=FILE, help="The certificate, with its chain.")
@click.option("--tls-key", metavar="FILE", type=FILE, help="The key of the certificate, if it is in another file.")
@auth_options
@click.option("--open-demo", is_flag=True, help="Accept all clients without authentication.")
@click.option("--max-age", metavar="SECONDS", type=click.IntRange(0), help="The max-age of the manifest.")
@limit_options
@log_options
@runtime_options
def command(
    folder: Path,
    at: tuple[str, int] | None,
    stdio: bool,
    workers: int,
    hosts: tuple[str, ...],
    origins: tuple[str, ...],
    certificate: Path | None,
    tls_key: Path | None,
    auth: AuthOptions,
    open_demo: bool,
    max_age: int | None,
    limits: LimitOptions,
    log: LogOptions,
    runtime: RuntimeOptions,
) -> None:
    """Serve PACK: HTTP and WebSocket (at /ws) on one address, or the standard streams.

    An address that other machines can reach needs --tokens, --jwt-issuer or --open-demo.

    SIGTERM and Ctrl-C drain the server: no new requests, current ones are finished; a second signal exits immediately.
    SIGHUP reloads the pack and the tokens; after an error the previous ones stay in service.
    """
    if stdio and (at is not None or workers > 1):
        raise click.UsageError("--stdio has one client and no address: leave --http and --workers out.")
    if workers > 1 and runtime.where == ":memory:":
        raise click.UsageError("Several processes need a shared store; :memory: is not shared.")
    if tls_key is not None and certificate is None:
        raise click.UsageError("--tls-key needs --tls-cert.")
    listening = ListenOptions(
        host=(at or DEFAULT)[0],
        port=(at or DEFAULT)[1],
        hosts=hosts,
        origins=origins,
        certificate=certificate,
        key=tls_key,
        open_demo=open_demo,
        max_age=max_age,
    )
    if stdio:
        report_failures(lambda: _streams(folder, runtime, auth, limits, log))
    else:
        log.configure()
        report_failures(lambda: _listen(folder, runtime, listening, workers, auth, limits, log))


def _listen(
    folder: Path,
    runtime: RuntimeOptions,
    listening: ListenOptions,
    workers: int,
    auth: AuthOptions,
    limits: LimitOptions,
    log: LogOptions,
) -> None:
    check_exposure(listening, auth=auth != (None, None))
    if listening.certificate is not None:
        from manglecp.server import Tls

        Tls(listening.certificate, listening.key or listening.certificate).context()  # raises for an invalid file
    bound = bind_socket(listening.host, listening.port)

    def serve() -> None:
        import uvloop

        from manglecp.server import serve_http

        pack, config, settings = runtime.of_pack(folder), auth.load(), limits.settings(processes=workers)
        started = announce_callback(log.log_format)
        uvloop.run(serve_http(pack, runtime.open_store, listening, config, bound, settings=settings, started=started))

    if workers == 1:
        with bound:
            serve()
        return
    from manglecp.server import run_workers

    with bound, shared_metrics() as forget:
        raise click.exceptions.Exit(run_workers(workers, lambda: exit_status(lambda: report_failures(serve)), forget))


def _streams(folder: Path, runtime: RuntimeOptions, auth: AuthOptions, limits: LimitOptions, log: LogOptions) -> None:
    """Serve the standard streams. The manifest is written before the engine is loaded."""
    from manglecp.pack import outline_manifest, read_outline
    from manglecp.server import Streams, describe_auth
    from manglecp.wire import encode

    if sys.stdin is None or sys.stdout is None:  # closed by the parent process
        raise click.UsageError("--stdio needs standard input and output, and one of them is closed.")
    outline, config = read_outline(folder), auth.load()
    streams = Streams.claim()
    manifest = encode(outline_manifest(outline, "booting", None, describe_auth(config.auth)))
    try:
        streams.write(manifest)
    except BrokenPipeError:
        raise click.exceptions.Exit(1) from None  # the parent process is gone
    except OSError as error:
        raise VerbError(f"cannot write the manifest: {error.strerror}") from None

    log.configure()

    import asyncio

    from manglecp.server import serve_streams

    asyncio.run(
        serve_streams(
            runtime.of_pack(folder),
            runtime.open_store,
            config,
            streams,
            outline=outline,
            sent_manifest=manifest,
            settings=limits.settings(),
        )
    )
