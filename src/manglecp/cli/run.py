"""``manglecp run``: pursue a goal with the actions of a pack, a plugin or a foreign toolhost."""

from __future__ import annotations

import asyncio
from typing import Any

import click

from manglecp.cli import VerbError, options
from manglecp.cli.files import FILE, OUTPUT_FILE, option
from manglecp.cli.run_log import log_key_option


@click.command("run")
@click.argument("target", metavar="PACK|PLUGIN|-- CMD [ARG]...", nargs=-1, required=True, type=click.Path())
@option("--goal FILE", "goal_file", type=FILE, required=True, help="The goal pack, a JSON manifest.")
@option("--goal-id ID", help="The goal; needed if the goal pack has several.")
@option("--request-id ID", help="The id by which you trace the run, for the log.")
@option("--input K=V", "run_inputs", multiple=True, callback=options.assignments, help="An input: JSON, or text.")
@option("--rules FILE", multiple=True, type=FILE, help="A Mangle program that picks, with a proof.")
@option("--policy COMMAND", help="A policy process that selects; it is started once per step.")
@option("--policy-env NAME", multiple=True, help="A variable that the policy process inherits.")
@option("--policy-timeout SECONDS", type=float, default=2.5, help="For one selection; 2.5 by default.")
@option("--autopilot N", type=click.IntRange(min=1), help="At most N steps, without asking you.")
@option("--allow AID", multiple=True, help="Approve an action with effects; AID* approves by prefix.")
@options.intent_option("Also offer the tools that PACK proves for it.")
@options.intent_options
@option("--confirm", is_flag=True, help="Approve the calls of these tools without a prompt.")
@option("--log FILE", "log_file", type=OUTPUT_FILE, help="The new log; by default run-ID.jsonl here.")
@log_key_option
@option("--why", is_flag=True, help="Also print the proof of each selection by rules.")
@options.caller_options
@options.runtime_options
@options.document_option
def command(**members: Any) -> None:
    """Pursue a goal: offer actions on a menu, select one, execute it, until the goal is reached.

    The target is a PACK (its actions without effects and, with --intent, its tools, whose effects pass the gate), a
    PLUGIN as for `manglecp toolhost`, or the command of another toolhost, which runs without a sandbox; --list and
    --serve are inserted before its last word.

    --rules or --policy selects. Without them you pick at the terminal, or the first fitting action is picked with
    --autopilot. An action with effects of a plugin or a command is executed if --allow names it, or if you approve it
    at the terminal.

    The exit status is 0 if the goal is reached or the selector ended the run (noop, ask_sup), 1 if the run failed or a
    limit ended it, 2 if it did not start. Next: check the log with `manglecp run-log verify` or `replay`.
    """
    from manglecp.cli.goal_run import GoalRun
    from manglecp.pack import ListingError
    from manglecp.runner import RunnerError

    try:
        raise click.exceptions.Exit(asyncio.run(GoalRun(**members).run()))
    except (RunnerError, ListingError) as error:
        raise VerbError(str(error)) from None
