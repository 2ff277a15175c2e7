"""A policy package: its files, and the call spec fields and constraints that it supplies to a turn.

A package is ``package.toml`` (name and version) and one TOML or JSON file per document, named after its kind
(:mod:`.kinds`). The digest of a package, ``governancePolicyDigest``, is the digest of its *inventory*: name, version
and the digest of each document. A document may contain its own digest as ``policyDigest``; the digest is compared and
removed when the document is read.

The built-in package ``observe`` is for turns without a package. It sets no ``activePolicyDigest`` for mutations, so
every mutation is refused with ``mutation.policy_digest_mismatch``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final, NamedTuple

import msgspec

from manglecp.base.diagnostic import FileLocation
from manglecp.base.json import Uncanonical
from manglecp.harness.canonical_v1 import canonical, digest_v1 as digest
from manglecp.harness.classes import RetryPolicy
from manglecp.harness.constraints import GOVERNANCE_CLAIM_ID, PATTERNS, TIERS
from manglecp.harness.policy.kinds import KINDS, check_consistency
from manglecp.harness.policy.schemas import Problems, read_document

NORMALIZER_ID: Final = "premath.harness.typestate_normalized.v2"
"""The id of the rules by which the harness normalises evidence."""


def call_id(session_id: str, turn_index: int, model_ref: str, prompt_digest: str) -> str:
    """Return the id of a turn, which depends on these parameters alone."""
    key = {"modelRef": model_ref, "promptDigest": prompt_digest, "sessionId": session_id, "turnIndex": turn_index}
    return "turn1_" + hashlib.sha256(canonical(key)).hexdigest()


class HarnessCall(NamedTuple):
    """A call that the harness made itself, such as the command of ``manglecp harness work``."""

    tool: str
    content: Any  # the result, or an error message
    ref: str | None = None  # the reference under which a mutation uses the result; None if the result is only observed
    input: Any = None
    error: str | None = None  # an error code


@dataclass(frozen=True)
class PolicyPackage:
    """Validated, canonical documents. Created by :func:`read_package` and :func:`package_of`."""

    name: str
    version: str
    contents: Mapping[str, Mapping[str, Any]]  # the documents, by kind
    description: str | None = None
    digests: Mapping[str, str] = field(init=False)  # the digest of each document, by kind
    digest: str = field(init=False)  # the digest of the inventory

    def __post_init__(self) -> None:
        object.__setattr__(self, "digests", {kind: digest(self.contents[kind]) for kind in sorted(self.contents)})
        object.__setattr__(self, "digest", digest(self.inventory))

    @property
    def ref(self) -> str:
        """``name@version``, for display; only the digest identifies the package."""
        return f"{self.name}@{self.version}"

    @property
    def inventory(self) -> dict[str, Any]:
        """The value whose digest is the digest of the package."""
        return {"name": self.name, "version": self.version, "documents": dict(self.digests)}

    @property
    def retry(self) -> RetryPolicy:
        """The retry policy: the table of failure classes, changed by the document ``retry``."""
        return RetryPolicy(self.contents.get("retry"))

    @property
    def may_mutate(self) -> bool:
        """Whether the package permits more than observation."""
        return bool(self.contents["mutation"]["mode"] != "observe_only")

    def call_spec(
        self,
        *,
        session_id: str,
        turn_index: int,
        model_ref: str,
        prompt_digest: str,
        execution_pattern: str = "single",
        risk_tier: str | None = None,
    ) -> dict[str, Any]:
        """Return the call spec of a turn, without the fields whose document the package lacks."""
        fields: dict[str, Any] = {
            "callId": call_id(session_id, turn_index, model_ref, prompt_digest),
            "modelRef": model_ref,
            "actionMode": "json",
            "executionPattern": execution_pattern,
            "toolChoice": "auto",
            "normalizerId": NORMALIZER_ID,
            "governancePolicyDigest": self.digest,
            "riskTier": self._tier_or_default(risk_tier),
            "observabilityMode": self.contents.get("observability", {}).get("mode"),
            "evalProfileRef": self.contents.get("eval-gate", {}).get("profileRef"),
        }
        for kind, content in self.contents.items():
            document_kind = KINDS[kind]
            if document_kind.inline_field:
                fields[document_kind.inline_field] = dict(content)
            if document_kind.digest_field:
                fields[document_kind.digest_field] = self.digests[kind]
        if "tools" in self.contents:
            fields["toolPolicy"] = self._tool_policy()
            fields["toolCatalogDigest"] = digest(self._catalogue())
        if "sandbox" in self.contents:
            # The reference has the digest, because another profile may have the same name.
            fields["runtimeSandboxRef"] = f"sandbox/{self.contents['sandbox']['profile']}@{self.digests['sandbox']}"
        return _copy({name: value for name, value in fields.items() if value is not None})

    def documents(self) -> dict[str, Any]:
        """Return ``policyDocuments``: the documents whose digests are in the call spec."""
        documents: dict[str, Any] = {"governancePolicy": self.inventory}
        for kind, content in self.contents.items():
            if (name := KINDS[kind].document_name) is not None:
                documents[name] = dict(content)
        if "tools" in self.contents:
            documents["toolCatalog"] = self._catalogue()
        return _copy(documents)

    def constraints(self, *, pinned: str | None = None, risk_tier: str | None = None) -> dict[str, Any]:
        """Return the constraint objects of a turn, except for ``policyDocuments``.

        ``pinned`` is the package digest in the pin. If a package claims governance and is not the pinned one, every
        turn is refused.
        """
        contents = self.contents
        tools = pick(contents.get("tools", {}), "parserProfiles", "requireResultProvenance")
        if "tools" in contents:
            tools["expectedToolCatalogDigest"] = digest(self._catalogue())
        if "examples" in contents:
            examples = contents["examples"]["tools"]
            tools["exampleDigests"] = {name: digest(inputs) for name, inputs in examples.items()}
        expected_digests = pick(self.digests, *_EXPECTED_DIGEST_MEMBERS)
        tools |= {_EXPECTED_DIGEST_MEMBERS[kind]: kind_digest for kind, kind_digest in expected_digests.items()}
        context = pick(contents["queue"], "requiredQueueIds", "dedup", "maxBatchSize")
        context |= pick(contents["views"], "requiredStateViewIds")
        if "injectionPoints" in contents["render"]:
            context["allowedInjectionPoints"] = contents["render"]["injectionPoints"]
        if "scope" in contents:
            context["expectedScopeDigest"] = self.digests["scope"]
        constraints = {
            "toolConstraints": tools,
            "contextConstraints": context,
            "decompositionConstraints": {
                "expectedPolicyDigest": self.digests["decomposition"],
                **contents["decomposition"],
            },
            "mutationConstraints": {"activePolicyDigest": self.digests["mutation"]} if self.may_mutate else {},
        }
        if contents["governance"]["claimed"]:
            constraints["governanceProfile"] = self.governance_profile(pinned, risk_tier)
            constraints["governanceConstraints"] = self._governance_constraints()
        return _copy({name: value for name, value in constraints.items() if value})

    def terms(self, *, pinned: str | None = None, risk_tier: str | None = None) -> dict[str, Any]:
        """Return the constraints and documents of a turn, for :meth:`.states.CallSpec.open`."""
        return {**self.constraints(pinned=pinned, risk_tier=risk_tier), "policyDocuments": self.documents()}

    def rows_of_calls(self, calls: Sequence[HarnessCall], context: str, view: Any) -> dict[str, Any]:
        """Return the evidence of calls that the harness made itself, with their renders, queues and views.

        ``context`` is the id of queue and view if the package requires no ids; ``view`` is the content of the view.
        """
        refs = [call.ref for call in calls if call.ref is not None]
        queue = {"reducedDigest": digest([]), "policyDigest": self.digests["queue"]}
        state = {"viewDigest": digest(view), "policyDigest": self.digests["views"], "sourceRefs": refs}
        queue_ids = self.contents["queue"].get("requiredQueueIds") or [context]
        view_ids = self.contents["views"].get("requiredStateViewIds") or [context]
        injection_point = self.contents["render"].get("injectionPoints", ["tool_response"])[0]
        requests, results, uses, renders = [], [], [], []
        for number, call in enumerate(calls):
            row, content_digest = {"toolCallId": f"p{number + 1}"}, digest(call.content)
            input_member = {} if call.input is None else {"input": call.input}
            requests.append({**row, "toolName": call.tool, "actionIndex": number, **input_member})
            result: dict[str, Any] = {"status": "ok", "resultDigest": content_digest}
            if call.error is not None:
                result = {"status": "error", "errorCode": call.error, "retryable": True, "errorMessage": call.content}
            results.append({**row, **result, "provenance": {"kind": "runtime_route", "ref": call.ref or call.tool}})
            use = {"useDisposition": "observed_only"}
            if call.ref is not None:
                use = {"useDisposition": "consumed", "resultDigest": content_digest, "mutationInputRef": call.ref}
            uses.append({**row, **use})
            render = {
                "operatorPayloadDigest": content_digest,
                "reminderRenderDigest": content_digest,
                "injectionPoint": injection_point,
            }
            renders.append({**row, **render, "policyDigest": self.digests["render"]})
        return {
            "toolRequests": requests,
            "toolResults": results,
            "toolUse": uses,
            "toolRender": renders,
            "reminderQueue": [{"queueId": name, **queue} for name in queue_ids],
            "stateViews": [{"viewId": name, **state} for name in view_ids],
        }

    def governance_profile(
        self, pinned: str | None, risk_tier: str | None = None, approval_ref: str | None = None
    ) -> dict[str, Any]:
        """Return the governance profile of a turn: policy provenance, trace mode and risk tier."""
        profile: dict[str, Any] = {
            "claimId": GOVERNANCE_CLAIM_ID,
            "claimed": True,
            "policyProvenance": {
                "pinned": pinned is not None,
                "packageRef": self.ref,
                "expectedDigest": pinned or "",
                "boundDigest": self.digest,
            },
        }
        if (observability := self.contents.get("observability")) is not None:
            profile |= {"observabilityMode": observability["mode"], **pick(observability, "processorRef")}
        tier = self._tier_or_default(risk_tier)
        if tier is not None:
            control = self.contents["risk-tiers"]["tiers"].get(tier)
            profile["riskTier"] = {"tier": tier, "controlProfileBound": control is not None}
            if control is not None:
                profile["riskTier"]["controlProfileRef"] = control["controlProfileRef"]
            if approval_ref is not None:
                profile["riskTier"]["approvalRef"] = approval_ref
        return profile

    def highest_tier(self) -> str | None:
        """Return the highest risk tier with a control profile."""
        tiers = self.contents.get("risk-tiers", {}).get("tiers", {})
        return next((tier for tier in reversed(TIERS) if tier in tiers), None)

    def needs_approval(self, tier: str) -> bool:
        """Return whether a human has to approve actions at this tier."""
        tiers = self.contents.get("risk-tiers", {}).get("tiers", {})
        return bool(tiers.get(tier, {}).get("humanCheckpoint"))

    def _tier_or_default(self, requested_tier: str | None) -> str | None:
        if "risk-tiers" not in self.contents:
            return None
        return requested_tier or str(self.contents["risk-tiers"]["defaultTier"])

    def _catalogue(self) -> dict[str, Any]:
        tools = self.contents["tools"]
        rows = [pick(tool, "toolName", "schemaDigest") for tool in tools["tools"]]
        return {"catalogId": tools["catalogId"], "tools": rows}

    def _tool_policy(self) -> dict[str, Any]:
        tools = self.contents["tools"]
        allowed = [tool for tool in tools["tools"] if tool.get("allowed", True)]
        rows = [pick(tool, "toolName", "schemaDigest", "inputSchema") for tool in allowed]
        return {"allowedTools": rows, **pick(tools, "parserProfileId")}

    def _governance_constraints(self) -> dict[str, Any]:
        constraints: dict[str, Any] = {
            "requiredControls": self.contents["governance"].get("requiredControls", []),
            "bindGovernanceDigest": True,
        }
        if (observability := self.contents.get("observability")) is not None:
            constraints["allowedObservabilityModes"] = observability.get("allowedModes", [observability["mode"]])
            constraints |= pick(observability, "zeroDataRetention", "requireProcessorRef")
        if tiers := [tier for tier in TIERS if self.needs_approval(tier)]:
            constraints["humanCheckpointTiers"] = tiers
        return constraints


def pick(document: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Return the members of the document that have these names."""
    return {name: document[name] for name in names if name in document}


def _copy(value: dict[str, Any]) -> dict[str, Any]:
    """Return a deep copy, so that a caller cannot change the package."""
    json_copy: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(value))
    return json_copy


_EXPECTED_DIGEST_MEMBERS: Final = {  # the tool constraint with the expected digest, by kind of document
    "deferral": "expectedDeferPolicyDigest",
    "examples": "expectedToolExampleDigest",
    "callers": "expectedAllowedCallersDigest",
}

ENDINGS: Final = (".toml", ".json")
_MANIFEST: Final = "package"


def read_package(files: Mapping[str, bytes]) -> PolicyPackage:
    """Return the package of ``files``, contents by file name. Raises :class:`.PolicyError`."""
    problems = Problems()
    decoded_documents: dict[str, Any] = {}
    places: dict[str, FileLocation] = {}
    for file in sorted(files):
        kind, dot, extension = file.rpartition(".")
        place = FileLocation(file)
        if dot + extension not in ENDINGS:
            problems.add(place, "the files of a package end in .toml or .json")
        elif kind != _MANIFEST and kind not in KINDS:
            problems.add_unknown(place, "the document", kind, [_MANIFEST, *KINDS])
        elif kind in places:
            problems.add(place, f"{places[kind].file} is the same kind of document")
        else:
            places[kind] = place
            document = _decode(files[file], extension, place, problems)
            if document is not None:
                decoded_documents[kind] = document
    return _validate(decoded_documents, places, problems)


def package_of(manifest: Mapping[str, Any], documents: Mapping[str, Mapping[str, Any]]) -> PolicyPackage:
    """Return the package of a manifest (name, version, description) and documents by kind. Raises PolicyError."""
    problems = Problems()
    places = {kind: FileLocation(kind) for kind in (_MANIFEST, *documents)}
    for kind in documents.keys() - KINDS.keys():
        problems.add_unknown(places[kind], "the document", kind, KINDS)
    contents = {kind: content for kind, content in documents.items() if kind in KINDS}
    return _validate({_MANIFEST: manifest, **contents}, places, problems)


def _validate(
    decoded_documents: Mapping[str, Any], places: Mapping[str, FileLocation], problems: Problems
) -> PolicyPackage:
    """Return the package of decoded documents. Raises :class:`.PolicyError`.

    A document that only ``places`` has is not missing: its file could not be decoded, and ``problems`` has the reason.
    """
    contents: dict[str, Any] = {}
    for name, content in decoded_documents.items():
        document = _remove_own_digest(content, places[name], problems)
        complete = KINDS[name].complete if name in KINDS else lambda *_: None
        contents[name] = read_document(name, document, places[name], problems, complete)
    for name in (_MANIFEST, *(kind.name for kind in KINDS.values() if kind.required)):
        if name not in places:
            problems.add(FileLocation(name), "the document is missing")
    problems.raise_if_any()  # the consistency of invalid documents is not checked
    manifest = contents.pop(_MANIFEST)
    check_consistency(contents, places, problems)
    problems.raise_if_any()
    return PolicyPackage(manifest["name"], manifest["version"], contents, manifest.get("description"))


def _decode(data: bytes, extension: str, place: FileLocation, problems: Problems) -> Any:
    if extension == "json":
        return read_json(data, place, problems)
    import tomllib  # imported only for a TOML document

    try:
        return tomllib.loads(data.decode())
    except UnicodeDecodeError as error:
        problems.add(place, f"not UTF-8: byte {data[error.start]:#04x}")
    except tomllib.TOMLDecodeError as error:
        problems.add(place, f"not TOML: {error}")
    except RecursionError:
        problems.add(place, "nested too deeply")
    return None


def read_json(data: bytes, place: FileLocation, problems: Problems) -> Any:
    """Return the value of a JSON text without duplicate keys; add a problem and return None if it is invalid."""
    from manglecp.wire import Fault, decode  # imported only for a JSON document

    try:
        document = decode(data)
    except Fault as fault:
        problems.add(place, fault.message)
        return None
    if document is None:
        problems.add(place, "null is not a document")
    return document


def _remove_own_digest(content: Any, place: FileLocation, problems: Problems) -> Any:
    if not isinstance(content, Mapping) or "policyDigest" not in content:
        return content
    document = {name: value for name, value in content.items() if name != "policyDigest"}
    try:
        expected_digest = "pol1_" + hashlib.sha256(canonical(document)).hexdigest()
    except Uncanonical:
        return document  # the validation against the schema reports the problem
    if content["policyDigest"] != expected_digest:
        problems.add(place / "policyDigest", f"the digest of the document is {expected_digest}")
    return document


@cache
def observe_package() -> PolicyPackage:
    """Return the built-in package for turns without a package, for example turns read from a log."""
    return _builtin_package("observe", "Observe turns; mutate nothing.", "observe_only")


@cache
def work_package() -> PolicyPackage:
    """Return the built-in package for sessions: like ``observe``, but a turn may mutate what its evidence covers."""
    return _builtin_package("work", "Mutate what the evidence of a turn covers.", "instruction_linked")


def _builtin_package(name: str, description: str, mutation_mode: str) -> PolicyPackage:
    return package_of(
        {"name": name, "version": "1", "description": description},
        {
            "render": {"operatorView": "as_logged", "reminderView": "as_logged"},
            "queue": {},
            "views": {},
            "decomposition": {"allowedPatterns": list(PATTERNS)},
            "governance": {"claimed": False},
            "mutation": {"mode": mutation_mode},
        },
    )
