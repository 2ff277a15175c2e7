"""Durable runs: what a chain with effects must not forget when the process that carries it out dies.

Three ideas:

* **A chain is data.** A step has a row before it is sent and another state after it; to recover is to go on at the
  first step that has no row.
* **A claim that lapses, and a fence.** A run is one owner's for a while. Whoever takes it over raises the fence, and
  every statement of the owner before tests it: late means nothing is written.
* **In doubt is a state.** Started and not finished means that nobody knows. An action that may be repeated is; for any
  other the database refuses a second attempt until a person has decided.

Data meets the modules in this order:

    model, errors       runs, steps, decisions; what can go wrong
    tables              where they are kept, and what must never happen there
    sealed              values, closed and opened
    holding             the statement that tests the fence and locks
    steps, claiming     what is written under it; whose a run is
    keeping             what it leaves for a later one
    deciding, sweeping  what people say; what is forgotten
    reading, waiting    questions
    journal             all of it
"""

from manglecp.store.runs.claiming import POISONED
from manglecp.store.runs.deciding import DID_NOT_HAPPEN
from manglecp.store.runs.errors import Fenced, KeyTaken, NoRun, NotOpen
from manglecp.store.runs.journal import Runs
from manglecp.store.runs.model import (
    Claimed,
    Decision,
    NewRun,
    Retention,
    Run,
    RunState,
    Shown,
    Step,
    StepEnd,
    StepKind,
    StepSettled,
    StepStart,
    StepState,
    Values,
    Verdict,
)
from manglecp.store.runs.sweeping import Swept
from manglecp.store.runs.tables import RUNS
from manglecp.store.runs.waiting import pauses

__all__ = [
    "DID_NOT_HAPPEN",
    "POISONED",
    "RUNS",
    "Claimed",
    "Decision",
    "Fenced",
    "KeyTaken",
    "NewRun",
    "NoRun",
    "NotOpen",
    "Retention",
    "Run",
    "RunState",
    "Runs",
    "Shown",
    "Step",
    "StepEnd",
    "StepKind",
    "StepSettled",
    "StepStart",
    "StepState",
    "Swept",
    "Values",
    "Verdict",
    "pauses",
]
