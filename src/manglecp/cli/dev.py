"""``manglecp dev``: serve a pack while it is being written."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from manglecp.cli.options import RuntimeOptions, pack_argument, runtime_options
from manglecp.cli.serve import DEFAULT, address, announce, bind_socket, foreign_address_options, report_failures
from manglecp.server import ListenOptions, ServeError, configure_logging, is_loopback

if TYPE_CHECKING:
    from manglecp.server import Core

_MESSAGES: Final = {
    "swapped": "serving the new pack revision",
    "same": "serving the same pack revision, read again",
    "broken": "still serving the old pack revision",
}


@click.command("dev")
@pack_argument
@click.option("--http", "at", metavar="HOST:PORT", callback=address, help="The address; 127.0.0.1:8000 by default.")
@foreign_address_options
@runtime_options
def command(folder: Path, at: tuple[str, int] | None, runtime: RuntimeOptions) -> None:
    """Serve PACK on this machine, and reload it when a file is saved.

    Errors of an edit are printed, and the previous pack revision stays in service. Clients with a session receive the
    manifest of each new revision.
    """
    configure_logging("info", as_json=False)
    report_failures(lambda: _serve(folder, at or DEFAULT, runtime))


def _serve(folder: Path, at: tuple[str, int], runtime: RuntimeOptions) -> None:
    if not is_loopback(at[0]):
        raise ServeError(f"{at[0]} can be reached from other machines; use `manglecp serve`")
    bound = bind_socket(*at)

    import uvloop

    from manglecp.pack import PackError
    from manglecp.server import AuthConfig, reload_on_change, serve_http

    listening = ListenOptions(host=at[0], port=at[1])

    async def watch(core: Core) -> None:
        watching = asyncio.create_task(
            reload_on_change(core.revisions, folder, on_reload=lambda how: _print(_MESSAGES[how]))
        )
        try:
            await core.revisions.ready()
        except PackError as error:
            for problem in error.diagnostics:
                _print(problem.render())
            _print("waiting for a valid pack")
        await watching

    with bound:
        pack = runtime.of_pack(folder)
        uvloop.run(serve_http(pack, runtime.open_store, listening, AuthConfig(), bound, watch=watch, started=announce))


def _print(text: str) -> None:
    click.echo(text, err=True)
