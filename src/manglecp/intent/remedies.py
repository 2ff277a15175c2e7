"""Remedies of a denied call: the nearest arguments that are not denied, and facts that the client could state.

Candidate values come from the comparisons and joins in the derivations of the public reasons; for a caller that may see
policy, the derivations of the denials are used too. Each reported remedy was evaluated. The search is bounded, and not
complete. A value of a hidden rule or of a server fact is reported only if the caller may know it (``_may_know``), or
could find it with a few calls (``_is_reachable``); see OPEN-49.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, Final, Literal, TypeAlias, cast

import msgspec

from manglecp.intent.decision import Call, Decision, ProofInputs, Verdict, decide
from manglecp.intent.evaluation import IntentEvaluation, Selected
from manglecp.intent.redaction import EXPLAIN_POLICY, Visibility
from manglecp.intent.why_not import Exclusions, WhyNots
from manglecp.mangle import Fact, MangleError, NotPlain, Row, Value, ValueFault, evaluate_term, plain_json
from manglecp.mangle.syntax import Apply, Atom, Clause, Equality, Premise, Term, Variable
from manglecp.wire import WireError, schema_errors
from manglecp.wire.messages import IntentPayload, IntentRequest, Remedy

MAX_EVALUATIONS: Final = 64
_MAX_CHANGED: Final = 8  # arguments to change, and values to try for each
_MAX_SETS: Final = 4  # sets of facts
_WALL_FACTOR: Final = 5  # limit of wall time / limit of CPU time; CPU time counts, so that other threads end no search
_MAX_ROWS: Final = 1_000  # rows that are read of a predicate, and in one search for a failing premise
_MAX_DEPTH: Final = 4  # levels of nested rules whose premises are considered
_COMPARISONS: Final = frozenset({"=", ":lt", ":le", ":gt", ":ge"})
_OUTCOMES: Final[Mapping[Verdict, str]] = {"allow": "would be allowed", "ask": "would need an approval"}
Scalar: TypeAlias = str | float | bool


class _SearchLimitReached(Exception):
    """The limit of evaluations or the deadline is reached."""


def find_remedies(decision: Decision, seconds: float) -> tuple[Remedy, ...]:
    """Return remedies of a denied call, found in about ``seconds`` of CPU time; empty for every other decision."""
    if decision.verdict != "deny" or decision.scope != "proof" or not decision.call.tool:
        return ()
    remedies: list[Remedy] = []
    search = _Search(decision, seconds)
    for find in (search.arguments, search.facts):
        with suppress(_SearchLimitReached, MangleError, WireError):
            remedies.extend(find())
    search.explainer.set_deadline(None)
    return tuple(remedies)


class _Search:
    def __init__(self, decision: Decision, seconds: float) -> None:
        self.decision = decision
        self.visibility = Visibility(decision.domain, decision.identity)
        self.explainer = decision.result.explainer  # before the time limit begins, because this may import modules
        self.deadline = time.monotonic() + _WALL_FACTOR * seconds
        self.explainer.set_deadline(self.deadline)
        self.cpu_deadline = time.thread_time() + seconds
        self.slowest = 0.0  # seconds of the slowest evaluation so far
        scalars = ((name, _scalar(value)) for name, value in decision.call.args.items())
        self.args: dict[str, Any] = {name: value for name, value in scalars if value is not None}
        session = decision.call.inputs.session_facts(decision.domain, decision.at_ns)
        self.own_values = [*self.args.values(), *(_fact_scalar(arg) for fact in session for arg in fact.args)]
        self.reasons = re.sub(r"(?<=\d),(?=\d{3})", "", "\n".join(decision.public_reasons))  # 1,000 mentions 1000
        self.changes: dict[str, dict[Any, bool]] = {}
        """By argument, other values to try, and whether the caller may know what each value was computed from."""
        self.verdicts: dict[bytes, Verdict] = {}

    def arguments(self) -> Iterator[Remedy]:
        """Yield the nearest sufficient value of each argument; if no single value suffices, values of all arguments."""
        judgement, has_single = self.decision.judgement, False
        if judgement.denials:
            reasons = [Fact("public_reason", row) for row in judgement.rows.get("public_reason", ())]
            for fact in (*reasons, *(judgement.denials if self.visibility.explains_policy else ())):
                self._refute(fact, 0)
        values_by_name = {name: self._nearest_first(name)[:_MAX_CHANGED] for name in islice(self.changes, _MAX_CHANGED)}
        for name, values in values_by_name.items():
            for value in values:
                if self._is_disclosed({name: value}):
                    yield self._change({name: value})
                    has_single = True
                    break
        combined_values = {name: values[-1] for name, values in values_by_name.items()}
        if len(combined_values) > 1 and not has_single and self._verdict(combined_values) != "deny":
            for name, values in values_by_name.items():
                nearer = (value for value in values if self._verdict({**combined_values, name: value}) != "deny")
                combined_values[name] = next(nearer)
            if self._is_disclosed(combined_values):
                yield self._change(combined_values)

    def facts(self) -> Iterator[Remedy]:
        """Yield sets of facts that the client could state, found by the search of ``x-why_not``."""
        decision, inputs, visibility = self.decision, self.decision.call.inputs, self.visibility
        if inputs.intent is None:
            return
        evaluation = IntentEvaluation(
            domain=decision.domain,
            request=IntentRequest(id="why", payload=IntentPayload(intent=inputs.intent, facts=list(inputs.facts))),
            identity=decision.identity,
            result=decision.result,
            now=decision.at_ns,
            session=inputs.session_facts(decision.domain, decision.at_ns),
            selected=tuple(Selected(*cast(Any, row)) for row in decision.result.rows(("final_selected", 3))),
        )
        why_nots = WhyNots(evaluation, visibility, Exclusions(evaluation, visibility, ()), self.deadline)
        for facts in why_nots.of([decision.call.tool])[0].would_unlock[:_MAX_SETS]:
            is_pattern = any(None in fact.get("args", ()) for fact in facts)  # x-why_not evaluated patterns
            verdict = "allow" if is_pattern else self._verdict({}, facts)
            if facts and verdict != "deny":
                names = " and ".join(f"{fact['pred']}({_json(fact.get('args', []))[1:-1]})" for fact in facts)
                yield self._remedy(f"with {names} it {_OUTCOMES[verdict]}", verdict, facts=facts)

    # --- candidates -------------------------------------------------------------------------------------------------

    def _refute(self, fact: Fact, depth: int) -> None:
        """Collect changes with which the rules that derive the fact could fail, for one row of variables per rule."""
        for shape in self.explainer.shapes(fact.key) if depth < _MAX_DEPTH else ():
            start = shape.fix(shape.fixable, [fact.args[position] for position in shape.fixable])
            if start is not None:
                index, row = self.explainer.furthest(shape, start, _MAX_ROWS)
                for premise in shape.rule.clause.premises if index == len(shape.rule.premises) else ():
                    self._collect(premise, row, shape.rule.clause, depth, holds=True)

    def _collect(self, premise: Premise, row: Row, clause: Clause, depth: int, *, holds: bool) -> None:
        """Collect changes that make a premise fail if it ``holds``, or hold if it does not."""
        atom = Atom("=", premise.terms) if isinstance(premise, Equality) else premise.atom
        if atom.predicate in _COMPARISONS:
            self._compare(atom.args, row, clause)
        elif atom.predicate == ":list:member" and premise.negated == holds:
            member, items = (self._value(term, row) for term in atom.args)
            with suppress(NotPlain):
                for value in plain_json(items) if items is not None else ():
                    for name in [name for name, requested in self.args.items() if requested == _fact_scalar(member)]:
                        if (item := _scalar(value)) is not None:
                            self._add(name, item, self._may_know(item))
        elif atom.is_builtin:
            return
        elif premise.negated == holds:
            self._require(atom, row, clause, depth)
        else:
            values = [self._value(term, row) for term in atom.args]
            facts = (args for args, _ in islice(self.decision.result.model.facts(atom.key), _MAX_ROWS))
            fitting = (args for args in facts if all(map(lambda v, arg: v is None or v == arg, values, args)))
            if (args := min(fitting, key=str, default=None)) is not None:
                self._refute(Fact(atom.predicate, args), depth + 1)

    def _compare(self, terms: Sequence[Term], row: Row, clause: Clause) -> None:
        """Collect the bounds that a comparison sets to arguments, and for integers their neighbours."""
        left, right = (_fact_scalar(self._value(term, row)) for term in terms)
        if left is None or right is None or (left == right and any(isinstance(term, Apply) for term in terms)):
            return
        direct = [value for value, term in zip((left, right), terms, strict=True) if isinstance(term, Variable)]
        has_direct = any(requested in direct for requested in self.args.values())
        sides: list[tuple[Any, Term, Any, Term]] = [
            (left, terms[0], right, terms[1]),
            (right, terms[1], left, terms[0]),
        ]
        for value, term, other, other_term in sides:
            if not isinstance(term, Variable | Apply):
                continue
            is_known = self._may_know(other, other_term, clause)
            for name, requested in self.args.items():
                targets: list[Any] = [other]
                if requested != value:  # part of a sum: add the distance to the bound; part of a product: scale
                    if has_direct or not all(isinstance(number, int) for number in (requested, value, other)):
                        continue
                    targets = [requested + other - value, *([requested * other // value] if value else [])]
                for target in targets:
                    for number in (target - 1, target, target + 1) if isinstance(target, int) else (target,):
                        self._add(name, number, requested == value and is_known)

    def _require(self, atom: Atom, row: Row, clause: Clause, depth: int) -> None:
        """Collect changes with which a fact of the atom would hold."""
        values = [self._value(term, row) for term in atom.args]
        if atom.predicate in ("call_arg", "run_arg", "call_value"):
            name, value = str(values[0]).removeprefix("/"), _fact_scalar(values[1])
            if value is not None:
                self._add(name, value, self._may_know(value, atom.args[1], clause))
            for premise in clause.premises:  # a premise with the same variable has other values
                other = None if isinstance(premise, Equality) or premise.negated else premise.atom
                if isinstance(atom.args[1], Variable) and other not in (None, atom) and atom.args[1] in other.args:
                    self._add_column(name, other, other.args.index(atom.args[1]))
            return
        for shape in self.explainer.shapes(atom.key) if depth < _MAX_DEPTH else ():
            fixed_positions = [position for position in shape.fixable if values[position] is not None]
            start = shape.fix(fixed_positions, [values[position] for position in fixed_positions])
            if start is not None:
                index, furthest_row = self.explainer.furthest(shape, start, _MAX_ROWS)
                if index < len(shape.rule.premises):
                    self._collect(shape.as_written(index), furthest_row, shape.rule.clause, depth + 1, holds=False)
        for position, value in enumerate(map(_fact_scalar, values)):
            for name in [name for name, requested in self.args.items() if requested == value]:
                self._add_column(name, atom, position)

    def _add_column(self, name: str, atom: Atom, position: int) -> None:
        """Collect the values of a column that the caller may know."""
        rows = islice(self.decision.result.model.facts(atom.key), _MAX_ROWS)
        values = {value for args, _ in rows if (value := _fact_scalar(args[position])) is not None}
        for value in sorted(values, key=str):
            if self._may_know(value):
                self._add(name, value, is_known=True)

    def _add(self, name: str, value: Scalar, is_known: bool) -> None:
        if name in self.args and value != self.args[name]:
            changes = self.changes.setdefault(name, {})
            changes[value] = changes.get(value, False) or is_known

    def _nearest_first(self, name: str) -> list[Any]:
        requested, values = self.args[name], sorted(self.changes[name], key=str)
        return sorted(values, key=lambda value: 0 if isinstance(value, str | bool) else abs(value - requested))

    def _value(self, term: Term, row: Row) -> Value | None:
        with suppress(ValueFault):
            return evaluate_term(term, row, self.decision.at_ns)
        return None

    # --- disclosure -------------------------------------------------------------------------------------------------

    def _is_disclosed(self, values: Mapping[str, Any]) -> bool:
        """Return whether the call with these arguments is not denied, and the caller may learn them."""
        return self._verdict(values) != "deny" and all(
            self.changes[name][value] or self._is_reachable(name, value, values) for name, value in values.items()
        )

    def _may_know(self, value: Scalar, term: Term | None = None, clause: Clause | None = None) -> bool:
        """Return whether the caller may know the value of ``term`` in ``clause`` without any call.

        A local caller with ``explain_policy`` can read the files of the server. Any caller may know the constants of
        the rules that it may see, the values in its request, and those that the public reasons mention.
        """
        identity = self.decision.identity
        if identity.trust == "local" and EXPLAIN_POLICY in identity.permissions:
            return True
        is_constant = clause is not None and not isinstance(term, Variable | Apply)
        if is_constant and clause is not None and not self.visibility.hides(clause.head.key, clause):
            return True
        mention = rf"(?<![\w.-]){re.escape(str(value))}(?!\w|\.\d)"
        return value in self.own_values or (value != "" and re.search(mention, self.reasons) is not None)

    def _is_reachable(self, name: str, value: Scalar, other_values: Mapping[str, Any]) -> bool:
        """Return whether trying calls finds the integer ``value``: with powers of two, then by bisection."""
        requested = self.args[name]
        if not isinstance(value, int) or not isinstance(requested, int):
            return False
        sign = 1 if value < requested else -1
        target = sign * value
        low, high = _power_below(target), min(sign * requested, -_power_below(-target - 1))

        def is_permitted(number: int) -> bool:
            return self._verdict({**other_values, name: sign * number}) != "deny"

        if not is_permitted(low) or is_permitted(high):
            return False
        while high - low > 1 and low != target:
            middle = (low + high) // 2
            low, high = (middle, high) if is_permitted(middle) else (low, middle)
        return low == target

    # --- evaluation and texts ---------------------------------------------------------------------------------------

    def _verdict(self, changes: Mapping[str, Any], facts: Sequence[Any] = ()) -> Verdict:
        """Return the verdict with other arguments and further facts, memoised. Raises :class:`_SearchLimitReached`."""
        decision, key = self.decision, msgspec.json.encode((changes, facts), order="sorted")
        if key not in self.verdicts:
            started_at = time.thread_time()
            if len(self.verdicts) >= MAX_EVALUATIONS or started_at + self.slowest > self.cpu_deadline:
                raise _SearchLimitReached
            inputs = ProofInputs(decision.call.inputs.intent, (*decision.call.inputs.facts, *facts))
            call = Call(decision.call.tool, {**decision.call.args, **changes}, inputs)
            self.verdicts[key] = "deny"
            with suppress(WireError):
                domain, identity, now_ns = decision.domain, decision.identity, decision.at_ns
                tried = decide(domain, call, identity, now_ns, call.facts(domain), offered=decision.offered)
                schema = {} if tried.definition is None else tried.definition.input_schema
                self.verdicts[key] = "deny" if schema_errors(call.args, schema) else tried.verdict
            self.slowest = max(self.slowest, time.thread_time() - started_at)
        return self.verdicts[key]

    def _change(self, values: Mapping[str, Any]) -> Remedy:
        verdict = self._verdict(values)
        text = f"{' and '.join(f'{name} {_json(value)}' for name, value in values.items())} {_OUTCOMES[verdict]}"
        (name, value), *other_changes = values.items()
        requested = self.args[name]
        if not other_changes and isinstance(value, int) and isinstance(requested, int):
            bound, beyond = ("at most", value + 1) if value < requested else ("at least", value - 1)
            with suppress(_SearchLimitReached):
                if self._verdict({name: beyond}) == "deny":
                    text = f"{name} of {bound} {value}: {value} {_OUTCOMES[verdict]}, {beyond} would be denied"
        return self._remedy(text, verdict, args=dict(values))

    def _remedy(self, text: str, verdict: Verdict, **members: Any) -> Remedy:
        return Remedy(verdict=cast(Literal["allow", "ask"], verdict), text=self.visibility.text(text), **members)


def _scalar(value: Any) -> Scalar | None:
    """Return a JSON value as a scalar; None if it is something else."""
    if isinstance(value, float):
        return int(value) if value.is_integer() else value if math.isfinite(value) else None
    return value if isinstance(value, str | int) else None


def _fact_scalar(value: Value | None) -> Scalar | None:
    with suppress(NotPlain):
        return None if value is None else _scalar(plain_json(value))
    return None


def _power_below(number: int) -> int:
    """Return the largest number, up to ``number``, among 0, the powers of two, and their negatives."""
    if number > 0:
        return 1 << (number.bit_length() - 1)
    return -(1 << (-number - 1).bit_length()) if number else 0


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
