"""A pack whose effects can be counted by whoever survives.

Every effect appends a line to a file (``O_APPEND``, synced) that no process of the run owns. The three chains hold what
a crash can meet: reads between effects, effects that may be repeated and such that may not, effects side by side, and a
chain that fails and takes back what it did.

An action kills its host, or the coordinator as well, where a file beside the book says so: just before its effect or
just after it, once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

__all__ = ["CHAINS", "ONCE", "UNDONE", "write_pack"]

ACTIONS: Final = '''
import contextlib, os, signal
from manglecp import action


def _die(case, book, label, when):
    place = os.path.join(book, f"{case}.{label}.{when}")
    try:
        with open(place) as file:
            victims = [int(pid) for pid in file.read().split()]
        os.unlink(place)
    except FileNotFoundError:
        return
    for pid in victims:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def _do(case, book, label):
    _die(case, book, label, "before")
    file = os.open(os.path.join(book, "effects"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(file, f"{case} {label}\\n".encode())
    os.fsync(file)
    os.close(file)
    _die(case, book, label, "after")
    return {"label": label}


@action(effects=["none"])
def look(case: str, book: str) -> dict:
    """Change nothing."""
    return {"case": case}


@action(effects=["filesystem"])
def pay(case: str, book: str, label: str) -> dict:
    """Once is enough."""
    return _do(case, book, label)


@action(effects=["filesystem"], idempotent=True)
def put(case: str, book: str, label: str) -> dict:
    """As often as one likes."""
    return _do(case, book, label)


@action(effects=["filesystem"])
def fail(case: str, book: str, label: str) -> dict:
    """Nothing comes of it."""
    raise ValueError("it cannot be done")
'''

RULES: Final = """
macro("mixed", "Effects of both kinds, with reads between them.").
macro("back", "Fails at its end, and is taken back.").
macro("side", "Two effects side by side.").
mandatory(Tool) :- intent("go"), macro(Tool, _).

macro_step("mixed", 1, "look"). macro_step("mixed", 2, "pay"). macro_step("mixed", 3, "look").
macro_step("mixed", 4, "put"). macro_step("mixed", 5, "look"). macro_step("mixed", 6, "pay").

macro_step("back", 1, "pay"). macro_step("back", 2, "put"). macro_step("back", 3, "fail").
undo_step("back", 1, "pay"). undo_step("back", 2, "put"). reversible("back").
undo_in("back", N, "case", "case") :- undo_step("back", N, _).
undo_in("back", N, "book", "book") :- undo_step("back", N, _).
undo_value("back", 1, "label", "u1"). undo_value("back", 2, "label", "u2").

macro_step("side", 1, "look"). macro_step("side", 2, "pay"). macro_step("side", 3, "put"). macro_step("side", 4, "pay").
step_after("side", 2, 1). step_after("side", 3, 1). step_after("side", 4, 2). step_after("side", 4, 3).

label(1, "s1"). label(2, "s2"). label(3, "s3"). label(4, "s4"). label(6, "s6").
arg_value(Tool, N, "label", Label) :- macro_step(Tool, N, Action), Action != "look", label(N, Label).
"""

CHAINS: Final[dict[str, tuple[str, ...]]] = {
    "mixed": ("s2", "s4", "s6"),
    "back": ("s1", "s2", "s3", "u2", "u1"),
    "side": ("s2", "s3", "s4"),
}
"""The effects of each chain, in their order."""

ONCE: Final[dict[str, frozenset[str]]] = {
    "mixed": frozenset({"s2", "s6"}),
    "back": frozenset({"s1", "s3", "u1"}),
    "side": frozenset({"s2", "s4"}),
}
"""Those that must never happen twice."""

UNDONE: Final = frozenset({"back"})
"""Chains that fail, and leave nothing behind."""


def write_pack(folder: Path) -> None:
    (folder / "rules").mkdir(parents=True)
    (folder / "actions.py").write_text(ACTIONS)
    (folder / "rules" / "chains.mg").write_text(RULES)
    (folder / "pack.toml").write_text('[pack]\nname = "crash"\n\n[[intents]]\nname = "go"\ndescription = "Go"\n')
