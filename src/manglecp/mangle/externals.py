"""Predicates that are answered by Python: declared with ``external()`` and one mode, served by a callable.

The callable gets the values at the input positions (``+``), many at once if it can take them, and gives for each the
values at the other positions. It has a time budget of its own; an error in it, or a late answer, is an error of the
evaluation that names it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from manglecp.mangle.declarations import Predicate
from manglecp.mangle.errors import ValueFault
from manglecp.mangle.packages import Key
from manglecp.mangle.values import KINDS, Value

Args: TypeAlias = tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class External:
    """How an external predicate is answered.

    ``answer`` gets one tuple of inputs and gives tuples of outputs; with ``batch`` it gets a list of inputs and gives
    as many lists of outputs.
    """

    answer: Callable[..., Iterable[Any]]
    batch: bool = False
    seconds: float = 5.0


Externals: TypeAlias = Mapping[str, External]
Asked: TypeAlias = dict[Key, dict[Args, list[Args]]]
"""What was asked in one evaluation, and answered: by predicate and inputs, as whole argument tuples."""


def ask(predicate: Predicate, external: External, inputs: Sequence[Args]) -> dict[Args, list[Args]]:
    """All facts of an external predicate with these inputs, as whole argument tuples."""
    found: list[Any] = []
    failure: list[BaseException] = []

    def work() -> None:
        try:
            if external.batch:
                found.extend(list(rows) for rows in external.answer(list(inputs)))
            else:
                found.extend(list(external.answer(one)) for one in inputs)
        except Exception as error:
            failure.append(error)

    thread = threading.Thread(target=work, daemon=True, name=f"external {predicate.name}")
    thread.start()
    thread.join(external.seconds)
    if thread.is_alive():
        raise ValueFault(f"external predicate {predicate.name} did not answer within {external.seconds:g} s")
    if failure:
        raise ValueFault(f"external predicate {predicate.name} failed: {type(failure[0]).__name__}")
    if len(found) != len(inputs):
        raise ValueFault(f"external predicate {predicate.name} gave {len(found)} answers to {len(inputs)} questions")
    return {one: [_whole(predicate, one, row) for row in rows] for one, rows in zip(inputs, found, strict=True)}


def _whole(predicate: Predicate, inputs: Args, outputs: Any) -> Args:
    """Inputs and outputs in their columns."""
    modes = predicate.modes or ""
    row = tuple(outputs)
    if len(inputs) + len(row) != predicate.arity or any(type(value) not in KINDS for value in row):
        raise ValueFault(f"external predicate {predicate.name} gave something that is not a row of its outputs")
    given, computed = iter(inputs), iter(row)
    return tuple(next(given) if mode == "+" else next(computed) for mode in modes)
