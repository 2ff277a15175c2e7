"""``manglecp runs``: runs with effects, as their journal tells them, and what a person may say about them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from manglecp.cli.files import FILE, read
from manglecp.cli.outputs import json_text, write_lines, write_text
from manglecp.cli.runs_resume import resume
from manglecp.cli.stores import as_json, opened, operator_option, store_option, store_options

if TYPE_CHECKING:
    from manglecp.store import Verdict

__all__ = ["command"]

STATES = ("running", "needs_decision", "succeeded", "failed", "cancelled")


@click.group("runs")
def command() -> None:
    """Runs with effects: which there are, how far they came, and which of them wait for a person.

    A run waits for a decision if it is not known whether one of its effects happened, or if it may not go on.
    """


@command.command("list")
@click.option("--state", type=click.Choice(STATES), help="Only runs in this state.")
@click.option("--limit", metavar="N", type=click.IntRange(min=1), default=20, help="How many at most; 20 by default.")
@as_json
@store_option
def list_(state: str | None, limit: int, as_json: bool, where: str | None) -> None:
    """List runs, the newest first."""
    from manglecp.cli.runs_text import run_document, table
    from manglecp.store import RunState

    with opened(where) as store, store.read_transaction() as tx:
        found = store.runs.list(tx, None if state is None else RunState(state), limit)
        shown = [one for run in found if (one := store.runs.show(tx, run.run_id)) is not None]
    if as_json:
        write_text(json_text([run_document(one) for one in shown]) + "\n")
    else:
        write_lines(table(shown))


@command.command("show", short_help="Show one run: its steps, and what to decide.")
@click.argument("run", metavar="RUN")
@as_json
@store_option
def show(run: str, as_json: bool, where: str | None) -> None:
    """Show one run: its steps, how each of them ended, and what to decide."""
    from manglecp.cli.runs_text import detail, run_document
    from manglecp.store import NoRun

    with opened(where) as store, store.read_transaction() as tx:
        found = store.runs.show(tx, run)
        if found is None:
            raise NoRun(run)
    if as_json:
        write_text(json_text(run_document(found, steps=True)) + "\n")
    else:
        write_lines(detail(found))


@command.command("decide")
@click.argument("run", metavar="RUN")
@click.option("--step", metavar="N", type=click.IntRange(min=1), help="The step that the decision is about.")
@click.option("--happened", is_flag=True, help="The effect of the step happened.")
@click.option("--did-not", is_flag=True, help="It did not happen: the step is tried again.")
@click.option("--abort", is_flag=True, help="The run is over. What happened stays as it is.")
@click.option("--output", "file", metavar="FILE", type=FILE, help="With --happened: the JSON that the action returned.")
@operator_option
@as_json
@store_options
def decide(
    run: str,
    step: int | None,
    happened: bool,
    did_not: bool,
    abort: bool,
    file: str | None,
    by: str,
    as_json: bool,
    where: str | None,
    key_file: Path | None,
) -> None:
    """Decide how a run goes on that waits for a person.

    Say of the step in doubt whether it happened, or end the run. The decision is an entry in the ledger under your
    name. Afterwards a worker takes the run up, or `manglecp runs resume` does.
    """
    from manglecp.invoke import decide as decide_run

    verdict = _verdict(happened, did_not, abort)
    if verdict == "abort" and step is not None:
        raise click.UsageError("--abort is about the whole run: leave --step out")
    if verdict != "abort" and step is None:
        raise click.UsageError("say which step it is about, with --step N; `manglecp runs show` tells")
    if file is not None and verdict != "happened":
        raise click.UsageError("--output goes with --happened only")
    output = None if file is None else _output(file)
    with opened(where, key_file) as store:
        state = decide_run(store, run, verdict, by, step=step, output=output)
    if as_json:
        write_text(json_text({"run": run, "verdict": verdict, "state": state.value}) + "\n")
        return
    lines = [f"run {run}: {state.value}"]
    if state.value == "running":
        lines.append(f"a worker of its pack takes it up, or: manglecp runs resume {run} PACK")
    elif state.value == "needs_decision":
        lines.append(f"another step is in doubt: manglecp runs show {run}")
    write_lines(lines)


command.add_command(resume)


def _verdict(happened: bool, did_not: bool, abort: bool) -> Verdict:
    if happened + did_not + abort != 1:
        raise click.UsageError("decide one thing: --happened, --did-not or --abort")
    return "happened" if happened else "did_not" if did_not else "abort"


def _output(file: str) -> bytes:
    """In the form in which outputs are kept."""
    import msgspec

    from manglecp.wire import Fault, decode

    try:
        return msgspec.json.encode(decode(read(file)))
    except Fault as fault:
        raise click.UsageError(f"{click.format_filename(file)}: {fault}") from None
