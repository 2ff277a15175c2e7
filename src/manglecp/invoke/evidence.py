"""The evidence of a run's turns: call spec, constraints, calls and their results, as digests, ids and codes.

The parts that depend only on the policy package and the stored chain are computed once per chain (:class:`ChainTerms`).
A package cannot require less than the server: every turn binds the digest of the governance profile, has the controls
``_REQUIRED_CONTROLS``, and needs an approval at the highest risk tier. The harness is made for turns of a model. No
model takes part in a server's turn: the rows of renders, queue and views describe the response and the ledger.
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
"""The name of the server's own tool, which every run calls first."""
ADMIT_SCHEMA: Final = digest(
    {
        "type": "object",
        "properties": {"run": {"type": "string"}, "turn": {"type": "integer"}},
        "required": ["run", "turn"],
        "additionalProperties": False,
    }
)
BASE_CLAIM: Final = "capabilities.change_morphisms"
"""The capability claim that every effect needs."""
_RISK_TIERS: Final = ("low", "moderate", "high")
_REQUIRED_CONTROLS: Final = ("policyProvenance", "guardrailStages", "observabilityMode", "riskTier")
_APPROVED_TIERS: Final = ("high",)  # the risk tiers at which a turn needs an approval
_CALL_ID_PLACEHOLDER: Final = "turn1_"  # the prefix of the ids of turns


def claim_of(action: ActionDescription) -> str:
    """Return the capability claim that an effect of this action needs in addition to ``BASE_CLAIM``."""
    return f"{BASE_CLAIM}.{action.aid.replace('.', '_')}"


class ChainTerms(msgspec.Struct, frozen=True, kw_only=True, eq=False, dict=True):
    """The evidence that all runs of a chain under the same policies share."""

    model_ref: str
    """``rules:<pack>@<version>+<pack digest>``, which takes the place of a model."""
    package: PolicyPackage
    pinned: str | None
    """The package digest that the pack pins."""
    actions: Mapping[str, ActionDescription]
    """The actions of the stored chain, including undo actions."""
    plugin_digest: str
    """The digest of the file of actions that the hosts load."""
    gates: int
    """The number of gates that a run without failures passes: one for each round of effects."""
    risk_tier: str = "low"
    """The lowest tier that :attr:`tier` can be."""
    sandbox: str = "strict"
    """The profile of the hosts."""
    pattern: Pattern = "chain"
    spare_turns: int = 16
    """The turns that :attr:`max_turns` allows for repeated attempts, besides turns for gates, undos and the end."""

    @cached_property
    def tier(self) -> str:
        """The risk tier of the chain: that of its most dangerous action, but at least :attr:`risk_tier`."""
        if self.risk_tier not in _RISK_TIERS:
            return self.risk_tier  # the harness refuses to open a turn with an unknown tier
        action_tier = max((action.tier for action in self.actions.values()), default=0)
        actions_tier = "low" if action_tier <= 0 else "moderate" if action_tier < 3 else "high"
        return max(actions_tier, self.risk_tier, key=_RISK_TIERS.index)

    @property
    def max_turns(self) -> int:
        """The limit of the turns of a run: one for each gate and its undo, the last turn, and the spare turns."""
        return 2 * self.gates + 1 + self.spare_turns

    @property
    def needed_turns(self) -> int:
        """The number of turns of a run without failures."""
        return self.gates + 1

    @cached_property
    def admitted_turns(self) -> int:
        """The number of turns that the package admits; the needed turns if the package has no limit."""
        max_turns: int = self.package.contents.get("stop", {}).get("maxTurns", self.needed_turns)
        return max_turns

    @cached_property
    def host_ref(self) -> str:
        """The provenance of an outcome that a host returned."""
        return f"toolhost/{self.plugin_digest}"

    @cached_property
    def schemas(self) -> Mapping[str, str]:
        """The digest of each tool's input schema, by name of the tool (``aid`` of an action)."""
        action_schemas = {action.aid: digest(dict(action.input_schema)) for action in self.actions.values()}
        return dict(sorted({ADMIT: ADMIT_SCHEMA, **action_schemas}.items()))

    def schema_of(self, action: ActionDescription) -> str:
        """Return the digest of the action's input schema; the chain may have another action of the same name."""
        if self.actions.get(action.name) is action:
            return self.schemas[action.aid]
        return digest(dict(action.input_schema))

    @cached_property
    def documents(self) -> Mapping[str, Any]:
        """The policy documents of the package, with defaults, and the catalog of the chain's tools."""
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
        """The digest of each tool's examples, for tools with examples."""
        return {name: digest(list(inputs)) for name, inputs in self.documents["toolExamples"]["tools"].items()}

    @cached_property
    def spec(self) -> Mapping[str, Any]:
        """The call spec of a turn with sequential calls, with a placeholder for its id."""
        contents, documents = self.package.contents, self.documents
        stop = dict(contents.get("stop", {}))
        stop["maxTurns"] = min(self.max_turns, stop.get("maxTurns", self.max_turns))
        is_package_profile = contents.get("sandbox", {}).get("profile") == self.sandbox
        sandbox_digest = self.package.digests["sandbox"] if is_package_profile else digest({"profile": self.sandbox})
        return {
            **self.package.call_spec(session_id="", turn_index=0, model_ref="", prompt_digest=""),
            "orchestrationRole": "orchestrator",
            "toolPolicy": {"allowedTools": self._tools},
            "toolCatalogDigest": digest(documents["toolCatalog"]),
            "deferPolicyDigest": digest(documents["deferPolicy"]),
            "toolExampleDigest": digest(documents["toolExamples"]),
            "allowedCallersDigest": digest(documents["allowedCallers"]),
            "callId": _CALL_ID_PLACEHOLDER,
            "modelRef": self.model_ref,
            "executionPattern": self.pattern,
            "riskTier": self.tier,
            "runtimeSandboxRef": f"sandbox/{self.sandbox}@{sandbox_digest}",
            "stopPolicy": stop,
            "toolTransportPolicy": {"parallelToolCalls": False, "ordering": "strict"},
        }

    def template(self, approval: str | None, *, parallel: bool) -> TurnBuilder:
        """Return an empty turn without an id. ``approval`` is a reference; ``parallel`` permits parallel calls."""
        template = self._parallel if parallel else self._sequential
        if approval is None:
            return template
        profile = self.package.governance_profile(self.pinned, self.tier, approval)
        return template.with_constraints({"governanceProfile": profile})

    @cached_property
    def _sequential(self) -> TurnBuilder:
        return TurnBuilder.open(self.spec, self._constraints())

    @cached_property
    def _parallel(self) -> TurnBuilder:
        transport = self.package.contents.get("transport", {})  # may forbid parallel calls
        policy = {
            "parallelToolCalls": transport.get("parallelToolCalls", True),
            "ordering": transport.get("ordering", "any"),
        }
        return TurnBuilder.open({**self.spec, "toolTransportPolicy": policy}, self._constraints())

    def _constraints(self) -> dict[str, Any]:
        package = self.package
        constraints = package.constraints(pinned=self.pinned, risk_tier=self.tier)
        governance: dict[str, Any] = constraints.get("governanceConstraints", {})
        tools: dict[str, Any] = {"requireResultProvenance": True}
        if (tool_list := package.contents.get("tools")) is not None:
            allowed_tools = [tool["toolName"] for tool in tool_list["tools"] if tool.get("allowed", True)]
            tools["allowedTools"] = [ADMIT, *allowed_tools]
            tools["schemaDigests"] = {tool["toolName"]: tool["schemaDigest"] for tool in tool_list["tools"]}
        return {
            **constraints,
            "governanceProfile": package.governance_profile(self.pinned, self.tier, None),
            "governanceConstraints": {
                **governance,
                "requiredControls": sorted({*governance.get("requiredControls", ()), *_REQUIRED_CONTROLS}),
                "bindGovernanceDigest": True,
                "humanCheckpointTiers": sorted({*governance.get("humanCheckpointTiers", ()), *_APPROVED_TIERS}),
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
    """The reference to the approval, or to its waiver."""
    chain: ChainTerms


# --- turn evidence -------------------------------------------------------------------------------------------------

Row: TypeAlias = dict[str, Any]
Events: TypeAlias = Sequence[Mapping[str, Any]]
"""The events of the run so far, in the form of its response."""
States: TypeAlias = Mapping[Any, str]
"""The status of each step and of each undo."""
_ADMISSION_REF: Final = "invoke/admission"  # the provenance of the admission's result
_INJECTION_POINT: Final = "invoke_response"  # the response is the only place where results reach the client
_UNKNOWN: Final = "outcome_unknown"
_BAD_OUTPUT: Final = "bad_output"
_TRANSIENT: Final = frozenset({"timeout", "crash", _UNKNOWN, "breaker_open", "queue_full"})
"""The toolhost's codes of failures that a retry may avoid."""
_CODE_PATTERN: Final = re.compile(r"[a-z][a-z0-9_.\-]{0,63}")


class UsedSteps(NamedTuple):
    """The numbers of the steps whose outputs are used. Other outputs are only observed."""

    by_steps: frozenset[int] = frozenset()
    """The steps whose outputs another step uses."""
    by_response: frozenset[int] = frozenset()
    """The steps whose outputs the response uses: its result object, or an extractor."""


@dataclass(slots=True, eq=False)
class TurnCall:
    """A call of a turn, with its outcome."""

    call_id: str
    row: Row
    """The row of the request in the evidence."""
    kind: Literal["admission", "do", "undo"]
    number: int
    """The number of the step; for the admission, the number of the turn."""
    action: str
    ref: str
    """The reference to the result of the call."""
    call: ActionCall | None = None
    """None for the admission."""
    result_position: int | None = None
    """The position of the call's result among the results of the turn; None without a result."""
    outcome: StepOutcome | None = None
    """None for the admission, and for a call without a result."""
    next_call_id: str | None = None
    """The id of the next attempt, if the call is repeated."""

    @property
    def is_done(self) -> bool:
        return self.kind == "do" and self.outcome is not None and self.outcome.status == "done"

    @property
    def has_failed(self) -> bool:
        """Whether the step failed or its outcome is unknown, and the call is not repeated."""
        status = None if self.outcome is None else self.outcome.status
        return self.kind == "do" and self.next_call_id is None and status in ("failed", "unknown")


class TurnEvidence:
    """The calls of one turn, in the order in which they were recorded."""

    def __init__(self, terms: RunTerms) -> None:
        self._terms = terms
        self._chain = terms.chain
        self._calls: dict[str, TurnCall] = {}
        self._stray_calls: list[TurnCall] = []
        """Calls with a result although they were not requested or had one already. The harness refuses such results."""
        self._ungated_ids: list[str] = []  # the ids of effects that no gate authorised
        self._result_count = 0
        self.max_parallel = 1
        """The largest number of parallel calls."""

    def build_admission(self, turn: int) -> TurnCall:
        """Return the call that reads the admission record and returns its digest. All effects depend on it."""
        run, position = self._terms.run, len(self._calls)
        call_id = f"{run}/admit/{turn}"
        row = _request_row(call_id, ADMIT, ADMIT_SCHEMA, digest({"run": run, "turn": turn}), position, "admit")
        ref = f"admission:{self._terms.admission_digest}"
        return TurnCall(call_id, row, "admission", turn, ADMIT, ref, result_position=self._next_result_position())

    def build_requests(self, calls: Sequence[ActionCall]) -> list[TurnCall]:
        """Return the requests of parallel calls at the next positions, without recording them."""
        group = "+".join([call.group for call in calls])
        requests = [self._turn_call(call, position, group) for position, call in enumerate(calls, len(self._calls))]
        if len(calls) > 1:
            for request, call in zip(requests, calls, strict=True):
                request.row["branchId"] = call.group
        return requests

    def _turn_call(self, call: ActionCall, position: int, group: str) -> TurnCall:
        action, chain = call.action, self._chain
        row = _request_row(call.call_id, action.aid, chain.schema_of(action), call.input_digest, position, group)
        if (example := chain.examples.get(action.aid)) is not None:
            row["exampleDigest"] = example
        ref = f"run://{self._terms.run}/{call.group}"
        return TurnCall(call.call_id, row, call.kind, call.number, action.name, ref, call)

    def record(self, calls: Sequence[TurnCall]) -> None:
        for call in calls:
            self._calls[call.call_id] = call
        self.max_parallel = max(self.max_parallel, len(calls))

    def record_ungated(self, call: ActionCall) -> None:
        """Record an effect that no gate authorised: the turn cannot be closed."""
        self._ungated_ids.append(call.call_id)

    def record_outcomes(self, outcomes: Iterable[StepOutcome]) -> None:
        """Match outcomes to calls; an outcome without an open call becomes a stray."""
        for outcome in outcomes:
            call = outcome.call
            if call is None:
                continue  # a step that was skipped or could not be called
            turn_call = self._calls.get(call.call_id)
            if turn_call is None or turn_call.result_position is not None:
                turn_call = self._turn_call(call, position=0, group="")  # the turn has no row of this request
                self._stray_calls.append(turn_call)
            turn_call.result_position, turn_call.outcome = self._next_result_position(), outcome

    def _next_result_position(self) -> int:
        self._result_count += 1
        return self._result_count - 1

    def __contains__(self, call_id: str) -> bool:
        return call_id in self._calls

    def __getitem__(self, call_id: str) -> TurnCall:
        return self._calls[call_id]

    @property
    def calls(self) -> Iterable[TurnCall]:
        return self._calls.values()

    def build_closing(
        self,
        turn: int,
        reason: str,
        used: UsedSteps,
        events: Events,
        states: States,
        *,
        inputs: Sequence[TurnCall] | None = None,
        fence: int | None = None,
    ) -> tuple[list[Row], list[Row], Row, Row, Row]:
        """Return the rows that close a turn: results, uses, protocol state, evidence of results, evidence of the end.

        ``turn`` is the number of the turn, ``reason`` its stop reason. ``inputs`` are the calls that the mutation
        depends on; None at the end of the run. ``fence`` is the fencing token of a process that resumes the run.
        """
        run, spec, approval = self._terms.run, self._chain.spec, self._terms.approval
        ended_calls = [*(call for call in self._calls.values() if call.result_position is not None), *self._stray_calls]
        event_digests = [digest(dict(event)) for event in events]
        results, uses, renders = [], [], []
        for call, render_digest in zip(ended_calls, _render_digests(ended_calls, events, event_digests), strict=True):
            if call.outcome is None:  # only the admission has no outcome
                result_digest = self._terms.admission_digest
            elif call.outcome.status == "done":
                result_digest = call.outcome.output_digest or digest(call.outcome.output)
            else:
                result_digest = digest_text(call.outcome.detail or "")
            results.append(self._result_row(call, result_digest))
            uses.append(self._use_row(call, result_digest, used, inputs))
            renders.append(
                {
                    "toolCallId": call.call_id,
                    "operatorPayloadDigest": result_digest,
                    "reminderRenderDigest": render_digest,
                    "injectionPoint": _INJECTION_POINT,
                    "policyDigest": spec["toolRenderProtocolDigest"],
                }
            )
        deduplicates = self._chain.package.contents["queue"].get("dedup")
        queued = list(dict.fromkeys(event_digests)) if deduplicates else event_digests
        entries = [{"reminderDigest": event_digest} for event_digest in queued]
        steps = {str(name): state for name, state in states.items()}
        end_evidence: Row = {
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
                    "viewDigest": digest({"run": run, "turn": turn, "steps": steps}),
                    "policyDigest": spec["stateViewPolicyDigest"],
                    "sourceRefs": [f"run://{run}"],
                }
            ],
            "sessionRefs": [f"run://{run}"],
            "trajectoryRefs": [f"run://{run}/{turn}"],
        }
        if fence is not None:
            end_evidence["continuity"] = {"mode": "descent", "handoffRef": f"journal://{run}/{fence}"}
        protocol: Row = {"stopReason": reason, "continuationAllowed": inputs is not None, "turnIndex": turn}
        if inputs is not None and approval is not None:
            protocol["checkpointRef"] = approval
        return results, uses, protocol, self._result_evidence(), end_evidence

    def _result_evidence(self) -> Row:
        """Return the guardrail decisions and, for parallel calls, whether each branch has a result."""
        evidence: Row = {"guardrailDecisions": self._guardrail_rows()}
        if self.max_parallel > 1:
            evidence["branchJoins"] = [
                {"branchId": call.row["branchId"], "joinClosed": call.result_position is not None}
                for call in self.calls
                if "branchId" in call.row
            ]
        return evidence

    def _result_row(self, call: TurnCall, result_digest: str) -> Row:
        """Return the row of a result: the digest of the output, or a typed error."""
        outcome = call.outcome
        if outcome is None:
            source = _ADMISSION_REF
        else:
            source = self._chain.host_ref if outcome.by is None else f"operator/{outcome.by}"
        row: Row = {
            "toolCallId": call.call_id,
            "sequence": call.result_position,
            "provenance": {"kind": "runtime_route", "ref": source},
        }
        if outcome is None or outcome.status == "done":
            return row | {"status": "ok", "resultDigest": result_digest}
        code = _error_code(outcome)
        retryable = call.call is not None and call.call.action.idempotent and code in _TRANSIENT
        return row | {"status": "error", "errorCode": code, "retryable": retryable, "errorMessageDigest": result_digest}

    def _use_row(self, call: TurnCall, result_digest: str, used: UsedSteps, inputs: Sequence[TurnCall] | None) -> Row:
        """Return the row of a use: retried, consumed by a gate or the response, or only observed."""
        row: Row = {"toolCallId": call.call_id}
        if call.outcome is None or call.outcome.status == "done":
            row["resultDigest"] = result_digest
        if call.next_call_id is not None:
            return row | {"disposition": "retry_scheduled", "retryRef": call.next_call_id}
        is_gate_input = inputs is not None and call in inputs
        is_response_input = call.outcome is None and not is_gate_input
        if call.is_done and call not in self._stray_calls:
            is_step_input = call.number in used.by_steps
            # A use by a step counts for the gate before that step; in the last turn, for the response.
            is_gate_input = is_gate_input or (is_step_input and inputs is not None)
            is_response_input = call.number in used.by_response or (is_step_input and inputs is None)
        if not is_gate_input and not is_response_input:
            return row | {"disposition": "observed_only"}
        row["disposition"] = "consumed"
        if is_gate_input:
            row["mutationInputRef"] = call.ref
        if is_response_input:
            row["summaryRef"] = call.ref if call.kind == "admission" else f"response:{self._terms.run}"
        return row

    def _guardrail_rows(self) -> list[Row]:
        """Return the rows of the server's checks: one that passes for each check, and one for each blocked call."""
        not_done = [(call.call_id, call.outcome) for call in self.calls if not call.is_done]
        bad_outputs = [call_id for call_id, outcome in not_done if outcome is not None and outcome.code == _BAD_OUTPUT]
        policy, approval = self._chain.spec.get("guardrailStagePolicyDigest"), self._terms.approval
        checks: list[tuple[str, str, str | None]] = [  # the stage, the guardrail, and the id of a blocked call
            ("pre_flight", "proof", None),
            ("pre_flight", "policy", None),
            *(("pre_flight", "gate", call_id) for call_id in self._ungated_ids),
            ("input", "schema", None),
            ("input", "confirmation", None),
            ("output", "result_schema", None),
            *(("output", "result_schema", call_id) for call_id in bad_outputs),
            ("output", "redaction", None),
        ]
        rows = []
        for sequence, (stage, guardrail, blocked_call) in enumerate(checks):
            row: Row = {
                "stage": stage,
                "sequence": sequence,
                "guardrailId": guardrail,
                "triggered": blocked_call is not None,
                "outcome": "pass" if blocked_call is None else "block",
            }
            if policy is not None:
                row["policyDigest"] = policy
            if blocked_call is not None:
                row["toolCallId"] = blocked_call
            if guardrail == "confirmation" and approval is not None:
                row["thresholdRef"] = approval
            rows.append(row)
        return rows


def _request_row(call_id: str, tool: str, schema: str, input_digest: str, position: int, group: str) -> Row:
    return {
        "toolCallId": call_id,
        "toolName": tool,
        "schemaDigest": schema,
        "inputDigest": input_digest,
        "schemaValid": True,
        "callerId": "direct",
        "actionIndex": position,
        "ordinal": position,
        "callGroupId": group,
    }


def _error_code(outcome: StepOutcome) -> str:
    """Return the code of an error. A text in another form may come from the action: ``unlisted_code`` replaces it."""
    if outcome.code is None:
        return _UNKNOWN if outcome.status == "unknown" else "failed"
    return outcome.code if _CODE_PATTERN.fullmatch(outcome.code) else "unlisted_code"


def _render_digests(calls: Sequence[TurnCall], events: Events, event_digests: Sequence[str]) -> list[str]:
    """Return, for each call, the digest of the event that renders its result.

    The last events of the run belong to this turn, so calls and events are matched from the end. A result without an
    event (the admission, or above the limit of events) is rendered by its action and status.
    """
    unmatched = len(events)  # the number of first events that have no call yet
    render_digests: list[str] = []
    for call in reversed(calls):
        status = "success" if call.outcome is None else EVENT_STATUS[call.outcome.status]
        render_digest: str | None = None
        if call.outcome is not None:
            names = (call.action, f"undo: {call.action}")
            for position in range(unmatched - 1, -1, -1):
                if events[position]["action"] in names and events[position]["status"] == status:
                    render_digest, unmatched = event_digests[position], position
                    break
        render_digests.append(render_digest or digest({"action": call.action, "status": status}))
    return render_digests[::-1]
