"""Facts about a run: which facts the rules of a pack read, and how arguments and outputs become facts.

Arguments and outputs are plain JSON, so no object in them is a wrapped fact value. A value that a fact cannot hold
raises :class:`Fault`: if it were left out, policy would not see it, and it would still reach the action.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from manglecp.base.json import escape_token, resolve_pointer
from manglecp.base.source import Trust
from manglecp.mangle import Base, Fact, Key, Program, Value, closure
from manglecp.wire import Fault, plain_value

CALL_PREDICATES: Final = frozenset({"call", "call_arg", "call_value", "run_of", "run_arg"})
"""The predicates of the facts about a call."""
RUN_PREDICATES: Final = CALL_PREDICATES | {"run_id", "ran", "step_status", "step_value"}
"""The predicates of the facts about a call and its run."""
AFTER_RUN_ARITIES: Final[Mapping[str, int]] = {
    "asserts": 3,
    "asserts_during": 5,
    "retracts": 2,
    "suggests": 3,
    "continues_with": 2,
    "summary": 1,
}
"""The predicates that are evaluated at the end of a run, and their arities."""
_DENIALS: Final = (("prohibited", 2), ("intent_denied", 1), ("fact_denied", 2), ("effect_denied", 2))
Pointers: TypeAlias = Mapping[str, Sequence[tuple[str, str]]]
"""By action: the key of each value, and the JSON pointer to it in the output of the action."""


@dataclass(frozen=True, slots=True)
class RunRuleIndex:
    """The kinds of rules about runs that a pack has."""

    has_after_rules: bool
    """Whether a predicate of ``AFTER_RUN_ARITIES`` has a rule, and a rule reads facts about the run."""
    has_skip_rules: bool  # whether a rule derives ``skip_step``
    has_effect_rules: bool
    """Whether policy may deny effects."""
    judges_calls: bool
    """Whether a denial depends on the call: policy may permit the offer of a tool, and deny a call of the tool."""
    reads_arguments: bool
    """Whether a rule reads ``call_arg``."""
    reads_values: bool
    """Whether a rule reads ``call_value``."""
    reads_call: bool
    """Whether a rule reads a fact about the call."""
    extractors: Pointers
    """The values that become ``step_value`` facts (``extract``); empty if no rule reads ``step_value``."""
    keepers: Pointers
    """The values that are kept for a later run (``keep``)."""

    @classmethod
    def of(cls, program: Program, base: Base) -> RunRuleIndex:
        heads = {rule.head.predicate for rule in program.rules} | {fact.key[0] for fact in program.facts}
        reads: dict[Key, set[Key]] = {}  # by head, the predicates that rules of the pack read
        for rule in program.rules:
            if rule.clause.trust != Trust.KERNEL:
                reads.setdefault(rule.head.key, set()).update(rule.clause.reads)
        read_predicates = {name for keys in reads.values() for name, _ in keys}
        result = base.evaluate([], now=0, check=False)  # the same pointers for every request and time
        pointers: dict[str, dict[str, list[tuple[str, str]]]] = {"extract": {}, "keep": {}}
        for predicate, by_action in pointers.items():
            for action, key, pointer in sorted(tuple(map(str, row)) for row in result.rows((predicate, 3))):
                by_action.setdefault(action, []).append((key, pointer))
        reads_arguments = not {"call_arg", "run_arg"}.isdisjoint(read_predicates)
        return cls(
            has_after_rules=bool(RUN_PREDICATES & read_predicates and AFTER_RUN_ARITIES.keys() & heads),
            has_skip_rules="skip_step" in heads,
            has_effect_rules="effect_denied" in heads,
            judges_calls=any(name in CALL_PREDICATES for name, _ in closure(_DENIALS, reads)),
            reads_arguments=reads_arguments,
            reads_values="call_value" in read_predicates,
            reads_call=not CALL_PREDICATES.isdisjoint(read_predicates),
            extractors=pointers["extract"] if "step_value" in read_predicates else {},
            keepers=pointers["keep"],
        )

    def call_facts(self, tool: str, args: Mapping[str, Any]) -> list[Fact]:
        """Return the facts about a call that rules read: its tool and its arguments. Raises :class:`Fault`."""
        facts = [Fact("call", (tool,))] if self.reads_call else []
        for name, value in args.items() if self.reads_arguments or self.reads_values else ():
            try:
                argument = plain_value(value)
            except Fault as fault:
                raise fault.inside(name) from None
            if self.reads_arguments:
                facts.append(Fact("call_arg", (name, argument)))
            if self.reads_values:
                facts += [Fact("call_value", (at, plain_value(leaf))) for at, leaf in _leaves(value, _token(name))]
        return facts

    def step_values(self, action: str, output: Any) -> Iterator[tuple[str, Value]]:
        """Yield the key and the value of each extractor whose pointer leads to a value. Raises :class:`Fault`."""
        for key, value in find_values(self.extractors, action, output):
            yield key, plain_value(value)


def _leaves(value: Any, pointer: str) -> Iterator[tuple[str, Any]]:
    """Yield the values in ``value`` that are neither an array nor an object, each with its JSON Pointer."""
    if isinstance(value, Mapping):
        for name, member in value.items():
            yield from _leaves(member, pointer + _token(name))
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from _leaves(item, f"{pointer}/{index}")
    else:
        yield pointer, value


def _token(name: str) -> str:
    return f"/{escape_token(name)}"


def find_values(pointers: Pointers, action: str, output: Any) -> Iterator[tuple[str, Any]]:
    """Yield the key and the JSON value of each pointer of the action that leads to a value in the output."""
    for key, pointer in pointers.get(action, ()):
        try:
            yield key, resolve_pointer(output, pointer)
        except LookupError:
            continue
