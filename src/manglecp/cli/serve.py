"""``manglecp serve``: a pack behind HTTP and WebSocket, or on the standard streams."""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from manglecp import pack, server, wire
from manglecp.cli import VerbError
from manglecp.cli.files import EXISTING_FILE, combine, option, option_group
from manglecp.cli.options import RuntimeOptions, pack_argument, runtime_options, tokens_option

if TYPE_CHECKING:
    import socket

_BIND_REMEDIES: Final = {
    errno.EADDRINUSE: "; another process uses this port. Choose another with --http HOST:PORT (port 0 is a free one)",
    errno.EACCES: "; ports below 1024 are for administrators. Choose a higher one with --http HOST:PORT",
    errno.EADDRNOTAVAIL: "; this machine does not have this address. Use 127.0.0.1, or 0.0.0.0 for all addresses",
}
DEFAULT_ADDRESS: Final = ("127.0.0.1", 8_000)


def _parse_address(context: click.Context, parameter: click.Parameter, text: str | None) -> tuple[str, int] | None:
    """Parse ``HOST:PORT``, such as ``[::1]:8000``; ``:8000`` has the default host."""
    if text is None:
        return None
    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise click.BadParameter(f"{text!r} is not HOST:PORT, such as 127.0.0.1:8000.", context, parameter)
    host = host.removeprefix("[").removesuffix("]") if host.startswith("[") else host
    return host or DEFAULT_ADDRESS[0], int(port)


def _refuse_host_and_port(context: click.Context, _parameter: click.Parameter, text: str | None) -> None:
    if text is not None:
        raise click.UsageError("host and port are one option: use --http HOST:PORT", context)


address_options: Final = combine(
    option("--http HOST:PORT", "address", callback=_parse_address, help="The address; 127.0.0.1:8000 by default."),
    # Users of other servers try these options: the error names --http.
    click.option("--port", "--host", "--bind", hidden=True, expose_value=False, callback=_refuse_host_and_port),
)


def bind_socket(host: str, port: int) -> socket.socket:
    """Return a listening socket. Raises ``ClickException`` with a remedy if the address cannot be used."""
    import socket

    try:
        return server.bind(host, port)
    except OSError as error:
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        remedy = _BIND_REMEDIES.get(error.errno or 0, "")
        if isinstance(error, socket.gaierror):
            remedy = "; use a name or an address of this machine"
        raise click.ClickException(f"cannot listen at {address}: {error.strerror}{remedy}") from None


class AuthOptions(NamedTuple):
    """The accepted credentials: a file of tokens, and access tokens; no authentication if both are None."""

    tokens: Path | None
    jwt: dict[str, Any] | None  # the arguments of AuthConfig.of for access tokens

    def load(self) -> server.AuthConfig:
        """Return the authentication of the server. Raises ``UsageError`` for invalid tokens or keys."""
        if self.tokens is None and self.jwt is None:
            return server.AuthConfig()
        try:
            return server.AuthConfig.of(self.tokens, self.jwt)
        except (server.TokensError, ValueError) as error:
            raise click.UsageError(str(error)) from None


def _make_auth_options(tokens: Path | None, algorithms: tuple[str, ...], **jwt: str | None) -> AuthOptions:
    """Return the options. Of the access token options in ``jwt``, all or none are needed. Raises ``UsageError``."""
    if not any(jwt.values()) and not algorithms:
        return AuthOptions(tokens, jwt=None)
    if not all(jwt.values()):
        raise click.UsageError("Access tokens need --jwt-issuer, --jwt-audience, --jwt-keys and --token-url.")
    return AuthOptions(tokens, {**jwt, **({"algorithms": algorithms} if algorithms else {})})


auth_options: Final = option_group(
    "auth",
    _make_auth_options,
    tokens_option,
    option("--jwt-issuer URL", "issuer", help="The issuer of the accepted access tokens."),
    option("--jwt-audience URL", "audience", help="The audience of the accepted access tokens: this server."),
    option("--jwt-keys URL", "keys", help="The address of the issuer's keys (JWKS)."),
    option("--token-url URL", help="The address where clients get access tokens."),
    option("--jwt-algorithm NAME", "algorithms", multiple=True, help="RS256 and ES256 by default."),
)


def _parse_networks(
    context: click.Context, parameter: click.Parameter, texts: tuple[str, ...]
) -> tuple[server.Network, ...]:
    if not texts:  # the module of networks is not loaded for the default
        return ()
    try:
        return tuple(map(server.parse_network, texts))
    except ValueError as error:
        raise click.BadParameter(f"{error}.", context, parameter) from None


@dataclass(frozen=True, slots=True)
class ProcessOptions:
    """The number of server processes, their limits and timeouts, and their log on standard error."""

    workers: int
    config: Path | None
    proxies: tuple[server.Network, ...]
    drain_seconds: int | None
    log_level: str
    log_format: str

    def configure_logging(self) -> None:
        server.configure_logging(self.log_level, as_json=self.log_format == "json")

    def settings(self) -> server.ServerSettings:
        """Return the settings of each server process; the processes share the rate limits."""
        settings = server.ServerSettings() if self.config is None else server.load_server_settings(self.config)
        if self.drain_seconds is not None:
            settings = replace(settings, grace_period=float(self.drain_seconds))
        trusted_proxies = (*settings.trusted_proxies, *self.proxies)
        return replace(settings, trusted_proxies=trusted_proxies).divide_rates(self.workers)


process_options: Final = option_group(
    "processes",
    ProcessOptions,
    option("--workers N", type=click.IntRange(1, 256), default=1, help="The number of server processes."),
    option("--config FILE", type=EXISTING_FILE, help="The limits and timeouts of the server: server.toml."),
    option(
        "--trusted-proxy ADDRESS|NET",
        "proxies",
        multiple=True,
        callback=_parse_networks,
        help="A proxy whose X-Forwarded-For and X-Forwarded-Proto headers are trusted.",
    ),
    option(
        "--drain-seconds SECONDS",
        type=click.IntRange(1, 3_600),
        help="The time limit of the drain after SIGTERM; 30 by default.",
    ),
    option(
        "--log-level",
        type=click.Choice(["debug", "info", "warning", "error"]),
        default="info",
        envvar="MANGLECP_LOG_LEVEL",
        help="The lowest level that is logged to standard error; info by default.",
    ),
    option(
        "--log-format",
        type=click.Choice(["json", "text"]),
        default=lambda: "text" if sys.stderr is not None and sys.stderr.isatty() else "json",
        envvar="MANGLECP_LOG_FORMAT",
        help="One JSON object per line, or text, which is the default at a terminal.",
    ),
)


def announce(url: str) -> None:
    """Print the address of the server on standard error."""
    click.echo(f"serving at {url}", err=True)


def announce_callback(log_format: str) -> Callable[[str], None]:
    """Return the callback that announces the address: as text, or as a JSON record if logs are JSON."""
    if log_format != "json" or (sys.stderr is not None and sys.stderr.isatty()):
        return announce
    import logging

    def log_address(url: str) -> None:
        # handle() ignores --log-level: the address is announced at every level.
        fields = ("manglecp.server", logging.INFO, "", 0, "serving at %s", (url,), None)
        logging.getLogger("manglecp.server").handle(logging.getLogger().makeRecord(*fields, extra={"url": url}))

    return log_address


def _run_in_child(work: Callable[[], None]) -> int:
    """Run ``work`` in a forked process: print an error, and return the exit status."""
    from manglecp.cli.errors import report_error

    try:
        work()
    except Exception as error:
        return report_error(error, as_json=False)
    return 0


@contextlib.contextmanager
def _shared_metrics() -> Iterator[Callable[[int], None]]:
    """Share metrics between processes in a folder. Yield a callback that takes the pid of a process that ended."""
    import tempfile

    variable = "PROMETHEUS_MULTIPROC_DIR"  # prometheus_client reads this variable, and names the files
    with tempfile.TemporaryDirectory(prefix="manglecp-metrics-") as folder:
        os.environ[variable] = folder

        def remove_gauges(pid: int) -> None:
            for file in Path(folder).glob(f"gauge_live*_{pid}.db"):
                file.unlink(missing_ok=True)

        try:
            yield remove_gauges
        finally:
            del os.environ[variable]


@click.command("serve")
@pack_argument
@address_options
@option("--stdio", is_flag=True, help="Serve the parent process on the standard streams instead.")
@option("--host-name NAME", "hosts", multiple=True, help="A name of this server in Host headers.")
@option("--origin URL", "origins", multiple=True, help="An origin whose web pages may send requests.")
@option("--tls-cert FILE", "certificate", type=EXISTING_FILE, help="The certificate, with its chain.")
@option("--tls-key FILE", "key", type=EXISTING_FILE, help="The key of the certificate, if it is in another file.")
@auth_options
@option("--open-demo", is_flag=True, help="Accept all clients without authentication.")
@option("--max-age SECONDS", type=click.IntRange(0), help="The max-age of the manifest.")
@process_options
@runtime_options
def command(
    folder: Path,
    address: tuple[str, int] | None,
    stdio: bool,
    auth: AuthOptions,
    processes: ProcessOptions,
    runtime: RuntimeOptions,
    **listen_fields: Any,
) -> None:
    """Serve PACK: HTTP and WebSocket (at /ws) on one address, or the standard streams.

    An address that other machines can reach needs --tokens, --jwt-issuer or --open-demo.

    SIGTERM and Ctrl-C drain the server: no new requests, current ones are finished; a second signal exits immediately.
    SIGHUP reloads the pack and the tokens; after an error the previous ones stay in service.
    """
    if stdio and (address is not None or processes.workers > 1):
        raise click.UsageError("--stdio has one client and no address: leave --http and --workers out.")
    if processes.workers > 1 and runtime.location == ":memory:":
        raise click.UsageError("Several processes need a shared store; :memory: is not shared.")
    host, port = address or DEFAULT_ADDRESS
    # The other options have the names of the fields: hosts, origins, certificate, key, open_demo, max_age.
    listen_options = server.ListenOptions(host=host, port=port, **listen_fields)
    if listen_options.key is not None and listen_options.certificate is None:
        raise click.UsageError("--tls-key needs --tls-cert.")
    if stdio:
        _serve_streams(folder, runtime, auth, processes)
    else:
        _serve_address(folder, runtime, listen_options, auth, processes)


def _serve_address(
    folder: Path,
    runtime: RuntimeOptions,
    listen_options: server.ListenOptions,
    auth: AuthOptions,
    processes: ProcessOptions,
) -> None:
    processes.configure_logging()
    server.check_exposure(listen_options, auth_required=auth.tokens is not None or auth.jwt is not None)
    if listen_options.certificate is not None:
        # Raises for an invalid file before processes are forked.
        server.Tls(listen_options.certificate, listen_options.key or listen_options.certificate).context()
    listen_socket = bind_socket(listen_options.host, listen_options.port)

    def serve() -> None:
        gc.set_threshold(10_000)  # requests leave few reference cycles: collect rarely
        import uvloop

        on_start = announce_callback(processes.log_format)
        arguments = (runtime.for_pack(folder), runtime.open_store, listen_options, auth.load(), listen_socket)
        uvloop.run(server.serve_http(*arguments, settings=processes.settings(), on_start=on_start))

    with listen_socket:
        if processes.workers == 1:
            serve()
            return
        with _shared_metrics() as remove_gauges:
            status = server.run_workers(processes.workers, lambda: _run_in_child(serve), remove_gauges)
    raise click.exceptions.Exit(status)


def _serve_streams(folder: Path, runtime: RuntimeOptions, auth: AuthOptions, processes: ProcessOptions) -> None:
    """Serve the standard streams. The manifest is written first: loading asyncio, the store and the rules is slow."""
    if sys.stdin is None or sys.stdout is None:  # closed by the parent process
        raise click.UsageError("--stdio needs standard input and output, and one of them is closed.")
    outline, config = pack.read_outline(folder), auth.load()
    streams = server.Streams.claim()
    auth_description = server.describe_auth(config.auth)
    manifest = wire.encode(pack.outline_manifest(outline, "booting", endpoints=None, auth=auth_description))
    try:
        streams.write(manifest)
    except BrokenPipeError:
        raise click.exceptions.Exit(1) from None  # the parent process is gone
    except OSError as error:
        raise VerbError(f"cannot write the manifest: {error.strerror}") from None
    processes.configure_logging()

    import asyncio

    arguments, settings = (runtime.for_pack(folder), runtime.open_store, config, streams), processes.settings()
    asyncio.run(server.serve_streams(*arguments, outline=outline, sent_manifest=manifest, settings=settings))
