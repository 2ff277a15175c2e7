"""The evidence of a run's turns: call spec, constraints, calls and their results, as digests, ids and codes.

The parts that depend only on the policy package and the stored chain are computed once per chain (:class:`ChainTerms`).
A package cannot require less than the server: every turn claims governance, has the four controls below, and needs an
approval at the highest tier. A server's turn has no model: its rows of renders, queue and views describe the response
and the ledger.
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

Pattern: TypeAlias = Literal["single", "chain", "parallel"]

ADMIT: Final = "manglecp.admit"
"""The server's own tool, with which a run begins."""
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
"""The placeholder of the call id in a template."""


def claim_of(action: ActionDescription) -> str:
    """Return the capability claim that an effect of this action needs, besides the base claim."""
    return f"{BASE_CLAIM}.{action.aid.replace('.', '_')}"


class ChainTerms(msgspec.Struct, frozen=True, kw_only=True, eq=False, dict=True):
    """The evidence that all runs of a chain under the same policies share."""

    model_ref: str
    """``rules:<pack>@<version>+<pack digest>``, in the place of a model."""
    package: PolicyPackage
    pinned: str | None
    """The package digest that the pack pins."""
    actions: Mapping[str, ActionDescription]
    """The actions of the stored chain, including undo actions."""
    plugin_digest: str
    """The digest of the file of actions that the hosts load."""
    gates: int
    risk_tier: str = "low"
    """The minimum; the tiers of the actions may raise it."""
    sandbox: str = "strict"
    pattern: Pattern = "chain"
    spare_turns: int = 16
    """Turns of resumed, repeated and cancelled attempts; gates, undo steps and the last turn are counted separately."""

    @cached_property
    def tier(self) -> str:
        """The risk tier of the highest lease tier of the chain, and at least :attr:`risk_tier`."""
        if self.risk_tier not in _TIERS:
            return self.risk_tier  # no turn opens with an unknown tier
        highest = max((action.tier for action in self.actions.values()), default=0)
        least = "low" if highest <= 0 else "moderate" if highest < 3 else "high"
        return max(least, self.risk_tier, key=_TIERS.index)

    @property
    def max_turns(self) -> int:
        """Each gate once, each effect undone once, the last turn, and the spare turns."""
        return 2 * self.gates + 1 + self.spare_turns

    @property
    def needed(self) -> int:
        """The number of turns of a run without failures."""
        return self.gates + 1

    @cached_property
    def admitted(self) -> int:
        """The turns that the package admits; those needed if it has no limit."""
        most: int = self.package.contents.get("stop", {}).get("maxTurns", self.needed)
        return most

    @cached_property
    def host(self) -> str:
        """The source of an outcome that no operator decided."""
        return f"toolhost/{self.plugin_digest}"

    @cached_property
    def schemas(self) -> Mapping[str, str]:
        """The digest of each tool's input schema."""
        ours = {action.aid: digest(dict(action.input_schema)) for action in self.actions.values()}
        return dict(sorted({ADMIT: ADMIT_SCHEMA, **ours}.items()))

    def schema_of(self, action: ActionDescription) -> str:
        """Return the digest of an action's own input schema, also if the chain has another action of that name."""
        if self.actions.get(action.name) is action:
            return self.schemas[action.aid]
        return digest(dict(action.input_schema))

    @cached_property
    def documents(self) -> Mapping[str, Any]:
        """Return the policy documents: no deferred tools, the server as only caller, the examples of the schemas."""
        examples = {action.aid: list(action.input_schema.get("examples", ())) for action in self.actions.values()}
        return {
            "deferPolicy": {"eager": list(self.schemas), "deferred": []},
            "allowedCallers": {"tools": {name: ["direct"] for name in self.schemas}},
            "toolExamples": {"tools": {name: inputs for name, inputs in sorted(examples.items()) if inputs}},
            **self.package.documents(),
            "toolCatalog": {"catalogId": "chain", "tools": self._tools},
        }

    @property
    def _tools(self) -> list[dict[str, str]]:
        return [{"toolName": name, "schemaDigest": schema} for name, schema in self.schemas.items()]

    @cached_property
    def examples(self) -> Mapping[str, str]:
        """The digest of the examples of each tool that has some."""
        return {name: digest(list(inputs)) for name, inputs in self.documents["toolExamples"]["tools"].items()}

    @cached_property
    def spec(self) -> Mapping[str, Any]:
        """The call spec of a turn with sequential calls, with a placeholder for the call id."""
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
        """Return an empty turn without its call id. ``parallel``: its calls may run in parallel."""
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
        transport = self.package.contents.get("transport", {})  # the package may forbid parallel calls
        policy = {
            "parallelToolCalls": transport.get("parallelToolCalls", True),
            "ordering": transport.get("ordering", "any"),
        }
        return TurnBuilder.open({**self.spec, "toolTransportPolicy": policy}, self._constraints())

    def _constraints(self) -> dict[str, Any]:
        package = self.package
        constraints = package.constraints(pinned=self.pinned, risk_tier=self.tier, approval_ref=None)
        demanded: dict[str, Any] = constraints.get("governanceConstraints", {})
        tools: dict[str, Any] = {"requireResultProvenance": True}
        if (listed := package.contents.get("tools")) is not None:
            allowed = [tool["toolName"] for tool in listed["tools"] if tool.get("allowed", True)]
            tools["allowedTools"] = [ADMIT, *allowed]
            tools["schemaDigests"] = {tool["toolName"]: tool["schemaDigest"] for tool in listed["tools"]}
        return {
            **constraints,
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
        """The active mutation policy; empty if the package only observes."""
        return {"activePolicyDigest": self.package.digests["mutation"]} if self.package.may_mutate else {}


class RunTerms(msgspec.Struct, frozen=True):
    """The evidence that all turns of a run share."""

    run: str
    admission_digest: str
    approval: str | None
    chain: ChainTerms


# --- turn evidence -------------------------------------------------------------------------------------------------

Row: TypeAlias = dict[str, Any]
Events: TypeAlias = Sequence[Mapping[str, Any]]
States: TypeAlias = Mapping[Any, str]

_ADMISSION: Final = "invoke/admission"
"""The provenance of the admission's result."""
_INJECTION_POINT: Final = "invoke_response"
_UNKNOWN: Final = "outcome_unknown"
_BAD_OUTPUT: Final = "bad_output"
_TRANSIENT: Final = frozenset({"timeout", "crash", _UNKNOWN, "breaker_open", "queue_full"})
"""The toolhost's codes of failures that a retry may avoid."""
_CODE: Final = re.compile(r"[a-z][a-z0-9_.\-]{0,63}")


class Reads(NamedTuple):
    """The steps whose outputs are used. Other outputs are only observed."""

    steps: frozenset[int] = frozenset()
    """Used by a later step, and by the next gate if there is one."""
    answer: frozenset[int] = frozenset()
    """Used by the result object or by an extractor."""


@dataclass(slots=True, eq=False)
class TurnCall:
    """A call of a turn, with its outcome."""

    name: str
    """The call id."""
    row: Row
    """The row of its request."""
    kind: Literal["admission", "do", "undo"]
    number: int
    """The number of the step; of the turn for the admission."""
    action: str
    ref: str
    """The reference to its result."""
    call: ActionCall | None = None
    """None for the admission."""
    answer: int | None = None
    """The position of its result among those of the turn; None without a result."""
    outcome: StepOutcome | None = None
    """None for the admission, and without a result."""
    retry: str | None = None
    """The call id of the next attempt, if it is repeated."""

    @property
    def is_done(self) -> bool:
        return self.kind == "do" and self.outcome is not None and self.outcome.status == "done"

    @property
    def has_failed(self) -> bool:
        """Whether the step failed or its outcome is unknown, and it is not retried."""
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
        """Results of calls that were not requested, or that have a result already."""
        self._ungated: list[str] = []
        self._answers = 0
        self.widest = 1
        """The largest number of parallel calls."""

    # --- recording -------------------------------------------------------------------------------------------------

    def admission(self, turn: int) -> TurnCall:
        """Return the call that reads the admission record and returns its digest. All first steps depend on it."""
        run, position = self._terms.run, len(self._calls)
        name = f"{run}/admit/{turn}"
        row = _request_row(name, ADMIT, ADMIT_SCHEMA, digest({"run": run, "turn": turn}), position, "admit")
        ref = f"admission:{self._terms.admission_digest}"
        return TurnCall(name, row, "admission", turn, ADMIT, ref, answer=self._next())

    def requested(self, calls: Sequence[ActionCall]) -> list[TurnCall]:
        """Return the rows of calls at the next positions, without recording them."""
        group = "+".join([call.group for call in calls])
        rows = [self._turn_call(call, len(self._calls) + place, group) for place, call in enumerate(calls)]
        if len(calls) > 1:
            for one, call in zip(rows, calls, strict=True):
                one.row["branchId"] = call.group
        return rows

    def _turn_call(self, call: ActionCall, position: int, group: str) -> TurnCall:
        action, chain = call.action, self._chain
        row = _request_row(call.call_id, action.aid, chain.schema_of(action), call.input_digest, position, group)
        if (example := chain.examples.get(action.aid)) is not None:
            row["exampleDigest"] = example
        ref = f"run://{self._terms.run}/{call.group}"
        return TurnCall(call.call_id, row, call.kind, call.number, action.name, ref, call)

    def record(self, calls: Sequence[TurnCall]) -> None:
        for one in calls:
            self._calls[one.name] = one
        self.widest = max(self.widest, len(calls))

    def record_ungated(self, call: ActionCall) -> None:
        """Record an effect that no gate authorised: the turn cannot be closed."""
        self._ungated.append(call.call_id)

    def record_outcomes(self, outcomes: Iterable[StepOutcome]) -> None:
        """Match outcomes to calls; an outcome without an open call becomes a stray."""
        for outcome in outcomes:
            call = outcome.call
            if call is None:
                continue  # skipped, or not callable
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
        """Return the evidence that closes a turn: results, uses, protocol state, findings, and renders.

        ``inputs`` are the calls that a mutation depends on; None at the end of the run.
        """
        run, spec, approval = self._terms.run, self._chain.spec, self._terms.approval
        with_result = [*(one for one in self._calls.values() if one.answer is not None), *self._stray]
        event_digests = [digest(dict(event)) for event in events]
        results, uses, renders = [], [], []
        for one, rendered in zip(with_result, _rendered(with_result, events, event_digests), strict=True):
            if one.outcome is None:
                result = self._terms.admission_digest
            elif one.outcome.status == "done":
                result = one.outcome.output_digest or digest(one.outcome.output)
            else:
                result = digest_text(one.outcome.detail or "")
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
        renders_row: Row = {
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
            renders_row["continuity"] = {"mode": "descent", "handoffRef": f"journal://{run}/{fence}"}
        protocol: Row = {"stopReason": reason, "continuationAllowed": inputs is not None, "turnIndex": turn}
        if inputs is not None and approval is not None:
            protocol["checkpointRef"] = approval
        return results, uses, protocol, self._findings(), renders_row

    def _findings(self) -> Row:
        """Return the guardrail decisions, and the joined branches of parallel groups."""
        bad = [
            one.name
            for one in self.calls
            if one.outcome is not None and not one.is_done and one.outcome.code == _BAD_OUTPUT
        ]
        findings: Row = {"guardrailDecisions": self._guardrail_rows(bad)}
        if self.widest > 1:
            findings["branchJoins"] = [
                {"branchId": one.row["branchId"], "joinClosed": one.answer is not None}
                for one in self.calls
                if "branchId" in one.row
            ]
        return findings

    def _result_row(self, one: TurnCall, result: str) -> Row:
        """Return the row of a result: the digest of the output, or a typed error."""
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
        """Return the row of a use: retried, consumed by a gate or the response, or only observed."""
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
    """Return the code of an error. Text without the form of a code may come from the action and is replaced."""
    if outcome.code is None:
        return _UNKNOWN if outcome.status == "unknown" else "failed"
    return outcome.code if _CODE.fullmatch(outcome.code) else "unlisted_code"


def _rendered(calls: Sequence[TurnCall], events: Events, digests: Sequence[str]) -> list[str]:
    """Return the digest of the event that renders each result.

    Events are those of the whole run, the last ones those of this turn, so both are traversed from the end. A result
    without an event (the admission, or above the limit) is rendered by its action and status.
    """
    left = len(events)
    rendered_digests: list[str] = []
    for one in reversed(calls):
        status = "success" if one.outcome is None else EVENT_STATUS[one.outcome.status]
        rendered: str | None = None
        if one.outcome is not None:
            names = (one.action, f"undo: {one.action}")
            for place in range(left - 1, -1, -1):
                if events[place]["action"] in names and events[place]["status"] == status:
                    rendered, left = digests[place], place
                    break
        rendered_digests.append(rendered or digest({"action": one.action, "status": status}))
    return rendered_digests[::-1]
