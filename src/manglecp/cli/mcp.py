"""``manglecp mcp``: a pack or a server behind MCP, and the configuration of MCP hosts."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from manglecp.cli.completion import complete_intents
from manglecp.cli.options import PACK, RUNTIME_OPTIONS
from manglecp.cli.serve import AuthOptions, address_options, announce, auth_options, bind_socket
from manglecp.cli.target import TargetOptions, as_wire_error, is_at_terminal, target_argument, target_options
from manglecp.server import ListenOptions, check_exposure

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server

    from manglecp.client import Client
    from manglecp.intent import Identity
    from manglecp.mcp_server import McpOptions, Source

_HOST_NAMES: Final = ("claude-code", "claude-desktop", "cursor", "vscode")


@click.group("mcp")
def command() -> None:
    """Serve a pack or a server to MCP hosts, and configure hosts.

    Needs the extra mcp.
    """


@command.command("serve")
@target_argument
@address_options
@click.option(
    "--direct", metavar="INTENT", shell_complete=complete_intents, help="List the tools of this intent instead."
)
@click.option("--no-attested", is_flag=True, help="Do not accept approvals that the user gives in the host.")
@click.option("--host-name", "hosts", metavar="NAME", multiple=True, help="A name of this server in Host headers.")
@click.option("--origin", "origins", metavar="URL", multiple=True, help="An origin whose web pages may send requests.")
@auth_options
@target_options(*RUNTIME_OPTIONS, has_json=False)
def serve(
    target: Path | str,
    address: tuple[str, int] | None,
    direct: str | None,
    no_attested: bool,
    hosts: tuple[str, ...],
    origins: tuple[str, ...],
    auth: AuthOptions,
    options: TargetOptions,
) -> None:
    """Serve PACK, or the server at URL, to an MCP host.

    It is served on the standard streams, or with --http on an address. The host sees the tools declare_intent, invoke
    and explain. With --direct it sees the tools that are proven for one intent without facts of the client.

    On the standard streams the caller is --as NAME, by default the local user. The model reads only public reasons,
    unless --permission explain_policy is given. With --http each request needs an access token if --tokens or
    --jwt-issuer is given. A server at a URL is used with --token, and only on the standard streams.
    """
    auth_required = auth.tokens is not None or auth.jwt is not None
    if address is None and auth_required:
        raise click.UsageError("The client on the standard streams is the local user: credentials are for --http.")
    if address is not None and isinstance(target, str):
        raise click.UsageError("A server at a URL knows one identity, that of --token: leave --http out.")
    if address is not None and (options.caller.caller_name is not None or options.caller.permissions):
        raise click.UsageError("With --http the access token names the caller: leave --as and --permission out.")
    if address is not None:
        listen_options = ListenOptions(host=address[0], port=address[1], hosts=hosts, origins=origins)
        check_exposure(listen_options, auth_required=auth_required)
    elif sys.stdin is None or sys.stdout is None:  # closed by the parent process
        raise click.UsageError("the standard streams are closed; use --http HOST:PORT")
    import asyncio

    from manglecp.server import configure_logging

    configure_logging("warning", as_json=False)
    with options.report_wire_errors(None):
        if isinstance(target, str):
            asyncio.run(_serve_server(target, options, direct))
        else:
            asyncio.run(_serve_pack(target, options, direct, address, hosts, origins, auth, attested=not no_attested))


async def _serve_pack(
    folder: Path,
    options: TargetOptions,
    direct: str | None,
    address: tuple[str, int] | None,
    hosts: tuple[str, ...],
    origins: tuple[str, ...],
    auth: AuthOptions,
    *,
    attested: bool,
) -> None:
    from manglecp.intent import ANONYMOUS
    from manglecp.mcp_server import McpOptions, PackSource, http_app, serve_http
    from manglecp.server import Guards, open_core

    runtime, auth_config = options.runtime, auth.load()
    async with open_core(runtime.for_pack(folder), runtime.open_store, auth_config) as core:
        try:
            await core.revisions.wait_until_loaded()
            if address is None:
                source = PackSource(core, runtime.store_words, attested)
                # A model reads the explanations, so it gets only the public reasons, unless explain_policy is passed.
                permissions = frozenset(options.caller.permissions)
                identity = options.caller.identity._replace(permissions=permissions)
                await _serve_stdio(source, McpOptions(identity, direct))
                return
            source = PackSource(core, "", attested)  # "": remote clients do not learn the location of the store
            mcp_options = McpOptions(ANONYMOUS, direct)
            server = await _make_server(source, options.caller.identity, mcp_options)
            with bind_socket(*address) as listen_socket:
                guards = Guards(address[0], hosts=hosts, origins=origins, auth_required=auth_config.auth is not None)
                app = http_app(server, auth_config, guards, core.request_limits)
                await serve_http(server, app, listen_socket, announce)
        finally:
            await core.drain()


async def _serve_server(url: str, options: TargetOptions, direct: str | None) -> None:
    from manglecp.client import Client, ClientError
    from manglecp.intent import ANONYMOUS
    from manglecp.mcp_server import McpOptions, ServerSource

    try:
        async with Client(url, token=options.token) as client:
            await client.ready()
            await _serve_stdio(ServerSource(client, f" --server {shlex.quote(url)}"), McpOptions(ANONYMOUS, direct))
    except ClientError as error:
        raise as_wire_error(error) from None


async def _serve_stdio(source: Source, mcp_options: McpOptions) -> None:
    from manglecp.mcp_server import serve_stdio

    await serve_stdio(await _make_server(source, mcp_options.identity, mcp_options))


async def _make_server(source: Source, identity: Identity, mcp_options: McpOptions) -> Server[Any]:
    """Return the server of MCP. Raises :class:`.WireError` for an unknown intent of direct mode."""
    from manglecp.client import ServerError
    from manglecp.mcp_server import make_server

    client: Client
    async with source.client(identity) as client:
        try:
            if mcp_options.direct is not None:
                await client.evaluate(mcp_options.direct)
        except ServerError as error:
            if error.code == "x-unknown_intent":  # others may be temporary
                raise as_wire_error(error) from None
        return make_server(source, await client.ready(), mcp_options)


@command.command("install")
@click.argument("host", metavar="HOST", type=click.Choice(_HOST_NAMES))
@click.argument("folder", metavar="PACK", type=PACK)
@click.option("--name", metavar="NAME", help="The name of the entry; by default that of the pack's folder.")
@click.option("--project", is_flag=True, help="Configure this folder only, not the user's host.")
@click.option("--direct", metavar="INTENT", help="List the tools of this intent instead.")
@click.option("--yes", is_flag=True, help="Write without a prompt.")
def install(host: str, folder: Path, name: str | None, project: bool, direct: str | None, yes: bool) -> None:
    """Add PACK to the configuration of HOST.

    HOST is claude-code, claude-desktop, cursor or vscode. The change is shown, and written after a prompt, or with
    --yes. Other entries stay as they are.
    """
    from manglecp.mcp_server import plan_installation

    # Hosts start the server in the folder of any project, whose modules must not be imported.
    launcher = [sys.executable, "-P", "-m", "manglecp", "mcp", "serve", str(folder.absolute())]
    options = () if direct is None else ("--direct", direct)
    try:
        project_folder = Path.cwd() if project else None
        plan = plan_installation(host, name or folder.resolve().name, launcher, options, folder=project_folder)
    except ValueError as error:
        raise click.ClickException(str(error)) from None
    if plan.is_unchanged:
        click.echo(f"{plan.path} has this entry already")
        return
    click.echo(plan.difference)
    if not yes and not is_at_terminal():
        raise click.UsageError("nothing is written; --yes writes without a prompt")
    if not yes and not click.confirm(f"Write {plan.path}?", default=False):
        raise click.ClickException("nothing is written")
    try:
        plan.write()
    except (OSError, ValueError) as error:
        raise click.ClickException(f"nothing is written: {error}") from None
    click.echo(f"{plan.path} is written; restart the host, or reload its MCP servers")
