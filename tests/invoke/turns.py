"""A stored chain of a made-up pack, calls of it, and what comes of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec

from manglecp.base.digest import digest_bytes
from manglecp.harness import verify
from manglecp.harness.policy import PolicyPackage, package_of
from manglecp.intent import ChainStep, Undo
from manglecp.invoke.calls import ActionCall, Status, StepOutcome
from manglecp.invoke.evidence import BASE_CLAIM, ChainTerms, RunTerms, claim_of
from manglecp.invoke.gate import Turns
from manglecp.pack import ActionDescription, default_governance

MARKER = "zq-secret-words"
"""Stands in every argument, output and message. A witness never holds it."""
RUN = "run-7"
ADMISSION = "sha256:" + "ad" * 32


def action(name: str, tier: int = 0, *, idempotent: bool = False) -> ActionDescription:
    return ActionDescription(
        name=name,
        aid=f"desk.{name}",
        description=name,
        input_schema={"type": "object", "properties": {"text": {"type": "string"}}, "title": name},
        output_schema={"type": "object"},
        effects=("none",) if tier == 0 else ("filesystem",),
        tier=tier,
        idempotent=idempotent,
    )


ACTIONS = {
    one.name: one
    for one in (
        action("read"),
        action("look", idempotent=True),
        action("write", 1),
        action("send", 2),
        action("put", 1, idempotent=True),
        action("erase", 1),
        action("destroy", 3),
    )
}


def terms(*names: str, package: PolicyPackage | None = None, **changed: Any) -> RunTerms:
    """The terms of a run of a chain of these actions."""
    package = package or default_governance()
    tier = max((ACTIONS[name].tier for name in names), default=0)
    risk = "low" if tier == 0 else "high" if tier == 3 else "moderate"
    said: dict[str, Any] = {
        "run": RUN,
        "model_ref": "rules:desk@1.0.0+sha256:" + "0d" * 32,
        "package": package,
        "pinned": package.digest,
        "actions": {name: ACTIONS[name] for name in names},
        "admission_digest": ADMISSION,
        "plugin_digest": "sha256:" + "3e" * 32,
        "gates": sum(ACTIONS[name].tier > 0 for name in names),
        "risk_tier": risk,
    }
    said |= changed
    of_run = {name: said.pop(name, None) for name in ("run", "admission_digest", "approval")}
    return RunTerms(**of_run, chain=ChainTerms(**said))


def changed(package: PolicyPackage, **documents: Mapping[str, Any]) -> PolicyPackage:
    """The package with members of documents replaced."""
    contents = dict(package.contents)
    for name, members in documents.items():
        kind = name.replace("_", "-")
        contents[kind] = {**contents.get(kind, {}), **members}
    return package_of({"name": package.name, "version": "2.0.0"}, contents)


def call(
    name: str,
    number: int,
    *,
    kind: Literal["do", "undo"] = "do",
    attempt: int = 1,
    sources: tuple[int, ...] = (),
    described: ActionDescription | None = None,
) -> ActionCall:
    sent = msgspec.json.encode({"text": f"{MARKER} {name} {number}"})
    return ActionCall(
        run=RUN,
        step=ChainStep(number, name) if kind == "do" else Undo(name),
        number=number,
        kind=kind,
        attempt=attempt,
        action=described or ACTIONS[name],
        input_json=sent.decode(),
        input_digest=digest_bytes(sent),
        sources=sources,
    )


def outcome(of: ActionCall, status: Status = "done", code: str | None = None, **more: Any) -> StepOutcome:
    said: dict[str, Any] = {"call": of, "number": of.number, "kind": of.kind, "action": of.action.name}
    if status == "done":
        output = {"text": f"{MARKER} out of {of.call_id}"}
        said |= {"output": output, "output_digest": digest_bytes(msgspec.json.encode(output))}
    else:
        said |= {"code": code, "detail": f"{MARKER} went wrong"}
    return StepOutcome(status=status, **(said | more))


def event(of: StepOutcome) -> dict[str, Any]:
    return {"action": of.action, "status": "success" if of.status == "done" else "failure", "detail": MARKER}


def claims(names: Iterable[str]) -> list[str]:
    return [BASE_CLAIM, *(claim_of(ACTIONS[name]) for name in names)]


def run_tier_0(turn: Any, *calls: ActionCall) -> list[StepOutcome]:
    """Request calls one after the other and have them answered."""
    found = []
    for one in calls:
        turn.request([one])
        found.append(outcome(one))
        turn.record_outcomes(found[-1:])
    return found


def check_witnesses(turns: Turns, *witnesses: Mapping[str, Any]) -> None:
    """Each holds, nothing was found in any, and what was said is in none."""
    for witness in witnesses:
        recorded = msgspec.json.decode(msgspec.json.encode(dict(witness)))
        verification = verify(recorded)
        assert verification.holds, verification.differences
        assert witness["result"] == "accepted"
        assert witness["failureClasses"] == []
        assert MARKER not in msgspec.json.encode(dict(witness)).decode()
    assert [witness["id"] for witness in witnesses] == turns.closed_turns.witnesses[-len(witnesses) :]


def rows(witness: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """The rows of a kind by the last parts of their call ids."""
    return {row["toolCallId"].removeprefix(f"{RUN}/"): row for row in witness["turn"]["evidence"].get(kind, ())}
