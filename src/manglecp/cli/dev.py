"""``manglecp dev``: serve a pack while it is being written."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

import click

from manglecp import pack, server
from manglecp.cli.options import RuntimeOptions, pack_argument, runtime_options
from manglecp.cli.output import print_stderr, report
from manglecp.cli.serve import DEFAULT_ADDRESS, address_options, announce, bind_socket

_RELOAD_MESSAGES: Final = {
    "swapped": "serving the new pack revision",
    "same": "serving the same pack revision, read again",
    "broken": "still serving the old pack revision",
}


@click.command("dev")
@pack_argument
@address_options
@runtime_options
def command(folder: Path, address: tuple[str, int] | None, runtime: RuntimeOptions) -> None:
    """Serve PACK on this machine, and reload it when a file is saved.

    Errors of an edit are printed, and the previous pack revision stays in service. Clients with a session receive the
    manifest of each new revision.
    """
    server.configure_logging("info", as_json=False)
    _serve(folder, *(address or DEFAULT_ADDRESS), runtime)


def _serve(folder: Path, host: str, port: int, runtime: RuntimeOptions) -> None:
    if not server.is_loopback(host):
        raise server.ServeError(f"{host} can be reached from other machines; use `manglecp serve`")
    listen_socket = bind_socket(host, port)

    import uvloop

    options = server.ListenOptions(host=host, port=port)

    def on_reload(result: str) -> None:
        print_stderr(_RELOAD_MESSAGES[result])

    async def watch(core: server.Core) -> None:
        reload_task = asyncio.create_task(server.reload_on_change(core.revisions, folder, on_reload=on_reload))
        try:
            await core.revisions.wait_until_loaded()
        except pack.PackError as error:
            report(error.diagnostics)
            print_stderr("waiting for a valid pack")
        await reload_task

    with listen_socket:
        arguments = (runtime.for_pack(folder), runtime.open_store, options, server.AuthConfig(), listen_socket)
        uvloop.run(server.serve_http(*arguments, watch=watch, on_start=announce))
