"""The evidence of a run's turns: call spec, constraints, calls and their results, as digests, ids and codes.

What follows from the policy package and the stored chain is computed once per chain (:class:`ChainTerms`). A package
cannot ask for less than the server does: every turn claims governance, shows the four controls below, and needs an
approval at the highest tier. A server's turn has no model: rows about what was shown (renders, queue, views) are about
the response and the ledger.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import msgspec

from manglecp.base.digest import digest_text
from manglecp.harness import TurnBuilder, digest_v1 as digest
from manglecp.harness.policy import PolicyPackage
from manglecp.invoke.calls import EVENT_STATUS, ActionCall, StepOutcome
from manglecp.pack import ActionDescription

# --- call spec -----------------------------------------------------------------------------------------------------

Pattern: TypeAlias = Literal["single", "chain", "parallel"]

ADMIT: Final = "manglecp.admit"
"""The tool of the server's own that a run begins with."""
ADMIT_SCHEMA: Final = digest(
    {
        "type": "object",
        "properties": {"run": {"type": "string"}, "turn": {"type": "integer"}},
        "required": ["run", "turn"],
        "additionalProperties": False,
    }
)
BASE_CLAIM: Final = "capabilities.change_morphisms"
_TIERS: Final = ("low", "moderate", "high")
_CONTROLS: Final = ("policyProvenance", "guardrailStages", "observabilityMode", "riskTier")
_CHECKPOINTS: Final = ("high",)
_ANY: Final = "turn1_"
"""The id of a call in a call spec that is to hold for any."""


def claim_of(action: ActionDescription) -> str:
    """The claim that an effect of this action needs, beside the base claim."""
    return f"{BASE_CLAIM}.{action.aid.replace('.', '_')}"


class ChainTerms(msgspec.Struct, frozen=True, kw_only=True, eq=False, dict=True):
    """What is fixed for all runs of a chain that are admitted under the same policies."""

    model_ref: str
    """What decided: ``rules:<pack>@<version>+<pack digest>``."""
    package: PolicyPackage
    """The policies that runs are admitted under."""
    pinned: str | None
    """The package digest that the pack pins."""
    actions: Mapping[str, ActionDescription]
    """The actions of the stored chain, those that undo included."""
    plugin_digest: str
    """Of the plugin that its hosts run."""
    gates: int
    risk_tier: str = "low"
    """At least; the actions may make it higher."""
    sandbox: str = "strict"
    pattern: Pattern = "chain"
    spare_turns: int = 16
    """Turns beyond one for each gate and the last: resumed, repeated and cancelled ones. Undoing is counted apart."""

    @cached_property
    def tier(self) -> str:
        """The risk tier of the highest lease tier of the chain, and at least :attr:`risk_tier`."""
        if self.risk_tier not in _TIERS:
            return self.risk_tier  # no turn opens under a word that is none
        highest = max((action.tier for action in self.actions.values()), default=0)
        least = "low" if highest <= 0 else "moderate" if highest < 3 else "high"
        return max(least, self.risk_tier, key=_TIERS.index)

    @property
    def max_turns(self) -> int:
        """Every gate once, every effect undone once, the last turn, and what is spare."""
        return 2 * self.gates + 1 + self.spare_turns

    @property
    def needed(self) -> int:
        """Turns that it takes if nothing fails."""
        return self.gates + 1

    @cached_property
    def admitted(self) -> int:
        """Turns that the package admits; as many as are needed if it does not say."""
        most: int = self.package.contents.get("stop", {}).get("maxTurns", self.needed)
        return most

    @cached_property
    def host(self) -> str:
        """Who says what came of a call, if no person does."""
        return f"toolhost/{self.plugin_digest}"

    @cached_property
    def schemas(self) -> Mapping[str, str]:
        """The digest of each tool's input schema."""
        ours = {action.aid: digest(dict(action.input_schema)) for action in self.actions.values()}
        return dict(sorted({ADMIT: ADMIT_SCHEMA, **ours}.items()))

    def schema_of(self, action: ActionDescription) -> str:
        """The digest of an action's input schema: its own, whether or not the chain has an action of that name."""
        if self.actions.get(action.name) is action:
            return self.schemas[action.aid]
        return digest(dict(action.input_schema))

    @cached_property
    def documents(self) -> Mapping[str, Any]:
        """The policy documents. What the package says of tools stands; otherwise nothing is loaded late, the server is
        the only caller, and examples are those of the schemas."""
        examples = {action.aid: list(action.input_schema.get("examples", ())) for action in self.actions.values()}
        return {
            "deferPolicy": {"eager": list(self.schemas), "deferred": []},
            "allowedCallers": {"tools": {name: ["direct"] for name in self.schemas}},
            "toolExamples": {"tools": {name: shown for name, shown in sorted(examples.items()) if shown}},
            **self.package.documents(),
            "toolCatalog": {"catalogId": "chain", "tools": self._tools},
        }

    @property
    def _tools(self) -> list[dict[str, str]]:
        return [{"toolName": name, "schemaDigest": schema} for name, schema in self.schemas.items()]

    @cached_property
    def examples(self) -> Mapping[str, str]:
        """The digest of each tool's examples, where it has any."""
        return {name: digest(list(inputs)) for name, inputs in self.documents["toolExamples"]["tools"].items()}

    @cached_property
    def spec(self) -> Mapping[str, Any]:
        """The call spec of a turn whose calls run one after the other, with a call id that stands for any."""
        contents, documents = self.package.contents, self.documents
        stop = dict(contents.get("stop", {}))
        stop["maxTurns"] = min(self.max_turns, stop.get("maxTurns", self.max_turns))
        same = contents.get("sandbox", {}).get("profile") == self.sandbox
        sandbox = self.package.digests["sandbox"] if same else digest({"profile": self.sandbox})
        return {
            **self.package.call_spec(session_id="", turn_index=0, model_ref="", prompt_digest=""),
            "orchestrationRole": "orchestrator",
            "toolPolicy": {"allowedTools": self._tools},
            "toolCatalogDigest": digest(documents["toolCatalog"]),
            "deferPolicyDigest": digest(documents["deferPolicy"]),
            "toolExampleDigest": digest(documents["toolExamples"]),
            "allowedCallersDigest": digest(documents["allowedCallers"]),
            "callId": _ANY,
            "modelRef": self.model_ref,
            "executionPattern": self.pattern,
            "riskTier": self.tier,
            "runtimeSandboxRef": f"sandbox/{self.sandbox}@{sandbox}",
            "stopPolicy": stop,
            "toolTransportPolicy": {"parallelToolCalls": False, "ordering": "strict"},
        }

    def template(self, approval: str | None, *, parallel: bool) -> TurnBuilder:
        """A turn in which nothing has happened, but for its call id. ``parallel``: calls of it may run in parallel."""
        template = self._parallel if parallel else self._strict
        if approval is None:
            return template
        profile = self.package.governance_profile(self.pinned, self.tier, approval)
        return template.with_constraints({"governanceProfile": profile})

    @cached_property
    def _strict(self) -> TurnBuilder:
        return TurnBuilder.open(self.spec, self._constraints())

    @cached_property
    def _parallel(self) -> TurnBuilder:
        transport = self.package.contents.get("transport", {})  # what the package forbids stays forbidden
        policy = {
            "parallelToolCalls": transport.get("parallelToolCalls", True),
            "ordering": transport.get("ordering", "any"),
        }
        return TurnBuilder.open({**self.spec, "toolTransportPolicy": policy}, self._constraints())

    def _constraints(self) -> dict[str, Any]:
        """What stands beside the evidence of a turn, to be read only."""
        package = self.package
        found = package.constraints(pinned=self.pinned, risk_tier=self.tier, approval_ref=None)
        demanded: dict[str, Any] = found.get("governanceConstraints", {})
        tools: dict[str, Any] = {"requireResultProvenance": True}
        if (listed := package.contents.get("tools")) is not None:
            allowed = [tool["toolName"] for tool in listed["tools"] if tool.get("allowed", True)]
            tools["allowedTools"] = [ADMIT, *allowed]
            tools["schemaDigests"] = {tool["toolName"]: tool["schemaDigest"] for tool in listed["tools"]}
        return {
            **found,
            "governanceProfile": package.governance_profile(self.pinned, self.tier, None),
            "governanceConstraints": {
                **demanded,
                "requiredControls": sorted({*demanded.get("requiredControls", ()), *_CONTROLS}),
                "bindGovernanceDigest": True,
                "humanCheckpointTiers": sorted({*demanded.get("humanCheckpointTiers", ()), *_CHECKPOINTS}),
            },
            "toolConstraints": tools,
            "mutationConstraints": self.mutation_constraints,
            "policyDocuments": dict(self.documents),
        }

    @property
    def mutation_constraints(self) -> dict[str, Any]:
        """Which mutation policy is in force; nothing if it is one that only observes."""
        return {"activePolicyDigest": self.package.digests["mutation"]} if self.package.may_mutate else {}


class RunTerms(msgspec.Struct, frozen=True):
    """What is fixed for a run when it is admitted."""

    run: str
    admission_digest: str
    approval: str | None
    chain: ChainTerms


# --- turn evidence -------------------------------------------------------------------------------------------------

Row: TypeAlias = dict[str, Any]
Events: TypeAlias = Sequence[Mapping[str, Any]]
States: TypeAlias = Mapping[Any, str]

_ADMISSION: Final = "invoke/admission"
"""The source of the admission's result."""
_INJECTION_POINT: Final = "invoke_response"
_UNKNOWN: Final = "outcome_unknown"
_BAD_OUTPUT: Final = "bad_output"
_TRANSIENT: Final = frozenset({"timeout", "crash", _UNKNOWN, "breaker_open", "queue_full"})
"""The toolhost's codes of failures that may be over the next time."""
_CODE: Final = re.compile(r"[a-z][a-z0-9_.\-]{0,63}")


class Reads(NamedTuple):
    """The steps whose results were used. Other results were only observed."""

    steps: frozenset[int] = frozenset()
    """Used by a later step, on the way to a gate where there is one."""
    answer: frozenset[int] = frozenset()
    """Used by the result object or by an extractor."""


@dataclass(slots=True, eq=False)
class TurnCall:
    """A call of the turn, with what came of it."""

    name: str
    """The id of the call."""
    row: Row
    """Its request."""
    kind: Literal["admission", "do", "undo"]
    number: int
    """Of its step; of the turn, if it is the admission."""
    action: str
    ref: str
    """The name of its result."""
    call: ActionCall | None = None
    """None for the admission."""
    answer: int | None = None
    """The position of its answer among those of the turn; None if there is none."""
    outcome: StepOutcome | None = None
    """None for the admission, and while there is no answer."""
    retry: str | None = None
    """The id of the attempt that is made instead."""

    @property
    def is_done(self) -> bool:
        """Is it a step that succeeded?"""
        return self.kind == "do" and self.outcome is not None and self.outcome.status == "done"

    @property
    def has_failed(self) -> bool:
        """Is it a step that failed, or whose outcome is unknown, and that is not retried?"""
        return (
            self.kind == "do"
            and self.retry is None
            and self.outcome is not None
            and self.outcome.status in ("failed", "unknown")
        )


class TurnEvidence:
    """The calls of one turn, in the order in which they were recorded."""

    def __init__(self, terms: RunTerms) -> None:
        self._terms = terms
        self._chain = terms.chain
        self._calls: dict[str, TurnCall] = {}
        self._stray: list[TurnCall] = []
        """Results of calls that were not requested, or that were answered already."""
        self._ungated: list[str] = []
        self._answers = 0
        self.widest = 1
        """The most calls that ran in parallel."""

    # --- recording -------------------------------------------------------------------------------------------------

    def admission(self, turn: int) -> TurnCall:
        """The call that reads the admission record, whose digest is its result. Every first step rests on it."""
        run, position = self._terms.run, len(self._calls)
        name = f"{run}/admit/{turn}"
        row = _request_row(name, ADMIT, ADMIT_SCHEMA, digest({"run": run, "turn": turn}), position, "admit")
        ref = f"admission:{self._terms.admission_digest}"
        return TurnCall(name, row, "admission", turn, ADMIT, ref, answer=self._next())

    def requested(self, calls: Sequence[ActionCall]) -> list[TurnCall]:
        """Calls as they would be recorded next."""
        group = "+".join([call.group for call in calls])
        found = [self._turn_call(call, len(self._calls) + place, group) for place, call in enumerate(calls)]
        if len(calls) > 1:
            for one, call in zip(found, calls, strict=True):
                one.row["branchId"] = call.group
        return found

    def _turn_call(self, call: ActionCall, position: int, group: str) -> TurnCall:
        action, chain = call.action, self._chain
        row = _request_row(call.call_id, action.aid, chain.schema_of(action), call.input_digest, position, group)
        if (example := chain.examples.get(action.aid)) is not None:
            row["exampleDigest"] = example
        ref = f"run://{self._terms.run}/{call.group}"
        return TurnCall(call.call_id, row, call.kind, call.number, action.name, ref, call)

    def record(self, calls: Sequence[TurnCall]) -> None:
        """Keep them."""
        for one in calls:
            self._calls[one.name] = one
        self.widest = max(self.widest, len(calls))

    def record_ungated(self, call: ActionCall) -> None:
        """No gate opened for this effect. It is on record, and no turn that holds it is ever closed."""
        self._ungated.append(call.call_id)

    def answer(self, outcomes: Iterable[StepOutcome]) -> None:
        """Match outcomes to calls. One that belongs to no open call is kept as a stray."""
        for outcome in outcomes:
            call = outcome.call
            if call is None:
                continue  # it was skipped, or failed before there was a call
            found = self._calls.get(call.call_id)
            if found is None or found.answer is not None:
                found = self._turn_call(call, 0, "")
                self._stray.append(found)
            found.answer, found.outcome = self._next(), outcome

    def _next(self) -> int:
        self._answers += 1
        return self._answers - 1

    # --- reading ---------------------------------------------------------------------------------------------------

    def __contains__(self, call_id: str) -> bool:
        return call_id in self._calls

    def __getitem__(self, call_id: str) -> TurnCall:
        return self._calls[call_id]

    @property
    def calls(self) -> Iterable[TurnCall]:
        """In the order of their requests."""
        return self._calls.values()

    def closing(
        self,
        turn: int,
        reason: str,
        reads: Reads,
        events: Events,
        states: States,
        *,
        inputs: Sequence[TurnCall] | None = None,
        fence: int | None = None,
    ) -> tuple[list[Row], list[Row], Row, Row, Row]:
        """Results, uses, protocol state, findings and what was shown: the evidence that closes a turn. ``inputs`` are
        what a mutation rests on; None if there is none."""
        run, spec, approval = self._terms.run, self._chain.spec, self._terms.approval
        answered = [*(one for one in self._calls.values() if one.answer is not None), *self._stray]
        event_digests = [digest(dict(event)) for event in events]
        results, uses, renders = [], [], []
        for one, rendered in zip(answered, _rendered(answered, events, event_digests), strict=True):
            result = self._terms.admission_digest if one.outcome is None else _digest_of(one.outcome)
            results.append(self._result_row(one, result))
            uses.append(self._use_row(one, result, reads, inputs))
            renders.append(
                {
                    "toolCallId": one.name,
                    "operatorPayloadDigest": result,
                    "reminderRenderDigest": rendered,
                    "injectionPoint": _INJECTION_POINT,
                    "policyDigest": spec["toolRenderProtocolDigest"],
                }
            )
        queued = (
            [*dict.fromkeys(event_digests)] if self._chain.package.contents["queue"].get("dedup") else event_digests
        )
        entries = [{"reminderDigest": one} for one in queued]
        steps = {str(name): state for name, state in states.items()}
        view = digest({"run": run, "turn": turn, "steps": steps})
        shown: Row = {
            "toolRender": renders,
            "reminderQueue": [
                {
                    "queueId": "events",
                    "reducedDigest": digest(entries),
                    "policyDigest": spec["reminderQueuePolicyDigest"],
                    "entries": entries,
                }
            ],
            "stateViews": [
                {
                    "viewId": "run",
                    "viewDigest": view,
                    "policyDigest": spec["stateViewPolicyDigest"],
                    "sourceRefs": [f"run://{run}"],
                }
            ],
            "sessionRefs": [f"run://{run}"],
            "trajectoryRefs": [f"run://{run}/{turn}"],
        }
        if fence is not None:
            shown["continuity"] = {"mode": "descent", "handoffRef": f"journal://{run}/{fence}"}
        protocol: Row = {"stopReason": reason, "continuationAllowed": inputs is not None, "turnIndex": turn}
        if inputs is not None and approval is not None:
            protocol["checkpointRef"] = approval
        return results, uses, protocol, self._found(), shown

    def _found(self) -> Row:
        """Guardrail decisions, and which branches of parallel groups were joined."""
        bad = [
            one.name
            for one in self.calls
            if one.outcome is not None and not one.is_done and one.outcome.code == _BAD_OUTPUT
        ]
        found: Row = {"guardrailDecisions": self._guardrail_rows(bad)}
        if self.widest > 1:
            found["branchJoins"] = [
                {"branchId": one.row["branchId"], "joinClosed": one.answer is not None}
                for one in self.calls
                if "branchId" in one.row
            ]
        return found

    def _result_row(self, one: TurnCall, result: str) -> Row:
        """The digest of the output, or a typed error."""
        outcome = one.outcome
        if outcome is None:
            source = _ADMISSION
        else:
            source = self._chain.host if outcome.by is None else f"operator/{outcome.by}"
        row: Row = {
            "toolCallId": one.name,
            "sequence": one.answer,
            "provenance": {"kind": "runtime_route", "ref": source},
        }
        if outcome is None or outcome.status == "done":
            return row | {"status": "ok", "resultDigest": result}
        code = _code_of(outcome)
        retryable = one.call is not None and one.call.action.idempotent and code in _TRANSIENT
        return row | {"status": "error", "errorCode": code, "retryable": retryable, "errorMessageDigest": result}

    def _use_row(self, one: TurnCall, result: str, reads: Reads, inputs: Sequence[TurnCall] | None) -> Row:
        """Retried, used by something that is named, or only observed."""
        row: Row = {"toolCallId": one.name}
        if one.outcome is None or one.outcome.status == "done":
            row["resultDigest"] = result
        if one.retry is not None:
            return row | {"disposition": "retry_scheduled", "retryRef": one.retry}
        for_gate = inputs is not None and one in inputs
        for_answer = one.outcome is None and not for_gate
        if one.is_done and one not in self._stray:
            is_read = one.number in reads.steps
            for_gate = for_gate or (is_read and inputs is not None)
            for_answer = one.number in reads.answer or (is_read and inputs is None)
        if not for_gate and not for_answer:
            return row | {"disposition": "observed_only"}
        row["disposition"] = "consumed"
        if for_gate:
            row["mutationInputRef"] = one.ref
        if for_answer:
            row["summaryRef"] = one.ref if one.kind == "admission" else f"response:{self._terms.run}"
        return row

    def _guardrail_rows(self, bad_results: Sequence[str]) -> list[Row]:
        """What was decided, in the order of the stages."""
        policy, approval = self._chain.spec.get("guardrailStagePolicyDigest"), self._terms.approval
        decided: list[tuple[str, str, str | None]] = [
            ("pre_flight", "proof", None),
            ("pre_flight", "policy", None),
            *(("pre_flight", "gate", call) for call in self._ungated),
            ("input", "schema", None),
            ("input", "confirmation", None),
            ("output", "result_schema", None),
            *(("output", "result_schema", call) for call in bad_results),
            ("output", "redaction", None),
        ]
        rows = []
        for sequence, (stage, guardrail, blocked) in enumerate(decided):
            row: Row = {
                "stage": stage,
                "sequence": sequence,
                "guardrailId": guardrail,
                "triggered": blocked is not None,
                "outcome": "pass" if blocked is None else "block",
            }
            if policy is not None:
                row["policyDigest"] = policy
            if blocked is not None:
                row["toolCallId"] = blocked
            if guardrail == "confirmation" and approval is not None:
                row["thresholdRef"] = approval
            rows.append(row)
        return rows


def _request_row(name: str, tool: str, schema: str, input_digest: str, position: int, group: str) -> Row:
    return {
        "toolCallId": name,
        "toolName": tool,
        "schemaDigest": schema,
        "inputDigest": input_digest,
        "schemaValid": True,
        "callerId": "direct",
        "actionIndex": position,
        "ordinal": position,
        "callGroupId": group,
    }


def _code_of(outcome: StepOutcome) -> str:
    """The code of an error. Text that is none could be the action's own words, and stays out."""
    if outcome.code is None:
        return _UNKNOWN if outcome.status == "unknown" else "failed"
    return outcome.code if _CODE.fullmatch(outcome.code) else "unlisted_code"


def _digest_of(outcome: StepOutcome) -> str:
    """Of the output, or of the message of an error."""
    if outcome.status == "done":
        return outcome.output_digest or digest(outcome.output)
    return digest_text(outcome.detail or "")


def _rendered(answered: Sequence[TurnCall], events: Events, digests: Sequence[str]) -> list[str]:
    """For each result the digest of the event that renders it.

    Events are those of the whole run, the last ones those of this turn, so both are gone through from the end. A result
    without an event (the admission, or one beyond the cap) is rendered by its action and status.
    """
    left = len(events)
    found: list[str] = []
    for one in reversed(answered):
        status = "success" if one.outcome is None else EVENT_STATUS[one.outcome.status]
        rendered: str | None = None
        if one.outcome is not None:
            names = (one.action, f"undo: {one.action}")
            for place in range(left - 1, -1, -1):
                if events[place]["action"] in names and events[place]["status"] == status:
                    rendered, left = digests[place], place
                    break
        found.append(rendered or digest({"action": one.action, "status": status}))
    return found[::-1]
