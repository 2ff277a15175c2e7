"""Runs and their steps, for people and as documents. Neither tells a value: those are for whoever carries a run out."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from manglecp.base.text import escape_invisible as visible
from manglecp.cli.invocation_text import what_to_decide
from manglecp.cli.outputs import count
from manglecp.invoke import doubted_step
from manglecp.mangle import instant_text
from manglecp.store import RunState, Shown, Step

__all__ = ["detail", "run_document", "table"]

_HEADINGS: Final = ("RUN", "STATE", "TOOL", "FOR", "SINCE", "ABOUT")
_STEPS: Final = ("STEP", "ACTION", "STATE", "CODE", "BY")


def time_text(at_ms: int) -> str:
    """Milliseconds since 1970 as a time in UTC."""
    return instant_text(at_ms * 1_000_000)


def run_document(shown: Shown, *, steps: bool = False) -> dict[str, Any]:
    """A run as ``--json`` prints it; its steps only if they are asked for."""
    document: dict[str, Any] = {"tool": _tool(shown), **msgspec.to_builtins(shown.run)}
    for name in ("created_ms", "touched_ms", "ended_ms"):
        at_ms = document.pop(name)
        document[name.removesuffix("_ms") + "_at"] = None if at_ms is None else time_text(at_ms)
    if steps:
        document["steps"] = [_step_document(step) for step in shown.steps]
    return document


def _step_document(step: Step) -> dict[str, Any]:
    members: dict[str, Any] = msgspec.to_builtins(step)
    return {name: value for name, value in members.items() if name not in ("input", "output", "note")}


def table(runs: Sequence[Shown]) -> Iterator[str]:
    """A heading and a line a run, in columns; a sentence where there are none."""
    if not runs:
        yield "There are no such runs."
        return
    yield from _laid_out(_HEADINGS, [_row(one) for one in runs])


def _row(shown: Shown) -> tuple[str, ...]:
    run = shown.run
    return (run.run_id, run.state.value, _tool(shown), run.identity, time_text(run.created_ms), _about(shown))


def _about(shown: Shown) -> str:
    run = shown.run
    if run.step is not None:
        return f"step {run.step}: {run.code}"
    return run.code or "-"


def detail(shown: Shown) -> Iterator[str]:
    """One run with its steps and, where it waits for a person, what there is to decide."""
    run = shown.run
    yield visible(f"run {run.run_id}: {run.state.value}{f', {run.code}' if run.code else ''}")
    yield visible(f"  {_tool(shown)} for {run.identity}, accepted {time_text(run.created_ms)}")
    yield f"  pack {run.pack_digest}"
    if run.ended_ms is not None:
        yield f"  ended {time_text(run.ended_ms)}"
    elif run.owner is not None:
        yield visible(f"  carried out by {run.owner}, claimed until {time_text(run.claim_until_ms)}")
    elif run.state == RunState.RUNNING:
        yield "  carried out by nobody; a worker of its pack takes it up"
    if run.takeovers:
        yield f"  taken over {count(run.takeovers, 'time')} since a step of it was last done"
    if run.cancel:
        yield "  somebody asked to cancel it"
    if shown.steps:
        yield ""
        yield from _laid_out(_STEPS, [_step_row(step) for step in shown.steps])
    if run.state == RunState.NEEDS_DECISION:
        yield ""
        yield from (line.removeprefix("  ") for line in what_to_decide(run.run_id, doubted_step(shown)))


def _step_row(step: Step) -> tuple[str, ...]:
    number = f"{step.number}{' undo' if step.kind == 'undo' else ''}{f' #{step.attempt}' if step.attempt > 1 else ''}"
    return (number, step.action, step.state.value, step.code or "-", step.decided_by or "-")


def _tool(shown: Shown) -> str:
    return str(json.loads(shown.admission)["tool"])


def _laid_out(headings: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(len(row[n]) for row in (headings, *rows)) for n in range(len(headings))]
    for row in (headings, *rows):
        yield visible("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
