"""Under what a server's turn is made: the 35 fields of its call spec and the constraints that it is judged with.

Two parts. What follows from the policy package and the stored chain is the same for every run of that chain: it is
worked out once, as a :class:`Frame`. What follows from the run and the turn is added each time.

A policy is never taken from a request, and a package cannot ask for less than the server does: every turn claims
governance, shows the four controls below, and needs an approval at the highest tier, whatever the package says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import msgspec

from manglecp.harness import TurnBuilder, digest_v1 as digest
from manglecp.harness.policy import PolicyPackage
from manglecp.pack import ActionDescription

__all__ = [
    "ADMIT",
    "ADMIT_SCHEMA",
    "BASE_CLAIM",
    "ChainTerms",
    "Frame",
    "Policies",
    "RunTerms",
    "claim_of",
    "constraints_of",
    "mutation_constraints",
]

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
    risk_tier: str
    sandbox: str = "strict"
    pattern: Pattern = "chain"
    spare_turns: int = 16
    """Turns beyond one for each gate and the last: resumed, repeated and cancelled ones. Undoing is counted apart."""

    @cached_property
    def tier(self) -> str:
        """The risk tier as it was said, or as the highest lease tier of the chain makes it: whichever is higher."""
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
    def frame(self) -> Frame:
        """What its turns have in common with those of other chains of these actions."""
        return frame_of(self.package, self.actions)

    def template(self, approval: str | None, *, parallel: bool) -> TurnBuilder:
        """A turn in which nothing has happened, but for its call id. ``parallel``: calls of it may run in parallel."""
        template = self._parallel if parallel else self._strict
        if approval is None:
            return template
        profile = self.package.governance_profile(self.pinned, self.tier, approval)
        return template.with_constraints({"governanceProfile": profile})

    @cached_property
    def _parallel(self) -> TurnBuilder:
        return self._template(parallel=True)

    @cached_property
    def _strict(self) -> TurnBuilder:
        return self._template(parallel=False)

    def _template(self, *, parallel: bool) -> TurnBuilder:
        spec = spec_of(self, call_id=_ANY, parallel=parallel)
        return TurnBuilder.open(spec, constraints_of(self, None, self.package))


class RunTerms(msgspec.Struct, frozen=True):
    """What is fixed for a run when it is admitted."""

    run: str
    admission_digest: str
    approval: str | None
    chain: ChainTerms


class Policies(NamedTuple):
    """What the end of a turn names."""

    render: str
    queue: str
    view: str
    stage: str | None
    """The digests of what is shown, and of the stages of guardrails, if the package has any."""
    dedup: bool
    """Is each event in the queue once?"""


@dataclass(frozen=True, slots=True)
class Frame:
    """What every turn of a chain under a package has in common."""

    actions: tuple[ActionDescription, ...]
    """Held on to, so that their identities stay theirs."""
    spec: Mapping[str, Any]
    documents: Mapping[str, Any]
    tool_constraints: Mapping[str, Any]
    schemas: Mapping[str, str]
    """The digest of each tool's input schema."""
    examples: Mapping[str, str]
    """The digest of each tool's examples, where it has any."""
    policies: Policies

    def schema_of(self, action: ActionDescription) -> str:
        """The digest of an action's input schema: its own, whether or not the chain has an action of that name."""
        for one in self.actions:
            if action is one:
                return self.schemas[action.aid]
        return digest(dict(action.input_schema))


def frame_of(package: PolicyPackage, chain: Mapping[str, ActionDescription]) -> Frame:
    """The frame of a chain of these actions under a package."""
    actions = tuple(chain[name] for name in sorted(chain))
    schemas = {ADMIT: ADMIT_SCHEMA} | {action.aid: digest(dict(action.input_schema)) for action in actions}
    tools = [{"toolName": name, "schemaDigest": schemas[name]} for name in sorted(schemas)]
    # Where the package speaks of tools itself, what it says stands. What it does not speak of is what the chain has.
    given = package.documents()
    documents = {
        **_of_chain(actions, schemas),
        **given,
        "toolCatalog": {"catalogId": "chain", "tools": tools},
    }
    fields = package.call_spec(session_id="", turn_index=0, model_ref="", prompt_digest="")
    for name in ("callId", "modelRef", "executionPattern", "riskTier", "stopPolicy", "toolTransportPolicy"):
        fields.pop(name, None)  # those of the run and the turn
    fields |= {
        "orchestrationRole": "orchestrator",
        "toolPolicy": {"allowedTools": tools},
        "toolCatalogDigest": digest(documents["toolCatalog"]),
        "deferPolicyDigest": digest(documents["deferPolicy"]),
        "toolExampleDigest": digest(documents["toolExamples"]),
        "allowedCallersDigest": digest(documents["allowedCallers"]),
    }
    shown: Mapping[str, Any] = documents["toolExamples"]["tools"]
    return Frame(
        actions,
        fields,
        documents,
        {**_pins_of(package), "requireResultProvenance": True},
        schemas,
        {name: digest(list(inputs)) for name, inputs in shown.items()},
        Policies(
            fields["toolRenderProtocolDigest"],
            fields["reminderQueuePolicyDigest"],
            fields["stateViewPolicyDigest"],
            fields.get("guardrailStagePolicyDigest"),
            bool(package.contents["queue"].get("dedup")),
        ),
    )


def _of_chain(actions: tuple[ActionDescription, ...], schemas: Mapping[str, str]) -> dict[str, Any]:
    """Nothing is loaded late, the server is the only caller, and examples are those that schemas bring along."""
    shown = {action.aid: list(action.input_schema.get("examples", ())) for action in actions}
    return {
        "deferPolicy": {"eager": sorted(schemas), "deferred": []},
        "allowedCallers": {"tools": {name: ["direct"] for name in sorted(schemas)}},
        "toolExamples": {"tools": {name: inputs for name, inputs in sorted(shown.items()) if inputs}},
    }


def _pins_of(package: PolicyPackage) -> dict[str, Any]:
    """What the package's own list of tools, if it has one, demands beyond the list of the chain."""
    tools = package.contents.get("tools")
    if tools is None:
        return {}
    allowed = [tool["toolName"] for tool in tools["tools"] if tool.get("allowed", True)]
    pins = {tool["toolName"]: tool["schemaDigest"] for tool in tools["tools"]}
    return {"allowedTools": [ADMIT, *allowed], "schemaDigests": pins}


def spec_of(terms: ChainTerms, *, call_id: str, parallel: bool) -> dict[str, Any]:
    """The call spec of one turn."""
    contents = terms.package.contents
    stop = dict(contents.get("stop", {}))
    stop["maxTurns"] = min(terms.max_turns, stop.get("maxTurns", terms.max_turns))
    transport = contents.get("transport", {})
    return {
        **terms.frame.spec,
        "callId": call_id,
        "modelRef": terms.model_ref,
        "executionPattern": terms.pattern,
        "riskTier": terms.tier,
        "runtimeSandboxRef": _sandbox_ref(terms),
        "stopPolicy": stop,
        # What the package forbids stays forbidden; a turn without a parallel group is strict in any case.
        "toolTransportPolicy": {
            "parallelToolCalls": parallel and transport.get("parallelToolCalls", True),
            "ordering": transport.get("ordering", "any") if parallel else "strict",
        },
    }


def _sandbox_ref(terms: ChainTerms) -> str:
    """The profile that the hosts really run in; the digest is that of the package's own words about it, if any."""
    policy = terms.package.contents.get("sandbox", {})
    if policy.get("profile") == terms.sandbox:
        return f"sandbox/{terms.sandbox}@{terms.package.digests['sandbox']}"
    return f"sandbox/{terms.sandbox}@{digest({'profile': terms.sandbox})}"


def constraints_of(terms: ChainTerms, approval: str | None, loaded: PolicyPackage) -> dict[str, Any]:
    """What stands beside the evidence of a turn, to be read only. ``loaded`` is the package in force at this moment."""
    frame = terms.frame
    found = terms.package.constraints(pinned=terms.pinned, risk_tier=terms.tier, approval_ref=approval)
    demanded: dict[str, Any] = found.get("governanceConstraints", {})
    found["governanceProfile"] = loaded.governance_profile(terms.pinned, terms.tier, approval)
    found["governanceConstraints"] = {
        **demanded,
        "requiredControls": sorted({*demanded.get("requiredControls", ()), *_CONTROLS}),
        "bindGovernanceDigest": True,
        "humanCheckpointTiers": sorted({*demanded.get("humanCheckpointTiers", ()), *_CHECKPOINTS}),
    }
    found["toolConstraints"] = dict(frame.tool_constraints)
    found["mutationConstraints"] = mutation_constraints(loaded)
    found["policyDocuments"] = dict(frame.documents)
    return found


def mutation_constraints(loaded: PolicyPackage) -> dict[str, Any]:
    """Which mutation policy is in force; nothing if it is one that only observes."""
    return {"activePolicyDigest": loaded.digests["mutation"]} if loaded.may_mutate else {}
