"""Predicates that are answered by Python: declared with ``external()`` and one mode, served by a callable.

The callable gets the values at the input positions (``+``), many at once if it can take them, and gives for each the
values at the other positions. It has a time budget of its own; an error in it, or a late answer, is an error of the
evaluation that names it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from manglecp.base.diagnostic import Diagnostic
from manglecp.base.suggestions import closest_match
from manglecp.mangle.declarations import Predicate
from manglecp.mangle.errors import AnalysisError, ValueFault
from manglecp.mangle.syntax import Key
from manglecp.mangle.values import KINDS, Value

Args: TypeAlias = tuple[Value, ...]
_PATIENCE: Final = 0.05
"""Seconds between two looks at whether the evaluation is to go on."""


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


def ask(
    predicate: Predicate,
    external: External,
    inputs: Sequence[Args],
    accepts: Callable[[Key, Args], bool],
    checkpoint: Callable[[], None],
) -> dict[Args, list[Args]]:
    """All facts of an external predicate with these inputs, as whole argument tuples that its declaration ``accepts``.

    It runs in a thread of its own, so that neither its budget nor a ``checkpoint`` of the evaluation waits for it.
    """
    found: list[list[Args]] = []
    failure: list[BaseException] = []

    def work() -> None:
        try:
            answers = list(external.answer(list(inputs))) if external.batch else map(external.answer, inputs)
            if isinstance(answers, list) and len(answers) != len(inputs):
                count = f"{len(answers)} answers to {len(inputs)} questions"
                raise ValueFault(f"external predicate {predicate.name} gave {count}")
            for one, rows in zip(inputs, answers, strict=True):
                found.append([_whole(predicate, one, row, accepts) for row in rows])
        except BaseException as error:  # whatever it is, it ends here, and the evaluation says so
            failure.append(error)

    thread = threading.Thread(target=work, daemon=True, name=f"external {predicate.name}")
    thread.start()
    deadline = time.monotonic() + external.seconds
    while thread.is_alive():
        left = deadline - time.monotonic()
        if left <= 0:
            raise ValueFault(f"external predicate {predicate.name} did not answer within {external.seconds:g} s")
        thread.join(min(left, _PATIENCE))
        checkpoint()
    if failure:
        raise _fault(predicate, failure[0])
    return dict(zip(inputs, found, strict=True))


def _fault(predicate: Predicate, error: BaseException) -> ValueFault:
    """What its own code says about an error may be secret; its kind is not."""
    if isinstance(error, ValueFault):
        return error
    return ValueFault(f"external predicate {predicate.name} failed: {type(error).__name__}")


def _whole(predicate: Predicate, inputs: Args, outputs: Any, accepts: Callable[[Key, Args], bool]) -> Args:
    """Inputs and outputs in their columns."""
    row = outputs if type(outputs) is tuple else tuple(outputs) if isinstance(outputs, list) else None
    if row is None or len(inputs) + len(row) != predicate.arity or any(type(value) not in KINDS for value in row):
        raise ValueFault(f"external predicate {predicate.name} gave something that is not a row of its outputs")
    given, computed = iter(inputs), iter(row)
    args = tuple(next(given) if mode == "+" else next(computed) for mode in predicate.modes or "")
    if not accepts(predicate.key, args):
        raise ValueFault(f"external predicate {predicate.name} gave a row that its declaration does not take")
    return args


def check_names(externals: Externals, predicates: Mapping[Key, Predicate]) -> None:
    """Refuse answers to what nobody can ask."""
    known = {predicate.name for predicate in predicates.values() if predicate.external}
    unknown = sorted(set(externals) - known)
    if unknown:
        similar = closest_match(unknown[0], known)
        fix = f"did you mean {similar}?" if similar else "declare it with descr [external(), mode(…)]"
        message = f"the program has no external predicate {unknown[0]}"
        raise AnalysisError([Diagnostic("analysis", message, fix=fix)])
