"""``manglecp runs``: list, show, decide and resume runs with effects, as their journal records them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from manglecp.base.text import escape_invisible
from manglecp.cli import options
from manglecp.cli.decisions import explain_options, explain_records, read_records
from manglecp.cli.files import FILE, read_json
from manglecp.cli.output import ProgressLine, count, print_result, table
from manglecp.mangle import instant_text
from manglecp.store import NoRun, NotOpen, RunState, Unusable
from manglecp.wire import WireError

if TYPE_CHECKING:
    from manglecp.server import AuthConfig
    from manglecp.store import RunView, StepRecord, Store, Verdict

_MAX_DECISIONS: Final = 1_000  # how many decisions about one run are explained


@click.group("runs")
def command() -> None:
    """List and show runs with effects, resume them, and decide those that wait for a decision.

    A run waits for a decision if the outcome of one of its effects is unknown, or if a rule stopped it.
    """


@command.command("list")
@click.option("--state", type=click.Choice([state.value for state in RunState]), help="Only runs in this state.")
@click.option("--limit", metavar="N", type=click.IntRange(min=1), default=20, help="Maximum of runs; 20 by default.")
@options.document_option
@options.store_option
def list_(state: str | None, limit: int, as_json: bool, location: str | None) -> None:
    """List runs, the newest first."""
    with options.open_existing_store(location) as store, store.read_transaction() as tx:
        runs = store.runs.list(tx, None if state is None else RunState(state), limit)
        views = [view for run in runs if (view := store.runs.show(tx, run.run_id)) is not None]
    headings = ("RUN", "STATE", "TOOL", "FOR", "SINCE", "ABOUT")
    lines = table(headings, map(_row, views), empty="No such runs.")
    print_result([_document(view) for view in views], lines, as_json=as_json)


@command.command("show", short_help="Show one run: its steps, its failures, the decision it needs, and its response.")
@click.argument("run", metavar="RUN")
@options.document_option
@options.store_option
@options.key_option
def show(run: str, as_json: bool, location: str | None, store_key: bytes | None) -> None:
    """Show one run: its steps with their outcomes, why actions failed, the decision it needs, and its response.

    Of a run without effects, only the failures are stored. A response is deleted after the retention time of results.
    """
    response = None
    with options.open_existing_store(location, store_key) as store, store.read_transaction() as tx:
        view = store.runs.show(tx, run)
        try:
            failures = (store.runs.failures(tx, run) or b"").decode()
            if view is not None and view.run.ended_ms is not None:
                response = store.runs.answer(tx, run)
        except Unusable as error:  # the failures or the response cannot be decrypted; the rest is not encrypted
            failures = str(error)
        if view is None and not failures:
            raise NoRun(run)
    document: dict[str, Any] = {"run_id": run} if view is None else _document(view, with_steps=True)
    lines = [f"run {run}: without effects, so only its failures are stored"] if view is None else _detail_lines(view)
    failure_lines = map(escape_invisible, ["", *failures.splitlines()] if failures else ())
    document |= {"failures": failures, "response": None if response is None else json.loads(response)}
    print_result(document, chain(lines, failure_lines, _response_lines(response)), as_json=as_json)


@command.command("explain", short_help="Explain every decision about a run.")
@click.argument("run", metavar="RUN")
@explain_options
def explain(run: str, **arguments: Any) -> None:
    """Make every decision about RUN again from its recorded inputs, and print the proofs, the oldest first.

    PACK is the folder of the pack; see `manglecp decisions explain`. The exit status is 1 if a decision differs.
    """
    runtime: options.RuntimeOptions = arguments["runtime"]
    with options.open_existing_store(runtime.location, runtime.store_key) as store, store.read_transaction() as tx:
        newest = store.decisions.newest(tx, _MAX_DECISIONS, run=run)
        records = list(read_records(store, newest[::-1]))
    if not records:
        raise click.ClickException(f"no decision about a run {run} is recorded; see `manglecp decisions list`")
    explain_records(f"Run {run}", records, **arguments)


@command.command("decide")
@click.argument("run", metavar="RUN")
@click.option("--step", metavar="N", type=click.IntRange(min=1), help="The step to decide.")
@click.option("--happened", is_flag=True, help="The effect of the step happened.")
@click.option("--did-not", is_flag=True, help="The effect did not happen: the step is retried.")
@click.option("--abort", is_flag=True, help="End the run without undoing its effects.")
@click.option("--output", "file", metavar="FILE", type=FILE, help="With --happened: the JSON that the action returned.")
@options.operator_option
@options.document_option
@options.store_option
@options.key_option
def decide(
    run: str,
    step: int | None,
    happened: bool,
    did_not: bool,
    abort: bool,
    file: str | None,
    operator: str,
    as_json: bool,
    location: str | None,
    store_key: bytes | None,
) -> None:
    """Decide a run that waits for a decision.

    State whether the effect of the step in doubt happened, or end the run. The decision is recorded in the ledger
    under your name. Afterwards a worker resumes the run, or you do with `manglecp runs resume`.
    """
    from manglecp.invoke import decide as decide_run  # slow to import

    if happened + did_not + abort != 1:
        raise click.UsageError("give one of --happened, --did-not and --abort")
    verdict: Verdict = "happened" if happened else "did_not" if did_not else "abort"
    if verdict == "abort" and step is not None:
        raise click.UsageError("--abort ends the whole run: leave --step out")
    if verdict != "abort" and step is None:
        raise click.UsageError("give the step with --step N; `manglecp runs show` lists the steps")
    if file is not None and verdict != "happened":
        raise click.UsageError("--output goes with --happened only")
    output = None if file is None else msgspec.json.encode(read_json(file))
    with options.open_existing_store(location, store_key) as store:
        state = decide_run(store, run, verdict, operator, step=step, output=output)
    lines = [f"run {run}: {state.value}"]
    if state.value == "running":
        lines.append(f"a worker of its pack resumes it, or: manglecp runs resume {run} PACK")
    elif state.value == "needs_decision":
        lines.append(f"another step is in doubt: manglecp runs show {run}")
    print_result({"run": run, "verdict": verdict, "state": state.value}, lines, as_json=as_json)


@command.command("resume", short_help="Execute a run that has no owner.")
@click.argument("run", metavar="RUN")
@click.argument("folder", metavar="PACK", type=options.PACK)
@options.operator_option
@options.tokens_option
@options.runtime_options
@options.message_option
def resume(
    run: str, folder: Path, operator: str, tokens: Path | None, runtime: options.RuntimeOptions, as_json: bool
) -> None:
    """Execute RUN in this process, with the PACK that it belongs to, if it has no owner; print the result.

    If RUN waits for a decision and no step is in doubt, it continues, and your decision to resume it is recorded in the
    ledger under your name. A run of a client with a token needs the server's --tokens. Ctrl-C cancels the run after
    the current step. The exit status is 0 if the run succeeded, 130 if it was cancelled, else 1.
    """
    from manglecp.cli.serve import AuthOptions

    auth = AuthOptions(tokens, jwt=None).load()
    raise click.exceptions.Exit(asyncio.run(_resume(run, folder, operator, runtime, auth, as_json=as_json)))


async def _resume(
    run: str, folder: Path, operator: str, runtime: options.RuntimeOptions, auth: AuthConfig, *, as_json: bool
) -> int:
    """Execute the run, print its result, and return the exit status."""
    from manglecp.cli.invocation import cancel_on_interrupt, exit_status, print_response, show_action_log
    from manglecp.invoke import decode_response, open_packs

    with show_action_log() as host_lines, ProgressLine("loading") as progress:
        async with open_packs([runtime.for_pack(folder)], runtime.open_store, refresh_identity=auth.current) as packs:
            (invoker,) = packs.invokers
            identity = _prepare_takeover(packs.store, run, invoker.domain.digest, operator)
            progress.doing = "running"
            cancel = asyncio.Event()
            with cancel_on_interrupt(cancel.set):
                cancel_task = asyncio.create_task(_forward_cancel(cancel, packs.store, run, identity))
                try:
                    outcome = await invoker.take_over(run)
                finally:
                    cancel_task.cancel()
            if outcome is None:
                _prepare_takeover(packs.store, run, invoker.domain.digest, operator)  # usually raises
                raise click.ClickException(f"another process has just resumed run {run}")
            with packs.store.read_transaction() as tx:
                stored_response = packs.store.runs.answer(tx, run)
    if stored_response is None:
        raise click.ClickException(f"run {run} is over, and its result is no longer stored")
    response = decode_response(stored_response)
    print_response(response, as_json=as_json, host_lines=host_lines)
    return exit_status(response)


async def _forward_cancel(cancel: asyncio.Event, store: Store, run: str, identity: str) -> None:
    """Record the request to cancel in the store, which the executor reads before the next step."""
    await cancel.wait()
    with store.write_transaction() as tx:
        store.runs.request_cancel(tx, run, identity)


def _prepare_takeover(store: Store, run: str, digest: str, operator: str) -> str:
    """Return the identity of the run's client; if the run waits for a decision, record that it is resumed.

    Raises ``NoRun``; raises ``NotOpen`` if the run is over, owned, in doubt, or not of the pack ``digest``. The message
    states what the operator can do, if anything.
    """
    from manglecp.invoke import decide, find_undecided_step

    with store.read_transaction() as tx:
        view = store.runs.show(tx, run)
        now_ms = tx.now_ms()
    if view is None:
        raise NoRun(run)
    stored_run = view.run
    if stored_run.state not in (RunState.RUNNING, RunState.NEEDS_DECISION):
        was = "was " if stored_run.state == RunState.CANCELLED else ""  # "it was cancelled", but "it succeeded"
        raise NotOpen(f"run {run} is over: it {was}{stored_run.state.value}")
    if stored_run.pack_digest != digest:
        raise NotOpen(
            f"run {run} belongs to another pack revision, or to another pack: {stored_run.pack_digest}. "
            "Restore the files of that revision, and give the same --set"
        )
    if stored_run.state == RunState.NEEDS_DECISION:
        step = find_undecided_step(view)
        if step is not None:
            raise NotOpen(f"step {step} of run {run} is in doubt; see `manglecp runs show {run}`, and decide first")
        decide(store, run, "resume", operator)
    elif stored_run.claim_until_ms > now_ms:
        seconds = -(-(stored_run.claim_until_ms - now_ms) // 1_000)  # the double negation rounds up
        raise NotOpen(f"run {run} is owned by {stored_run.owner}; if that process has ended, retry in {seconds} s")
    return stored_run.identity


def _time_text(at_ms: int) -> str:
    return instant_text(at_ms * 1_000_000)


def _document(view: RunView, *, with_steps: bool = False) -> dict[str, Any]:
    """Return a run as a JSON document."""
    document: dict[str, Any] = {"tool": _tool_name(view), **msgspec.to_builtins(view.run)}
    for name in ("created_ms", "touched_ms", "ended_ms"):
        at_ms = document.pop(name)
        document[name.removesuffix("_ms") + "_at"] = None if at_ms is None else _time_text(at_ms)
    if with_steps:
        sealed_members = ("input", "output", "note")  # None in every view
        rows = map(msgspec.to_builtins, view.steps)
        document["steps"] = [{name: value for name, value in row.items() if name not in sealed_members} for row in rows]
    return document


def _row(view: RunView) -> tuple[str, ...]:
    run = view.run
    state_reason = (run.code or "-") if run.step is None else f"step {run.step}: {run.code}"
    return (run.run_id, run.state.value, _tool_name(view), run.identity, _time_text(run.created_ms), state_reason)


def _detail_lines(view: RunView) -> Iterator[str]:
    from manglecp.cli.tool_text import decision_lines
    from manglecp.invoke import find_undecided_step

    run = view.run
    yield escape_invisible(f"run {run.run_id}: {run.state.value}{f', {run.code}' if run.code else ''}")
    yield escape_invisible(f"  {_tool_name(view)} for {run.identity}, admitted {_time_text(run.created_ms)}")
    yield f"  pack {run.pack_digest}"
    if run.ended_ms is not None:
        yield f"  ended {_time_text(run.ended_ms)}"
    elif run.owner is not None:
        yield escape_invisible(f"  owned by {run.owner} until {_time_text(run.claim_until_ms)}")
    elif run.state == RunState.RUNNING:
        yield "  without an owner; a worker of its pack resumes it"
    if run.takeovers:
        yield f"  taken over {count(run.takeovers, 'time')} since its last completed step"
    if run.cancel:
        yield "  cancellation requested"
    if view.steps:
        yield ""
        yield from table(("STEP", "ACTION", "STATE", "CODE", "BY"), map(_step_row, view.steps), empty="")
    if run.state == RunState.NEEDS_DECISION:
        yield ""
        indented = decision_lines(run.run_id, find_undecided_step(view))
        yield from (line.removeprefix("  ") for line in indented)


def _response_lines(stored: bytes | None) -> Iterator[str]:
    from manglecp.cli.tool_text import answer_lines, wire_error_lines
    from manglecp.invoke import decode_response

    if stored is not None:
        response = decode_response(stored)
        yield ""
        yield from wire_error_lines(response) if isinstance(response, WireError) else answer_lines(response)


def _step_row(step: StepRecord) -> tuple[str, ...]:
    attempt = f" #{step.attempt}" if step.attempt > 1 else ""
    number = f"{step.number}{' undo' if step.kind == 'undo' else ''}{attempt}"
    return (number, step.action, step.state.value, step.code or "-", step.decided_by or "-")


def _tool_name(view: RunView) -> str:
    return str(json.loads(view.admission)["tool"])
