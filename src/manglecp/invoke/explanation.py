"""Explanations of recorded decisions: a decision is made again from its recorded inputs, and then proven.

Repeating a decision needs its pack revision and its generated facts. If they are missing or differ, an explanation has
the recorded rules and reasons, and the differences.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from manglecp.base.proof_page import CUT, FactOrigin, PageSection, ProofNode
from manglecp.base.source import Trust
from manglecp.intent import Call, Decision, Domain, Identity, decide, make_redactor, secret_values
from manglecp.invoke.decision_log import DecisionDetails
from manglecp.mangle import Fact, MangleError, Value, instant_text, value_text
from manglecp.mangle.explain import BlockedRule, Node, RuleRef, read_fact
from manglecp.mangle.syntax import term_variables
from manglecp.store import StoredDecision
from manglecp.wire import WireError

MAX_NODES: Final = 400  # of one proof
MAX_DEPTH: Final = 24
MAX_SILENT_RULES: Final = 20
_APPROVAL_PREDICATES: Final = ("needs_approval", "four_eyes")


@dataclass(frozen=True)
class Explanation:
    """A recorded decision, and its proof if it was made again."""

    stored: StoredDecision
    details: DecisionDetails
    differences: tuple[str, ...] = ()
    """Why the decision was not made again, or how the second decision differs."""
    notes: tuple[str, ...] = ()
    proofs: tuple[ProofNode, ...] = ()
    silent: tuple[ProofNode, ...] = ()
    """Rules that could have denied, permitted or offered the tool, and derived nothing."""

    def rows(self) -> Iterator[tuple[str, str]]:
        """Yield names and values of the record."""
        stored, details, inputs = self.stored, self.details, self.details.inputs
        yield "decision", stored.id
        yield "time", instant_text(details.at_ns)
        yield "made for", stored.operation
        yield "principal", f"{stored.principal} ({details.trust})"
        if stored.run is not None:
            yield "run", stored.run
        yield "intent", details.intent or "-"
        yield "tool", stored.tool or "-"
        if inputs is not None:
            if inputs.permissions:
                yield "permissions", ", ".join(inputs.permissions)
            if inputs.proof.intent is not None and inputs.proof.intent.params:
                yield "parameters", _json(inputs.proof.intent.params)
            yield "arguments", _json(inputs.args)
            yield from (("client fact", _json(fact)) for fact in inputs.proof.facts)
            yield from (("call fact", fact) for fact in inputs.facts)
        else:
            yield "inputs", f"not recorded: {details.left_out}"
        yield from (("reason", reason) for reason in details.reasons)
        yield from (("public reason", reason) for reason in details.public_reasons)
        yield from (("rule", rule) for rule in details.rules)
        if details.code is not None:
            yield "error code", details.code
        yield "revision", stored.revision
        if details.facts_version:
            yield "facts version", details.facts_version
        yield "ledger entry", f"{stored.entry}, position {stored.position}"

    def document(self) -> dict[str, Any]:
        """Return the explanation for JSON."""
        members = {name: getattr(self, name) for name in ("differences", "notes", "proofs", "silent")}
        return {**record_document(self.stored, self.details), **msgspec.to_builtins(members)}

    def section(self) -> PageSection:
        stored, notes = self.stored, [*self.differences, *self.notes]
        lead = "; ".join(self.details.public_reasons or self.details.reasons)
        title = f"{stored.tool or self.details.intent}, {stored.operation}"
        return PageSection(title, stored.verdict, lead, notes, self.proofs, self.silent, [*self.rows()])


def record_document(stored: StoredDecision, details: DecisionDetails | None) -> dict[str, Any]:
    """Return a record for JSON; without ``details`` only its columns."""
    columns: dict[str, Any] = {name: getattr(stored, name) for name in stored.__struct_fields__ if name != "content"}
    columns["at"] = instant_text(columns.pop("at_ms") * 1_000_000)
    return columns | ({} if details is None else msgspec.to_builtins(details))


def explain_decision(stored: StoredDecision, details: DecisionDetails, domain: Domain | None = None) -> Explanation:
    """Return the explanation of a record. ``domain`` is the pack with which the decision is made again."""
    if differences := tuple(_repeat_obstacles(stored, details, domain)):
        return Explanation(stored, details, differences)
    assert domain is not None  # _repeat_obstacles reports a missing domain
    try:
        decision = repeat_decision(stored, details, domain)
    except (WireError, MangleError) as error:
        return Explanation(stored, details, (f"The decision could not be made again: {error}",))
    if differences := tuple(_differences(stored, details, decision)):
        return Explanation(stored, details, differences)
    return _ProofBuilder(decision).explanation(stored, details)


def repeat_decision(stored: StoredDecision, details: DecisionDetails, domain: Domain) -> Decision:
    """Make a decision again from its recorded inputs. Raises :class:`WireError` and :class:`MangleError`."""
    inputs = details.inputs
    assert inputs is not None
    identity = Identity(
        stored.principal, frozenset(inputs.permissions), details.trust, auto_confirm_effects=inputs.auto_confirm
    )
    facts = [read_fact(text, domain.program, details.at_ns) for text in inputs.facts]
    call = Call(stored.tool, inputs.args, inputs.proof)
    return decide(domain, call, identity, details.at_ns, facts, offered=details.offered, scope=details.scope)


def _repeat_obstacles(stored: StoredDecision, details: DecisionDetails, domain: Domain | None) -> Iterator[str]:
    if details.inputs is None:
        yield f"The inputs are not recorded: {details.left_out}."
    if domain is None:
        yield "Without the pack the decision is not made again: name its folder."
    elif domain.digest != stored.revision:
        yield f"The pack has the revision {domain.digest}, and the decision was made with {stored.revision}."
    elif domain.facts_version != details.facts_version:
        current, recorded_version = domain.facts_version or "none", details.facts_version or "none"
        yield f"The generated facts have the version {current}, and the decision was made with {recorded_version}."


def _differences(stored: StoredDecision, details: DecisionDetails, decision: Decision) -> Iterator[str]:
    pairs: tuple[tuple[str, Sequence[str], Sequence[str]], ...] = (
        ("verdict", (stored.verdict,), (decision.verdict,)),
        ("reasons", details.reasons, decision.reasons),
        ("public reasons", details.public_reasons, decision.public_reasons),
        ("digest of the inputs", (details.inputs_digest,), (decision.digest,)),
    )
    for name, recorded, repeated in pairs:
        if sorted(recorded) != sorted(repeated):
            texts = ["; ".join(values) or "none" for values in (recorded, repeated)]
            yield f"Different {name}: recorded {texts[0]}, made again {texts[1]}."


class _ProofBuilder:
    """Builds the proofs of one decision, without secret settings and intermediate predicates of the kernel."""

    def __init__(self, decision: Decision) -> None:
        self._decision = decision
        self._domain = decision.domain
        self._explainer = decision.result.explainer
        self._redact: Callable[[str], str] = make_redactor(secret_values(self._domain.pack))
        self._client_predicates = {fact["pred"] for fact in decision.call.inputs.facts}
        self._count = 0

    def explanation(self, stored: StoredDecision, details: DecisionDetails) -> Explanation:
        blocked = [rule for key, first in self._missed_goals() for rule in self._explainer.blocked(key, first)]
        silent = tuple(self._silent_node(rule) for rule in blocked[:MAX_SILENT_RULES])
        return Explanation(stored, details, (), tuple(self._notes(len(blocked))), tuple(self._proofs()), silent)

    def _notes(self, silent_count: int) -> Iterator[str]:
        decision = self._decision
        if decision.verdict != "deny" and "permitted_only" not in decision.judgement.rows:
            yield "No rule defines permitted, so that policy permits every call that it does not deny."
        if silent_count > MAX_SILENT_RULES:
            yield f"{silent_count - MAX_SILENT_RULES} more rules derived nothing."

    def _proofs(self) -> Iterator[ProofNode]:
        for goal in dict.fromkeys(self._goals()):
            self._count = 0
            proof = self._explainer.explain(goal)
            if proof is not None:
                yield self._node(proof.root, 1)
            else:  # no rule derives that a tool is not permitted
                absent = ProofNode(f"!{Fact('permitted', goal.args[:1]).text}", "absent")
                yield ProofNode(goal.text, "rule", premises=(ProofNode("permitted_only()", "server"), absent))

    def _goals(self) -> Iterator[Fact]:
        decision, tool = self._decision, self._decision.call.tool
        rows = decision.judgement.rows
        yield from decision.judgement.denials
        if decision.verdict == "ask":
            names = [name for name in _APPROVAL_PREDICATES if name in rows] or ["needs_confirmation"]
            yield from (Fact(name, row) for name in names for row in rows.get(name, ()))
        if decision.verdict != "deny":
            yield from (Fact("permitted", row) for row in rows.get("permitted", ()))
            if decision.definition is not None:
                yield from (Fact("final_selected", row) for row in decision.result.find(("final_selected", 3), tool))
        elif not decision.judgement.denials:
            yield from (Fact("excluded", row) for row in decision.result.find(("excluded", 3), tool))

    def _missed_goals(self) -> Iterator[tuple[tuple[str, int], Any]]:
        """Yield predicates of facts that would have changed the verdict, each with the first argument or None."""
        decision, tool = self._decision, self._decision.call.tool
        if decision.verdict != "deny":
            yield ("prohibited", 2), tool
            yield ("intent_denied", 1), None
            yield from ((("fact_denied", 2), predicate) for predicate in sorted(self._client_predicates))
            actions = decision.judgement.rows.get("kernel.may_run", ())
            yield from ((("effect_denied", 2), action) for _, action in sorted(actions))
        elif not decision.judgement.denials:
            yield from ((key, tool) for key in (("mandatory", 1), ("relevant", 2)))
        elif "permitted" not in decision.judgement.rows and "permitted_only" in decision.judgement.rows:
            yield ("permitted", 1), tool

    def _silent_node(self, rule: BlockedRule) -> ProofNode:
        values = _values(rule.rule, rule.bindings)
        note = f"stops at {rule.premise}{f' with {values}' if values else ''}"
        clause = self._redact(rule.rule.text)
        return ProofNode(clause.partition(" :- ")[0], "silent", rule.rule.place, clause, self._redact(note))

    def _node(self, node: Node, depth: int) -> ProofNode:
        self._count += 1
        premises: list[ProofNode] = []
        for premise in self._premises(node):
            if depth == MAX_DEPTH or self._count >= MAX_NODES:
                premises.append(ProofNode(CUT, "rule"))
                break
            premises.append(self._node(premise, depth + 1))
        fact, location, rule, values = self._redact(node.fact), "", "", ""
        origin = self._origin(node)
        if node.rule is not None:
            is_of_kernel = node.rule.clause.trust is Trust.KERNEL
            location, rule = "" if is_of_kernel else node.rule.place, self._redact(node.rule.text)
            values = "" if is_of_kernel else self._redact(_values(node.rule, node.bindings))
        elif node.origin == "given" and node.ground is not None:
            location = next(self._domain.fact_places(node.ground), "")
        elif node.origin == "server" and node.ground is not None:
            location = self._domain.provenance(node.ground)
        return ProofNode(fact, origin, location, rule, f"with {values}" if values else "", tuple(premises))

    def _origin(self, node: Node) -> FactOrigin:
        if node.origin == "derived":
            return "rule"
        if node.origin == "absent":
            return "absent"
        if node.origin != "session":
            return "server"
        return "client" if node.ground is not None and node.ground.predicate in self._client_predicates else "session"

    def _premises(self, node: Node) -> list[Node]:
        """Return the premises: kernel facts are replaced by their own premises, absences in kernel rules omitted."""
        shown_premises: dict[Node, None] = {}
        pending = [(premise, node) for premise in reversed(node.premises)]
        seen: set[Node] = set()
        while pending:
            premise, reader = pending.pop()
            if premise in seen or (premise.origin == "absent" and _is_kernel(reader)):
                continue
            seen.add(premise)
            if _is_kernel(premise):
                pending += [(inner, premise) for inner in reversed(premise.premises)]
            else:
                shown_premises[premise] = None
        return list(shown_premises)


def _is_kernel(node: Node) -> bool:
    return node.rule is not None and node.rule.clause.trust is Trust.KERNEL


def _values(rule: RuleRef, bindings: Mapping[str, Value]) -> str:
    """Return the values of the variables that are not in the rule's head: the derived fact shows the others."""
    head_variables = {variable.name for variable in term_variables(*rule.clause.head.args)}
    return ", ".join(f"{name} = {value_text(value)}" for name, value in bindings.items() if name not in head_variables)


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
