"""Questions about runs. Values are read only where they are asked for, and only then opened."""

from __future__ import annotations

from typing import Any, Final

from manglecp.store.database import Transaction
from manglecp.store.runs.errors import NoRun
from manglecp.store.runs.model import Claimed, Run, RunState, Shown, Step, StepState, Values
from manglecp.store.runs.sealed import ValueSeals

__all__ = ["answer_of", "find_by_key", "find_run", "load", "newest", "show"]

# The members of the structs, in their order: rows become structs by position.
_RUN: Final = Run.__struct_fields__
_STEP: Final = tuple(name for name in Step.__struct_fields__ if name not in ("input", "output", "note"))

_SELECT_RUN: Final = f"SELECT {', '.join(_RUN)} FROM runs"
_SELECT_VALUES: Final = """
    SELECT admission, plan, args, slots FROM runs JOIN run_values USING (run_id) WHERE run_id = ?
"""
_SELECT_STEPS: Final = f"SELECT {', '.join(_STEP)} FROM steps WHERE run_id = ? ORDER BY seq"
_SELECT_STEPS_WITH_VALUES: Final = (
    f"SELECT {', '.join(_STEP)}, input, output, note FROM steps WHERE run_id = ? ORDER BY seq"
)


def find_run(tx: Transaction, run_id: str) -> Run | None:
    """The run of this id, None if there is none."""
    row = tx.execute(f"{_SELECT_RUN} WHERE run_id = ?", (run_id,)).fetchone()
    return None if row is None else _run(row)


def find_by_key(tx: Transaction, identity: str, request_key: str) -> Run | None:
    """The run that this identity asked for with this key, None if there is none."""
    row = tx.execute(f"{_SELECT_RUN} WHERE identity = ? AND request_key = ?", (identity, request_key)).fetchone()
    return None if row is None else _run(row)


def show(tx: Transaction, run_id: str) -> Shown | None:
    """A run with its admission and its steps, without their values; None if there is none."""
    run = find_run(tx, run_id)
    if run is None:
        return None
    admission = tx.execute("SELECT admission FROM run_values WHERE run_id = ?", (run_id,)).fetchone()[0]
    steps = tx.execute(_SELECT_STEPS, (run_id,)).fetchall()
    return Shown(run=run, admission=admission, steps=tuple(map(_step, steps)))


def load(tx: Transaction, seals: ValueSeals, run_id: str) -> Claimed:
    """A run with all of its values."""
    run = find_run(tx, run_id)
    if run is None:
        raise NoRun(run_id)
    admission, *sealed = tx.execute(_SELECT_VALUES, (run_id,)).fetchone()
    names = ("plan", "args", "slots")
    values = {name: seals.open_run(value, run_id, name) for name, value in zip(names, sealed, strict=True)}
    rows = tx.execute(_SELECT_STEPS_WITH_VALUES, (run_id,)).fetchall()
    steps = tuple(_step_with_values(row, run_id, seals) for row in rows)
    return Claimed(run=run, admission=admission, values=Values(**values), steps=steps)


def newest(tx: Transaction, state: RunState | None, limit: int) -> tuple[Run, ...]:
    """Runs in one state or in any, the newest first."""
    if state is None:
        rows = tx.execute(f"{_SELECT_RUN} ORDER BY created_ms DESC, run_id LIMIT ?", (limit,))
    else:
        rows = tx.execute(
            f"{_SELECT_RUN} WHERE state = ? ORDER BY created_ms DESC, run_id LIMIT ?", (state.value, limit)
        )
    return tuple(_run(row) for row in rows.fetchall())


def answer_of(tx: Transaction, seals: ValueSeals, run_id: str) -> bytes | None:
    """None if it has no answer yet, or none any more."""
    row = tx.execute("SELECT answer FROM run_values WHERE run_id = ?", (run_id,)).fetchone()
    if row is None:
        raise NoRun(run_id)
    return seals.open_run(row[0], run_id, "answer")


def _run(row: tuple[Any, ...]) -> Run:
    values = dict(zip(_RUN, row, strict=True))
    values["state"] = RunState(values["state"])
    values["cancel"] = bool(values["cancel"])
    return Run(**values)


def _step(row: tuple[Any, ...]) -> Step:
    return Step(**_step_members(row))


def _step_with_values(row: tuple[Any, ...], run_id: str, seals: ValueSeals) -> Step:
    members = _step_members(row[:-3])
    place = (run_id, members["kind"], members["number"], members["attempt"])
    for name, sealed in zip(("input", "output", "note"), row[-3:], strict=True):
        members[name] = seals.open_step(sealed, *place, name)
    return Step(**members)


def _step_members(row: tuple[Any, ...]) -> dict[str, Any]:
    members = dict(zip(_STEP, row, strict=True))
    members["state"] = StepState(members["state"])
    members["repeatable"] = bool(members["repeatable"])
    return members
