"""``manglecp runs``: runs with effects as their journal has them, and their decisions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from manglecp.cli.files import FILE, read_json_argument
from manglecp.cli.options import (
    PACK,
    RuntimeOptions,
    as_json,
    key_option,
    open_existing_store,
    operator_option,
    report_pack_errors,
    runtime_options,
    store_option,
)
from manglecp.cli.output import columns, count, json_text, print_json, write_lines

if TYPE_CHECKING:
    import asyncio

    from manglecp.store import RunView, StepRecord, Store, Verdict


STATES = ("running", "needs_decision", "succeeded", "failed", "cancelled")


@click.group("runs")
def command() -> None:
    """List and show runs with effects, resume them, and decide those that wait for a decision.

    A run waits for a decision if the outcome of one of its effects is unknown, or if a rule stopped it.
    """


@command.command("list")
@click.option("--state", type=click.Choice(STATES), help="Only runs in this state.")
@click.option("--limit", metavar="N", type=click.IntRange(min=1), default=20, help="Maximum of runs; 20 by default.")
@as_json
@store_option
def list_(state: str | None, limit: int, as_json: bool, where: str | None) -> None:
    """List runs, the newest first."""
    from manglecp.store import RunState

    with open_existing_store(where) as store, store.read_transaction() as tx:
        runs = store.runs.list(tx, None if state is None else RunState(state), limit)
        shown = [one for run in runs if (one := store.runs.show(tx, run.run_id)) is not None]
    write_lines([json_text([_document(one) for one in shown])] if as_json else _table(shown))


@command.command("show", short_help="Show one run: its steps, and the decision it needs.")
@click.argument("run", metavar="RUN")
@as_json
@store_option
def show(run: str, as_json: bool, where: str | None) -> None:
    """Show one run: its steps with their outcomes, and the decision it needs."""
    from manglecp.store import NoRun

    with open_existing_store(where) as store, store.read_transaction() as tx:
        view = store.runs.show(tx, run)
        if view is None:
            raise NoRun(run)
    write_lines([json_text(_document(view, steps=True))] if as_json else _detail(view))


@command.command("decide")
@click.argument("run", metavar="RUN")
@click.option("--step", metavar="N", type=click.IntRange(min=1), help="The step to decide.")
@click.option("--happened", is_flag=True, help="The effect of the step happened.")
@click.option("--did-not", is_flag=True, help="The effect did not happen: the step is retried.")
@click.option("--abort", is_flag=True, help="End the run without undoing its effects.")
@click.option("--output", "file", metavar="FILE", type=FILE, help="With --happened: the JSON that the action returned.")
@operator_option
@as_json
@store_option
@key_option
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
    key: bytes | None,
) -> None:
    """Decide a run that waits for a decision.

    State whether the effect of the step in doubt happened, or end the run. The decision is recorded in the ledger
    under your name. Afterwards a worker resumes the run, or you do with `manglecp runs resume`.
    """
    import msgspec

    from manglecp.invoke import decide as decide_run

    if happened + did_not + abort != 1:
        raise click.UsageError("give one of --happened, --did-not and --abort")
    verdict: Verdict = "happened" if happened else "did_not" if did_not else "abort"
    if verdict == "abort" and step is not None:
        raise click.UsageError("--abort ends the whole run: leave --step out")
    if verdict != "abort" and step is None:
        raise click.UsageError("give the step with --step N; `manglecp runs show` lists the steps")
    if file is not None and verdict != "happened":
        raise click.UsageError("--output goes with --happened only")
    output = None if file is None else msgspec.json.encode(read_json_argument(file))
    with open_existing_store(where, key) as store:
        state = decide_run(store, run, verdict, by, step=step, output=output)
    if as_json:
        print_json({"run": run, "verdict": verdict, "state": state.value})
        return
    lines = [f"run {run}: {state.value}"]
    if state.value == "running":
        lines.append(f"a worker of its pack resumes it, or: manglecp runs resume {run} PACK")
    elif state.value == "needs_decision":
        lines.append(f"another step is in doubt: manglecp runs show {run}")
    write_lines(lines)


@command.command("resume", short_help="Execute a run that has no owner.")
@click.argument("run", metavar="RUN")
@click.argument("folder", metavar="PACK", type=PACK)
@operator_option
@runtime_options
@click.option("--json", "as_json", is_flag=True, help="Print the message of the protocol instead.")
def resume(run: str, folder: Path, by: str, runtime: RuntimeOptions, as_json: bool) -> None:
    """Execute RUN in this process, with the PACK that it belongs to, if it has no owner; print the result.

    A run that waits for a decision without a step in doubt continues: that decision is recorded in the ledger under
    your name. Ctrl-C cancels the run after the current step. The exit status is 0 if the run succeeded, 130 if it was
    cancelled, else 1.
    """
    import asyncio

    with report_pack_errors():
        status = asyncio.run(_resume(run, folder, by, runtime, as_json=as_json))
    raise click.exceptions.Exit(status)


async def _resume(run: str, folder: Path, by: str, runtime: RuntimeOptions, *, as_json: bool) -> int:
    import asyncio

    from manglecp.cli.invocation import interruptible, keep_failures, print_answer, status_of
    from manglecp.cli.output import ProgressLine
    from manglecp.invoke import decode_response, open_packs

    host_lines: list[str] = []
    opening = open_packs([runtime.of_pack(folder)], runtime.open_store, on_failure=keep_failures(host_lines))
    with ProgressLine("loading") as progress:
        async with opening as opened:
            (invoker,) = opened.invokers
            identity = _ready(opened.store, run, invoker.domain.digest, by)
            progress.doing = "running"
            with interruptible() as cancel:
                cancelling = asyncio.create_task(_forward_cancel(cancel, opened.store, run, identity))
                try:
                    taken = await invoker.take_over(run)
                finally:
                    cancelling.cancel()
            if taken is None:
                _ready(opened.store, run, invoker.domain.digest, by)
                raise click.ClickException(f"another process has just resumed run {run}")
            with opened.store.read_transaction() as tx:
                stored = opened.store.runs.answer(tx, run)
    if stored is None:
        raise click.ClickException(f"run {run} is over, and its result is no longer stored")
    answer = decode_response(stored)
    print_answer(answer, as_json=as_json, host_lines=host_lines)
    return status_of(answer)


async def _forward_cancel(cancel: asyncio.Event, store: Store, run: str, identity: str) -> None:
    """Record the request to cancel in the store, which the executor reads before the next step."""
    await cancel.wait()
    with store.write_transaction() as tx:
        store.runs.request_cancel(tx, run, identity)


def _ready(store: Store, run: str, digest: str, by: str) -> str:
    """Return the identity of a run that this process can own. Raises ``NotOpen`` with what to do otherwise."""
    from manglecp.invoke import decide, find_undecided_step
    from manglecp.store import NoRun, NotOpen, RunState

    with store.read_transaction() as tx:
        view = store.runs.show(tx, run)
        now_ms = tx.now_ms()
    if view is None:
        raise NoRun(run)
    stored = view.run
    if stored.state not in (RunState.RUNNING, RunState.NEEDS_DECISION):
        raise NotOpen(f"run {run} is over: it {stored.state.value.replace('cancelled', 'was cancelled')}")
    if stored.pack_digest != digest:
        raise NotOpen(
            f"run {run} belongs to another pack revision, or to another pack: {stored.pack_digest}. "
            "Restore the files of that revision, and give the same --set"
        )
    if stored.state == RunState.NEEDS_DECISION:
        doubted = find_undecided_step(view)
        if doubted is not None:
            raise NotOpen(f"step {doubted} of run {run} is in doubt; see `manglecp runs show {run}`, and decide first")
        decide(store, run, "resume", by)
    elif stored.claim_until_ms > now_ms:
        seconds = -(-(stored.claim_until_ms - now_ms) // 1_000)
        raise NotOpen(f"run {run} is owned by {stored.owner}; if that process has ended, retry in {seconds} s")
    return stored.identity


def _time(at_ms: int) -> str:
    from manglecp.mangle import instant_text

    return instant_text(at_ms * 1_000_000)


def _document(shown: RunView, *, steps: bool = False) -> dict[str, Any]:
    import msgspec

    document: dict[str, Any] = {"tool": _tool(shown), **msgspec.to_builtins(shown.run)}
    for name in ("created_ms", "touched_ms", "ended_ms"):
        at_ms = document.pop(name)
        document[name.removesuffix("_ms") + "_at"] = None if at_ms is None else _time(at_ms)
    if steps:
        hidden = ("input", "output", "note")
        rows = map(msgspec.to_builtins, shown.steps)
        document["steps"] = [{name: value for name, value in row.items() if name not in hidden} for row in rows]
    return document


def _table(runs: Sequence[RunView]) -> Iterable[str]:
    headings = ("RUN", "STATE", "TOOL", "FOR", "SINCE", "ABOUT")
    return _columns(headings, map(_row, runs)) if runs else ["No such runs."]


def _row(shown: RunView) -> tuple[str, ...]:
    run = shown.run
    about = run.code or "-" if run.step is None else f"step {run.step}: {run.code}"
    return (run.run_id, run.state.value, _tool(shown), run.identity, _time(run.created_ms), about)


def _detail(shown: RunView) -> Iterator[str]:
    from manglecp.base.text import escape_invisible
    from manglecp.cli.tool_text import decision_lines
    from manglecp.invoke import find_undecided_step
    from manglecp.store import RunState

    run = shown.run
    yield escape_invisible(f"run {run.run_id}: {run.state.value}{f', {run.code}' if run.code else ''}")
    yield escape_invisible(f"  {_tool(shown)} for {run.identity}, admitted {_time(run.created_ms)}")
    yield f"  pack {run.pack_digest}"
    if run.ended_ms is not None:
        yield f"  ended {_time(run.ended_ms)}"
    elif run.owner is not None:
        yield escape_invisible(f"  owned by {run.owner} until {_time(run.claim_until_ms)}")
    elif run.state == RunState.RUNNING:
        yield "  without an owner; a worker of its pack resumes it"
    if run.takeovers:
        yield f"  taken over {count(run.takeovers, 'time')} since its last completed step"
    if run.cancel:
        yield "  cancellation requested"
    if shown.steps:
        yield ""
        yield from _columns(("STEP", "ACTION", "STATE", "CODE", "BY"), map(_step_row, shown.steps))
    if run.state == RunState.NEEDS_DECISION:
        yield ""
        yield from (line.removeprefix("  ") for line in decision_lines(run.run_id, find_undecided_step(shown)))


def _step_row(step: StepRecord) -> tuple[str, ...]:
    number = f"{step.number}{' undo' if step.kind == 'undo' else ''}{f' #{step.attempt}' if step.attempt > 1 else ''}"
    return (number, step.action, step.state.value, step.code or "-", step.decided_by or "-")


def _tool(shown: RunView) -> str:
    import json

    return str(json.loads(shown.admission)["tool"])


def _columns(headings: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    from manglecp.base.text import escape_invisible

    return map(escape_invisible, columns([headings, *rows]))
