"""The mutation that a turn authorises: which calls, under which claims, and what they rest on.

What they rest on is named in one of two ways. A result of the same turn is a row that is consumed for it. A result of
an earlier turn is the witness of that turn: whoever has the witness has the row.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from manglecp.harness import Judgement
from manglecp.invoke.call_spec import BASE_CLAIM, RunTerms, claim_of
from manglecp.invoke.calls import Call
from manglecp.invoke.happened import Happened, Happenings

__all__ = ["Past", "claims_needed", "mutation_of", "rests_on"]


class Past:
    """The turns of a run that are closed, by the ids of their witnesses."""

    def __init__(self, before: Sequence[str] = ()) -> None:
        """``before`` are those of turns that somebody else made, in their order."""
        self._witnesses = list(before)
        self._admission: str | None = None
        self._steps: dict[int, str] = {}
        self._newest: tuple[Judgement, Iterable[Happened]] | None = None
        """Not yet looked at: of the last turn of a run nobody asks."""

    def add(self, judgement: Judgement, happened: Iterable[Happened]) -> None:
        """One more closed turn, and which results it holds."""
        self._look()
        self._newest = judgement, happened

    @property
    def witnesses(self) -> list[str]:
        """In the order of the turns."""
        self._look()
        return list(self._witnesses)

    def of_step(self, number: int) -> list[str]:
        """Of turns that somebody else made it is only known that one of them holds it."""
        self._look()
        return [self._steps[number]] if number in self._steps else list(self._witnesses)

    def of_admission(self) -> list[str]:
        """As :meth:`of_step`, for the admission."""
        self._look()
        return list(self._witnesses) if self._admission is None else [self._admission]

    def _look(self) -> None:
        if self._newest is None:
            return
        judgement, happened = self._newest
        self._newest, witness = None, judgement.witness_id
        self._witnesses.append(witness)
        for one in happened:
            if one.kind == "admission":
                self._admission = witness
            elif one.kind == "do" and one.retry is None:
                self._steps[one.number] = witness


def claims_needed(terms: RunTerms, calls: Iterable[Call]) -> list[str]:
    """The base claim, one for each action, and what the policies demand of every mutation."""
    demanded = terms.chain.package.contents["mutation"].get("requiredCapabilityClaims", ())
    return sorted({BASE_CLAIM, *demanded, *(claim_of(call.action) for call in calls)})


def rests_on(calls: Sequence[Call], happened: Happenings, past: Past) -> tuple[list[Happened], list[str], list[str]]:
    """Results of this turn, witnesses of earlier ones, and refs that nothing leads to: those the harness refuses."""
    results: dict[str, Happened] = {}
    witnesses = past.witnesses[-1:]
    nowhere: list[str] = []
    sources = {source for call in calls for source in call.sources}
    undoing = [call for call in calls if call.kind == "undo"]
    if undoing:  # because of what failed, and to take back what was done
        sources.update(call.number for call in undoing)
        results |= {one.name: one for one in happened.calls if one.failed}
    here = {one.number: one for one in happened.calls if one.kind == "do"}  # the last attempt at each step
    for source in sorted(sources):
        if source in here:
            results[here[source].name] = here[source]
        elif known := past.of_step(source):
            witnesses += known
        else:
            nowhere.append(f"run://{calls[0].run}/s{source}")
    admissions = {one.name: one for one in happened.calls if one.kind == "admission"}
    results |= admissions
    if not admissions:
        witnesses += past.of_admission()
    return list(results.values()), list(dict.fromkeys(witnesses)), nowhere


def mutation_of(
    terms: RunTerms, calls: Sequence[Call], claims: Iterable[str], inputs: Iterable[str], witnesses: Sequence[str]
) -> dict[str, Any]:
    """The row ``mutation`` of the turn: it names each call by its id, its tool and the digest of its input."""
    return {
        "kind": "effect",
        "action": "+".join(sorted({call.action.aid for call in calls})),
        "instructionRef": f"instr1_{terms.admission_digest.removeprefix('sha256:')}",
        "inputRefs": [*inputs, *witnesses],
        "capabilityClaims": sorted(claims),
        "joinWitnessRefs": list(witnesses),
        "calls": [
            {"toolCallId": call.call_id, "toolName": call.action.aid, "inputDigest": call.input_digest}
            for call in calls
        ],
    }
