"""``manglecp guard``: rules in front of the MCP servers of a host's configuration."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from manglecp.base.text import escape_invisible, find_invisible
from manglecp.cli import target
from manglecp.cli.files import EXISTING_FILE, OUTPUT_FILE, write_file
from manglecp.cli.options import document_option
from manglecp.cli.output import count, print_result, table, write_lines

if TYPE_CHECKING:
    from manglecp.guard import HostConfig, Lock, Servers

_DESCRIPTION_WIDTH: Final = 70
_config: Final = click.argument("file", metavar="FILE", type=EXISTING_FILE)
_yes: Final = click.option("--yes", is_flag=True, help="Accept without a prompt.")
_rules: Final = click.option(
    "--rules",
    metavar="DIR",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="A folder with your rules, *.mg, in addition to the starter policy.",
)

_enforce: Final = click.option("--enforce", is_flag=True, help="Refuse what the rules do not allow, not only record.")


class _Guard(click.Group):
    """A group whose first argument may be a file: `guard FILE` is `guard install FILE`."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args[0] not in self.commands and not args[0].startswith("-"):
            args = ["install", *args]
        return super().resolve_command(ctx, args)


@click.group("guard", cls=_Guard)
def command() -> None:
    """Put rules in front of the MCP servers of a host's configuration.

    `manglecp guard FILE` is `manglecp guard install FILE`.
    """


@command.command("install")
@_config
@_yes
@_rules
@_enforce
@click.option("--shadow", is_flag=True, help="Record only, although FILE has --enforce.")
def install(file: Path, yes: bool, rules: Path | None, enforce: bool, shadow: bool) -> None:
    """Pin the tools of all servers, and put a relay in front of each.

    Each server is started once and lists its tools. Their definitions and classes, and the server's instructions, are
    pinned in manglecp.lock beside FILE. FILE is the configuration of Claude Desktop, Claude Code, Cursor or VS Code. A
    backup is kept.
    """
    from manglecp.guard import Lock, RelayOptions

    if enforce and shadow:
        raise click.UsageError("--enforce and --shadow exclude each other")
    config = _read_config(file)
    lock = _call_or_exit(Lock, config.path)
    new_servers = {name for name in config.entries if name not in lock.servers}
    servers, instructions, problems = _list_servers(config, lock, new_servers, yes=yes)
    _check_rules(config, servers, rules)
    relays = {}
    for name in servers:
        entry = config.entries[name]
        before = entry.relay or next(filter(None, (each.relay for each in config.entries.values())), RelayOptions())
        relays[name] = RelayOptions(rules or before.rules, enforce or (before.enforce and not shadow))
    text, config_changes = config.render(relays)
    _print_tools({name: servers[name] for name in config.entries if name in servers}, instructions)
    if new_servers.intersection(servers):  # a person has to be able to read what is pinned
        write_lines([f"`manglecp guard pin {shlex.quote(str(file))} --diff` prints the descriptions in full"])
    write_lines(problems)
    write_lines(f"{escape_invisible(name)}: a remote server, not guarded yet" for name in config.remote)
    write_lines(
        f"{escape_invisible(folder)}: servers of this project, not guarded: move them to its .mcp.json (scope project)"
        for folder in config.projects
    )
    write_lines(map(escape_invisible, config_changes))
    if not relays:
        raise click.ClickException("no server is guarded")
    _confirm("Pin these tools and write this configuration?", yes=yes)
    lock.write(servers, instructions)
    backup = config.write(text) if config_changes else None
    write_lines(_installed_lines(config, relays, backup))


def _installed_lines(config: HostConfig, relays: dict[str, Any], backup: Path | None) -> Iterator[str]:
    enforced = any(options.enforce for options in relays.values())
    mode = "refuse what the rules deny" if enforced else "record what the rules would do, and refuse nothing"
    yield f"{count(len(relays), 'server')} guarded: the relays {mode}. Restart the host."
    if unguarded := [name for name in (*config.entries, *config.remote) if name not in relays]:
        yield escape_invisible(f"not guarded, see above: {', '.join(unguarded)}")
    if backup is not None:
        yield f"backup: {backup}"
    yield f"`manglecp guard report {shlex.quote(str(config.path))}` shows what was tried"


@command.command("remove")
@_config
@_yes
def remove(file: Path, yes: bool) -> None:
    """Remove the relays from FILE. The lock and the decisions stay."""
    config = _read_config(file)
    text, config_changes = config.render(
        {name: None for name, entry in config.entries.items() if entry.relay is not None}
    )
    write_lines(map(escape_invisible, config_changes))
    if not config_changes:
        write_lines(["no server has a relay"])
        return
    _confirm("Write this configuration?", yes=yes)
    config.write(text)
    write_lines(["the relays were removed. Restart the host."])


@command.command("pin")
@_config
@click.option("--diff", is_flag=True, help="Only print how the definitions differ from the pinned ones.")
@click.option("--class", "classes", metavar="SERVER.TOOL=CLASS", multiple=True, help="Set the class of a tool.")
@_yes
def pin(file: Path, diff: bool, classes: tuple[str, ...], yes: bool) -> None:
    """Pin the tools that the servers in FILE list now, or set classes.

    The classes are read, open_read, write, destructive and unknown. With --class no server is started.
    """
    from manglecp.guard import Lock, changes

    config = _read_config(file)
    lock = _call_or_exit(Lock, config.path)
    if classes:
        servers, instructions, problems = _set_classes(lock, classes), lock.instructions, list[str]()
    else:
        servers, instructions, problems = _list_servers(config, lock, set(config.entries), yes=yes)
    names = sorted({*lock.servers, *servers})
    differences = [line for name in names for line in changes(lock.servers.get(name, {}), servers.get(name, {}))]
    texts = ({f"instructions of {name}": t for name, t in pins.items()} for pins in (lock.instructions, instructions))
    differences += changes(*texts)
    write_lines(map(escape_invisible, differences))
    write_lines(problems)
    if not differences:
        write_lines(["the pins are up to date"])
    elif diff:
        write_lines([f"`manglecp guard pin {shlex.quote(str(file))}` accepts these definitions"])
    else:
        # Relays that run load the rules again, and refuse every call if a rule names a tool that is not pinned.
        for rules in {entry.relay.rules for entry in config.entries.values() if entry.relay is not None}:
            _check_rules(config, servers, rules)
        _confirm("Accept these definitions?", yes=yes)
        lock.write(servers, instructions)
        write_lines([f"{lock.path} written; relays that run use it from now on"])


@command.command("relay", context_settings={"ignore_unknown_options": True}, hidden=True)
@click.option("--config", "file", metavar="FILE", type=OUTPUT_FILE, required=True, help="The host's configuration.")
@_rules
@_enforce
@click.argument("name")
@click.argument("server", nargs=-1, required=True, type=click.UNPROCESSED)
def relay(file: Path, rules: Path | None, enforce: bool, name: str, server: tuple[str, ...]) -> None:
    """Relay between the host on standard streams and a server. Hosts start it."""
    from manglecp.guard import Gate, run_relay

    gate = Gate(file, name, rules=rules, enforce=enforce)
    try:
        status = asyncio.run(run_relay(gate, server))
    except (OSError, ValueError) as error:
        raise click.ClickException(f"{name}: {error}") from None
    raise click.exceptions.Exit(status)


@command.command("report")
@_config
@click.option("--html", "page", metavar="FILE", type=OUTPUT_FILE, help="Also write the report as an HTML page.")
@document_option
def report(file: Path, page: Path | None, as_json: bool) -> None:
    """Print the calls, what the rules decided, and first rules."""
    from manglecp.cli.options import open_existing_store
    from manglecp.guard import Lock, load_guard_domain, principal_name, read_report, store_path

    config = _read_config(file)
    lock = _call_or_exit(Lock, config.path)
    path = store_path(config.path)
    if not path.exists():
        raise click.ClickException(f"no call was recorded: there is no store {path}")
    with open_existing_store(str(path)) as store:
        call_report = read_report(store, principal_name(config.path), lock.servers)
    if page is not None:
        rules = next((entry.relay.rules for entry in config.entries.values() if entry.relay), None)
        domain = _call_or_exit(load_guard_domain, config.path, lock.servers, rules)
        write_file(page, [call_report.page(domain).encode(errors="backslashreplace")])
    rows = [
        (
            f"{row.server}.{row.tool}",
            *(row.verdict, row.mode, f"{row.calls:,}", f"{row.approved:,}", f"{row.failed:,}"),
            *(row.reason or "-", (row.examples or ["-"])[0]),
        )
        for row in call_report.rows
    ]
    headings = ("TOOL", "VERDICT", "MODE", "CALLS", "APPROVED", "FAILED", "REASON", "EXAMPLE")
    proposals = ["", "Rules to begin with (a file *.mg in the folder of --rules):", *call_report.proposals]
    lines = [*table(headings, rows, empty="No call was recorded."), *(proposals if call_report.proposals else ())]
    print_result(call_report.document(), lines, as_json=as_json)


def _read_config(file: Path) -> HostConfig:
    from manglecp.guard import HostConfig

    config: HostConfig = _call_or_exit(HostConfig, file)
    return config


def _call_or_exit(function: Any, *arguments: Any) -> Any:
    """Return the result of a function; an error of the guard ends the verb with its message."""
    from manglecp.guard import GuardError

    try:
        return function(*arguments)
    except GuardError as error:
        raise click.ClickException(escape_invisible(str(error))) from None


def _list_servers(
    config: HostConfig, lock: Lock, names: set[str], *, yes: bool
) -> tuple[Servers, dict[str, str], list[str]]:
    """Start the servers in ``names``. Return pins and instructions of all servers, and the problems of pinning."""
    from manglecp.guard import GuardError, pin as pin_tools, read_listing

    if unknown := sorted(names.difference(lock.servers)):
        commands = [f"  {name}: {shlex.join(config.entries[name].command)}" for name in unknown]
        write_lines(["servers to start, to read their tools:", *map(escape_invisible, commands)])
        _confirm("Start them?", yes=yes)
    servers = {name: tools for name, tools in lock.servers.items() if name in config.entries}
    instructions = {name: text for name, text in lock.instructions.items() if name in config.entries}
    problems = []
    for name in sorted(names):
        try:
            listing = asyncio.run(read_listing(config.entries[name]))
        except GuardError as error:
            problems.append(f"not guarded: {error}" if name not in servers else f"not read: {error}")
            continue
        servers[name], tool_problems = pin_tools(listing.tools, servers.get(name, {}))
        problems += [f"not pinned: {name}.{problem}" for problem in tool_problems]
        instructions.pop(name, None)
        if listing.instructions is not None:
            if (invisible := find_invisible(listing.instructions, running=True)) is not None:
                problems.append(f"not pinned: the instructions of {name} have the invisible character {invisible[1]}")
            else:
                instructions[name] = listing.instructions
    return servers, instructions, list(map(escape_invisible, problems))


def _check_rules(config: HostConfig, servers: Servers, rules: Path | None) -> None:
    """Raise :class:`.PackError` or a click exception for rules that the relays could not load."""
    from manglecp.guard import load_guard_domain

    _call_or_exit(load_guard_domain, config.path, servers, rules)


def _set_classes(lock: Lock, classes: tuple[str, ...]) -> Servers:
    from manglecp.guard import CLASSES

    servers = {name: dict(tools) for name, tools in lock.servers.items()}
    for text in classes:
        tool_path, _, tool_class = text.rpartition("=")
        server, tool = next(
            ((s, t) for s, tools in servers.items() for t in tools if f"{s}.{t}" == tool_path), ("", "")
        )
        if not server or tool_class not in CLASSES:
            problem = f"the class is one of {', '.join(CLASSES)}" if server else f"{tool_path or text} is not pinned"
            raise click.BadParameter(f"{text!r}: {problem}; write SERVER.TOOL=CLASS", param_hint="'--class'")
        servers[server][tool] = msgspec.structs.replace(servers[server][tool], tool_class=tool_class)
    return servers


def _print_tools(servers: Servers, instructions: dict[str, str]) -> None:
    rows = [(name, "instructions", _summary(text)) for name, text in instructions.items()]
    rows += [
        (f"{server}.{name}", tool.tool_class, _summary(tool.definition.get("description")))
        for server, tools in servers.items()
        for name, tool in tools.items()
    ]
    write_lines(table(("TOOL", "CLASS", "DESCRIPTION"), rows, empty="The servers list no tools."))


def _summary(description: object) -> str:
    text = escape_invisible(" ".join(description.split())) if isinstance(description, str) else "-"
    return text if len(text) <= _DESCRIPTION_WIDTH else f"{text[: _DESCRIPTION_WIDTH - 1]}…"


def _confirm(question: str, *, yes: bool) -> None:
    if yes:
        return
    if not target.is_at_terminal():
        raise click.UsageError("read this, then accept it with --yes")
    if not click.confirm(question, err=True):
        raise click.Abort
