"""``manglecp serve``: a pack behind HTTP and WebSocket, or on the standard streams."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from manglecp.cli import Trouble
from manglecp.cli.asking import pack_argument
from manglecp.cli.places import Place, place_options
from manglecp.cli.serving_options import (
    DEFAULT,
    FILE,
    Limits,
    address,
    answering,
    bound_at,
    limit_options,
    log_options,
    not_here,
    settings_of,
    shared_figures,
    source_of,
    started_in,
    status_of,
    who_of,
)
from manglecp.server import Listening, refuse_open

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

__all__ = ["command"]


@click.command("serve")
@pack_argument
@click.option("--http", "at", metavar="HOST:PORT", callback=address, help="Where to listen; 127.0.0.1:8000 by default.")
@not_here
@click.option("--stdio", is_flag=True, help="Talk over the standard streams instead, to whoever started this.")
@click.option("--workers", metavar="N", type=click.IntRange(1, 256), default=1, help="How many processes listen.")
@click.option("--host-name", "hosts", metavar="NAME", multiple=True, help="A name that clients know this server by.")
@click.option("--origin", "origins", metavar="URL", multiple=True, help="An origin whose web pages may ask.")
@click.option("--tls-cert", "certificate", metavar="FILE", type=FILE, help="The certificate, with those that sign it.")
@click.option("--tls-key", metavar="FILE", type=FILE, help="Its key, if it is not in that file.")
@click.option("--tokens", metavar="FILE", type=FILE, envvar="MANGLECP_TOKENS", help="Who may ask: hashes of tokens.")
@click.option("--jwt-issuer", metavar="URL", help="Who may ask: those with access tokens of this issuer.")
@click.option("--jwt-audience", metavar="URL", help="The address of this server that access tokens name.")
@click.option("--jwt-keys", metavar="URL", help="Where the issuer publishes its keys (JWKS).")
@click.option("--token-url", metavar="URL", help="Where clients get access tokens.")
@click.option("--jwt-algorithm", "algorithms", metavar="NAME", multiple=True, help="RS256 and ES256 by default.")
@click.option("--open-demo", is_flag=True, help="Let everybody ask who can reach the address.")
@click.option("--max-age", metavar="SECONDS", type=click.IntRange(0), help="How long the manifest may be kept.")
@limit_options
@log_options
@place_options
def command(
    folder: Path,
    at: tuple[str, int] | None,
    stdio: bool,
    workers: int,
    hosts: tuple[str, ...],
    origins: tuple[str, ...],
    certificate: Path | None,
    tls_key: Path | None,
    tokens: Path | None,
    jwt_issuer: str | None,
    jwt_audience: str | None,
    jwt_keys: str | None,
    token_url: str | None,
    algorithms: tuple[str, ...],
    open_demo: bool,
    max_age: int | None,
    limits: Limits,
    log_level: str,
    log_format: str,
    place: Place,
) -> None:
    """Serve PACK: HTTP and WebSocket (at /ws) on one address, or the standard streams.

    An address that others can reach needs --tokens or --jwt-issuer, unless --open-demo says that everybody may ask.

    SIGTERM and Ctrl-C take nothing new and answer what is under way; a second one ends at once. SIGHUP reads the pack
    and the tokens again; what is broken leaves what held before.
    """
    if stdio and (at is not None or workers > 1):
        raise click.UsageError("--stdio has one client and no address: leave --http and --workers out.")
    if workers > 1 and place["where"] == ":memory:":
        raise click.UsageError("Several processes need a store that they can share; :memory: is not.")
    if tls_key is not None and certificate is None:
        raise click.UsageError("--tls-key needs --tls-cert.")
    jwt = _jwt(jwt_issuer, jwt_audience, jwt_keys, token_url, algorithms)

    listening = Listening(
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
        answering(lambda: _streams(folder, place, tokens, jwt, limits, log_level, log_format))
    else:
        from manglecp.server import configure

        configure(log_level, as_json=log_format == "json")
        answering(lambda: _listen(folder, place, listening, workers, tokens, jwt, limits, log_format))


def _jwt(
    issuer: str | None, audience: str | None, keys: str | None, token_url: str | None, algorithms: tuple[str, ...]
) -> dict[str, object] | None:
    given = {"issuer": issuer, "audience": audience, "keys": keys, "token_url": token_url}
    if not any(given.values()) and not algorithms:
        return None
    if not all(given.values()):
        raise click.UsageError("Access tokens need --jwt-issuer, --jwt-audience, --jwt-keys and --token-url.")
    return {**given, **({"algorithms": algorithms} if algorithms else {})}


def _listen(
    folder: Path,
    place: Place,
    listening: Listening,
    workers: int,
    tokens: Path | None,
    jwt: dict[str, object] | None,
    limits: Limits,
    log_format: str,
) -> None:
    refuse_open(listening, auth=tokens is not None or jwt is not None)
    if listening.certificate is not None:
        from manglecp.server import Tls

        Tls(listening.certificate, listening.key or listening.certificate).context()  # or it says what is wrong
    bound = bound_at(listening.host, listening.port)

    def serve() -> None:
        import uvloop

        from manglecp.server import serve_http

        source, who, settings = source_of(folder, place), who_of(tokens, jwt), settings_of(limits, processes=workers)
        uvloop.run(serve_http(source, listening, who, bound, settings=settings, started=started_in(log_format)))

    if workers == 1:
        with bound:
            serve()
        return
    from manglecp.server import run_workers

    with bound, shared_figures() as forget:
        raise click.exceptions.Exit(run_workers(workers, lambda: status_of(lambda: answering(serve)), forget))


def _streams(
    folder: Path,
    place: Place,
    tokens: Path | None,
    jwt: dict[str, object] | None,
    limits: Limits,
    level: str,
    form: str,
) -> None:
    """The manifest goes out before the engine is loaded."""
    from manglecp.pack import outlined, read_outline
    from manglecp.server import Streams, described
    from manglecp.wire import encode

    if sys.stdin is None or sys.stdout is None:  # closed by whoever started us
        raise click.UsageError("--stdio needs standard input and output, and one of them is closed.")
    outline, who = read_outline(folder), who_of(tokens, jwt)
    streams = Streams.claim()
    said = encode(outlined(outline, "booting", None, described(who.auth)))
    try:
        streams.write(said)
    except BrokenPipeError:
        raise click.exceptions.Exit(1) from None  # whoever started us is gone
    except OSError as error:
        raise Trouble(f"cannot write the manifest: {error.strerror}") from None

    from manglecp.server import configure

    configure(level, as_json=form == "json")

    import asyncio

    from manglecp.server import serve_streams

    source, settings = source_of(folder, place), settings_of(limits)
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(serve_streams(source, who, streams, outline=outline, said=said, settings=settings))


def _loop_factory() -> Callable[[], AbstractEventLoop] | None:
    """uvloop makes a server quicker, and is no part of the smallest installation."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
