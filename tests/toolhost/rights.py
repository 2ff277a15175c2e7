"""Rights to calls, for tests: turns of the harness that authorise them, walked state by state as any other turn."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from manglecp.base.digest import digest, digest_bytes
from manglecp.harness import CallSpec, JoinClosed, MutationReady, ToolRequests
from manglecp.toolhost.dispatch.messages import HostCall

_BASE = "capabilities.change_morphisms"
_turns = itertools.count(1)


class Named(NamedTuple):
    """A call as a right names it."""

    call_id: str
    tool_name: str
    input_digest: str

    @classmethod
    def of(cls, call: HostCall) -> Named:
        return cls(call.call_id, call.aid, digest_bytes(call.input_json.encode()))

    @property
    def row(self) -> dict[str, str]:
        return {"toolCallId": self.call_id, "toolName": self.tool_name, "inputDigest": self.input_digest}


def opened() -> CallSpec:
    """A turn that is about to happen."""
    digests = ("mutation", "governance", "toolRenderProtocol", "reminderQueue", "stateView", "decomposition")
    fields = {f"{name}{'' if name.endswith('Protocol') else 'Policy'}Digest": digest(name) for name in digests}
    spec = {
        "callId": f"turn-{next(_turns)}",
        "modelRef": "test@1",
        "actionMode": "json",
        "executionPattern": "single",
        "normalizerId": "norm@1",
    }
    return CallSpec.open({**spec, **fields}, {"mutationConstraints": {"activePolicyDigest": digest("mutation")}})


def requested(*calls: HostCall) -> ToolRequests:
    """A turn that asks for these calls."""
    return opened().request([Named.of(call).row for call in calls])


def closed() -> JoinClosed:
    """A turn that has looked at something, on which a mutation may rest."""
    look, seen = "look", digest("seen")
    used = {"toolCallId": look, "disposition": "consumed", "resultDigest": seen, "mutationInputRef": "seen://1"}
    render = {
        "toolCallId": look,
        "operatorPayloadDigest": seen,
        "reminderRenderDigest": seen,
        "injectionPoint": "tool_response",
        "policyDigest": digest("toolRenderProtocol"),
    }
    shown = {
        "toolRender": [render],
        "reminderQueue": [{"queueId": "q", "reducedDigest": seen, "policyDigest": digest("reminderQueue")}],
        "stateViews": [{"viewId": "v", "viewDigest": seen, "policyDigest": digest("stateView")}],
        "sessionRefs": ["session://1"],
    }
    return (
        opened()
        .request([{"toolCallId": look, "toolName": "look"}])
        .answer([{"toolCallId": look, "status": "ok", "resultDigest": seen}])
        .use([used])
        .close({"stopReason": "tool_use", "continuationAllowed": True}, shown)
    )


def effect(*named: Named, **changes: Any) -> dict[str, Any]:
    """The mutation that these calls are."""
    tools = sorted({call.tool_name for call in named})
    return {
        "kind": "effect",
        "action": tools[0],
        "instructionRef": "instr1_1",
        "inputRefs": ["seen://1"],
        "capabilityClaims": [_BASE, *(f"{_BASE}.{tool.replace('.', '_')}" for tool in tools)],
        "calls": [call.row for call in named],
        **changes,
    }


def right_to(*calls: HostCall) -> MutationReady:
    """The right to these calls, each once."""
    return closed().authorize(effect(*(Named.of(call) for call in calls)))


def authorised(call: HostCall) -> HostCall:
    """The call with a right to it, if it needs one."""
    return replace(call, authority=right_to(call)) if call.tier > 0 else call


def right_for(aid: str, call_id: str, input_json: str) -> MutationReady:
    """The same for who has no call yet."""
    return right_to(HostCall(aid=aid, call_id=call_id, input_json=input_json))


def asking(aid: str, **asked: Any) -> Any:
    """What to ask of a dispatcher so that it makes this call, its right included."""
    text = asked.get("input_json") or msgspec.json.encode(asked.get("inputs", {})).decode()
    call = HostCall(aid=aid, input_json=text, **({"call_id": asked["call_id"]} if "call_id" in asked else {}))
    return {**asked, "call_id": call.call_id, "authority": right_to(call)}
