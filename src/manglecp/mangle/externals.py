"""External predicates: declared with ``external()`` and one mode, implemented by a Python callable.

The callable gets the values at the input positions (``+``), optionally in batches, and returns the values at the other
positions. It has its own time limit; an exception or timeout becomes an EvalError that names the predicate.
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
from manglecp.mangle.facts import Args
from manglecp.mangle.syntax import Key
from manglecp.mangle.values import KIND_NAMES

_POLL_SECONDS: Final = 0.05  # the interval at which the evaluation is checked for a stop


@dataclass(frozen=True, slots=True)
class External:
    """The implementation of an external predicate.

    ``answer`` maps one tuple of inputs to tuples of outputs. With ``batch``, it maps a list of tuples of inputs to a
    list of the same length, with the tuples of outputs for each.
    """

    answer: Callable[..., Iterable[Any]]
    batch: bool = False
    seconds: float = 5.0  # wall time of one call


Externals: TypeAlias = Mapping[str, External]
ExternalCalls: TypeAlias = dict[Key, dict[Args, list[Args]]]
"""The calls of one evaluation: by predicate and inputs, the resulting facts as whole argument tuples."""


def replay_calls(calls: ExternalCalls, predicates: Mapping[Key, Predicate]) -> Externals:
    """Return externals that repeat the results of earlier calls, and return nothing for other inputs."""

    def replay(predicate: Predicate) -> External:
        outputs = [i for i in range(predicate.arity) if i not in predicate.inputs()]
        rows_by_inputs = calls.get(predicate.key, {})
        return External(lambda inputs: [tuple(row[i] for i in outputs) for row in rows_by_inputs.get(inputs, ())])

    return {predicate.name: replay(predicate) for predicate in predicates.values() if predicate.external}


def call_external(
    predicate: Predicate,
    external: External,
    inputs: Sequence[Args],
    accepts: Callable[[Key, Args], bool],
    checkpoint: Callable[[], None],
) -> dict[Args, list[Args]]:
    """Call an external predicate; return its facts by inputs, as whole argument tuples.

    ``accepts`` checks a tuple against the declaration; ``checkpoint`` raises if the evaluation was stopped. The call
    runs in a thread, so that neither a timeout nor ``checkpoint`` waits for it. Raises ValueFault.
    """
    results: list[list[Args]] = []
    failures: list[BaseException] = []

    def work() -> None:
        try:
            answers = list(external.answer(list(inputs))) if external.batch else map(external.answer, inputs)
            if isinstance(answers, list) and len(answers) != len(inputs):
                count = f"{len(answers)} results for {len(inputs)} inputs"
                raise ValueFault(f"external predicate {predicate.name} returned {count}")
            for call_inputs, output_rows in zip(inputs, answers, strict=True):
                results.append([_complete_row(predicate, call_inputs, outputs, accepts) for outputs in output_rows])
        except BaseException as error:  # raised again by the thread of the evaluation
            failures.append(error)

    thread = threading.Thread(target=work, daemon=True, name=f"external {predicate.name}")
    thread.start()
    deadline = time.monotonic() + external.seconds
    while thread.is_alive():
        seconds_left = deadline - time.monotonic()
        if seconds_left <= 0:
            raise ValueFault(f"external predicate {predicate.name} did not return within {external.seconds:g} s")
        thread.join(min(seconds_left, _POLL_SECONDS))
        checkpoint()
    if failures and isinstance(failures[0], ValueFault):
        raise failures[0]
    if failures:  # only the type of the exception: its text may be secret
        raise ValueFault(f"external predicate {predicate.name} failed: {type(failures[0]).__name__}")
    return dict(zip(inputs, results, strict=True))


def _complete_row(predicate: Predicate, inputs: Args, outputs: Any, accepts: Callable[[Key, Args], bool]) -> Args:
    row = outputs if type(outputs) is tuple else tuple(outputs) if isinstance(outputs, list) else None
    if row is None or len(inputs) + len(row) != predicate.arity or any(type(value) not in KIND_NAMES for value in row):
        raise ValueFault(f"external predicate {predicate.name} returned a value that is not a row of its outputs")
    remaining_inputs, remaining_outputs = iter(inputs), iter(row)
    args = tuple(next(remaining_inputs) if mode == "+" else next(remaining_outputs) for mode in predicate.modes or "")
    if not accepts(predicate.key, args):
        raise ValueFault(f"external predicate {predicate.name} returned a row that does not fit its declaration")
    return args


def check_names(externals: Externals, predicates: Mapping[Key, Predicate]) -> None:
    """Raise AnalysisError if the program does not declare one of ``externals`` as an external predicate."""
    declared = {predicate.name for predicate in predicates.values() if predicate.external}
    unknown = sorted(set(externals) - declared)
    if unknown:
        similar = closest_match(unknown[0], declared)
        fix = f"did you mean {similar}?" if similar else "declare it with descr [external(), mode(…)]"
        message = f"the program has no external predicate {unknown[0]}"
        raise AnalysisError([Diagnostic("analysis", message, fix=fix)])
