"""A turn that is recognised is the turn that is judged; judging it the plain way is the oracle."""

from __future__ import annotations

import base64
import copy
import gc
import json
import re
import threading
from collections.abc import Callable, Mapping
from functools import cache
from hashlib import sha256
from typing import Any, Final

import msgspec
import pytest
from hypothesis import given, strategies as st

from manglecp.harness.canonical_v1 import digest_v1 as digest
from manglecp.harness.errors import InvalidEvidence
from manglecp.harness.growing import Growing
from manglecp.harness.judging import Foretold, Judgement, judge
from manglecp.harness.patterns import expanded, read_pattern
from manglecp.harness.shapes import Filled, names_in
from manglecp.harness.states import (
    Blocked,
    CallSpec,
    Forged,
    JoinClosed,
    ToolRequests,
    Unopened,
    WrongMutation,
    redeem_call,
)
from manglecp.harness.witness import Witness, verify
from tests.harness.evidence import VECTORS, turn

Names = Mapping[str, str]
Rows = dict[str, Any]


def name(*parts: object) -> str:
    """A name of its own."""
    return sha256(json.dumps([str(part) for part in parts]).encode()).hexdigest()


POLICIES: Final = {kind: name("policy", kind) for kind in ("render", "queue", "view", "schema", "stage")}
SPEC: Final = {
    **turn()["evidence"]["callSpec"],
    "toolRenderProtocolDigest": f"sha256:{POLICIES['render']}",
    "reminderQueuePolicyDigest": f"sha256:{POLICIES['queue']}",
    "stateViewPolicyDigest": f"sha256:{POLICIES['view']}",
    "toolPolicy": {"allowedTools": [{"toolName": "grep", "schemaDigest": f"sha256:{POLICIES['schema']}"}]},
    "toolTransportPolicy": {"parallelToolCalls": False, "ordering": "strict"},
}
BESIDE: Final = {
    "contextConstraints": {"dedup": True, "requiredQueueIds": ["events"]},
    "toolConstraints": {"requireResultProvenance": True, "exampleDigests": {"find": f"sha256:{POLICIES['stage']}"}},
    "mutationConstraints": {"activePolicyDigest": "sha256:mutation"},
}
STAGES: Final = ("pre_flight", "input", "output")


def slots(calls: int) -> list[str]:
    """What has a name in a turn of so many calls."""
    of_calls = ("input", "result", "used", "shown", "told", "event", "schema", "plugin", "render_policy")
    of_turn = ("turn", "run", "reduced", "view", "queue_policy", "view_policy", "stage")
    return [*of_turn, *(f"{kind}{number}" for number in range(calls) for kind in of_calls)]


def valid(calls: int, seed: object) -> dict[str, str]:
    """Names of a turn where nothing is wrong."""
    names = {slot: name(seed, slot) for slot in slots(calls)}
    names["run"] = names["run"][:32]
    names |= {"queue_policy": POLICIES["queue"], "view_policy": POLICIES["view"], "stage": POLICIES["stage"]}
    for number in range(calls):
        names[f"used{number}"] = names[f"result{number}"]
        names[f"event{number}"] = names[f"told{number}"]
        names[f"schema{number}"] = POLICIES["schema"]
        names[f"render_policy{number}"] = POLICIES["render"]
    return names


def rows(calls: int, names: Names, statuses: str = "") -> tuple[list[Rows], Rows]:
    """The requests of a turn and all that it is closed with, as a server says it."""
    hashed = {slot: f"sha256:{one}" for slot, one in names.items()}
    ids = [f"r-{names['run']}/s{number}/1" for number in range(calls)]
    requests: list[Rows] = [
        {
            "toolCallId": ids[number],
            "toolName": "grep",
            "schemaDigest": hashed[f"schema{number}"],
            "inputDigest": hashed[f"input{number}"],
            "schemaValid": True,
            "actionIndex": number,
            "ordinal": number,
            "callGroupId": f"s{number}",
        }
        for number in range(calls)
    ]
    results: list[Rows] = []
    uses: list[Rows] = []
    for number in range(calls):
        row: Rows = {"toolCallId": ids[number], "sequence": number}
        row["provenance"] = {"kind": "runtime_route", "ref": f"toolhost/{hashed[f'plugin{number}']}"}
        use: Rows = {"toolCallId": ids[number]}
        if statuses[number : number + 1] == "e":
            error = {"errorCode": "crash", "retryable": False, "errorMessageDigest": hashed[f"result{number}"]}
            results.append(row | {"status": "error"} | error)
            uses.append(use | {"disposition": "observed_only"})
        else:
            results.append(row | {"status": "ok", "resultDigest": hashed[f"result{number}"]})
            use |= {"resultDigest": hashed[f"used{number}"], "disposition": "consumed"}
            uses.append(use | {"summaryRef": f"response:r-{names['run']}"})
    closing = {
        "results": results,
        "uses": uses,
        "protocol_state": {"stopReason": "end_turn", "continuationAllowed": False, "turnIndex": 1},
        "found": {
            "guardrailDecisions": [
                {"stage": stage, "sequence": number, "triggered": False, "policyDigest": hashed["stage"]}
                for number, stage in enumerate(STAGES)
            ]
        },
        "shown": {
            "toolRender": [
                {
                    "toolCallId": ids[number],
                    "operatorPayloadDigest": hashed[f"shown{number}"],
                    "reminderRenderDigest": hashed[f"told{number}"],
                    "injectionPoint": "invoke_response",
                    "policyDigest": hashed[f"render_policy{number}"],
                }
                for number in reversed(range(calls))
            ],
            "reminderQueue": [
                {
                    "queueId": "events",
                    "reducedDigest": hashed["reduced"],
                    "policyDigest": hashed["queue_policy"],
                    "entries": [{"reminderDigest": hashed[f"event{number}"]} for number in range(calls)],
                }
            ],
            "stateViews": [
                {
                    "viewId": "run",
                    "viewDigest": hashed["view"],
                    "policyDigest": hashed["view_policy"],
                    "sourceRefs": [f"run://r-{names['run']}"],
                }
            ],
            "sessionRefs": [f"run://r-{names['run']}"],
        },
    }
    return requests, closing


def told(closed: JoinClosed) -> object:
    """All that there is to know of a turn that is closed."""
    judgement = closed.judgement
    witness = Witness(judgement)
    assert verify(json.loads(bytes(witness.written))).holds
    assert unpacked(witness.kept) == bytes(witness.written)
    return (
        judgement.as_json(),
        bytes(witness.written),
        dict(witness),
        judgement.normalized,
        closed.document,
        judgement.join_closed,
        judgement.mutation_ready,
    )


def unpacked(kept: msgspec.Raw | Filled) -> bytes:
    """A witness, made again of its pattern and of what is its own."""
    if isinstance(kept, msgspec.Raw):
        return bytes(kept)
    if kept.names is None:
        return kept.text
    parts = read_pattern(kept.written_pattern, kept.pattern.digest)
    return expanded(parts, kept.names, len(kept.text)).encode()


def permitted(state: ToolRequests, requests: list[Rows]) -> list[bool]:
    """Which calls are permitted: each of the requests, and others that are not."""
    asked = [(row["toolCallId"], row["toolName"], row.get("inputDigest", "")) for row in requests]
    others = [(one[0] + more, *one[1:]) for one in asked for more in ("x", '"', "\\", "\ud800")]
    asked += others + [(*one[:2], "sha256:" + name("other")) for one in asked]
    return [state.permits(*one) for one in asked]


def ends(opened: CallSpec, requests: list[Rows], closing: Rows, groups: int = 1) -> tuple[object, Judgement | None]:
    """What becomes of a turn, told in full, and its judgement if it was closed."""
    try:
        state = opened.request(requests[:groups])
        for row in requests[groups:]:
            state = state.request([row])
        permits = permitted(state, requests)
        closed = state.close(**closing)
    except Blocked as blocked:
        return (blocked.state, [(one.id, str(one)) for one in blocked.findings]), None
    except InvalidEvidence as invalid:
        return str(invalid), None
    return (permits, told(closed)), closed.judgement


def plainly(spec: Rows, beside: Rows, call_id: str, *given: Any) -> object:
    """The same, the plain way: nothing is known of a turn that is opened by itself."""
    return ends(CallSpec.open({**spec, "callId": call_id}, beside), *given)[0]


def recognised(of: Unopened, call_id: str, *given: Any) -> bool:
    """Is such a turn recognised? What becomes of it is told the same in any case."""
    _, judgement = ends(of.open(call_id), *given)
    return isinstance(judgement, Foretold)


def learnt(of: Unopened, made: Callable[[object], tuple[str, Any, Any]], groups: int = 1, times: int = 6) -> bool:
    """Whether turns of a kind are recognised after some of them."""
    return [recognised(of, *made(("learnt", seed)), groups) for seed in range(times)][-1]


@cache
def many(calls: int, statuses: str = "", groups: int = 1) -> Unopened:
    """Turns that are recognised from now on."""
    of = Unopened.of(SPEC, BESIDE)

    def made(seed: object) -> tuple[str, Any, Any]:
        names = valid(calls, seed)
        return f"turn1_{names['turn']}", *rows(calls, names, statuses)

    assert learnt(of, made, groups)
    return of


# --- the same as the plain way -------------------------------------------------------------------------------------

assignments = st.dictionaries(st.sampled_from(slots(3)), st.sampled_from(["another", "policy", "digest", "new"]))


def renamed(calls: int, judgement: Judgement, changes: Mapping[str, str], chance: Any) -> dict[str, str]:
    """Valid names, some of them changed for those of other places, of policies, or of what was judged before."""
    names = valid(calls, "second")
    pools = {
        "another": [*names.values()],
        "policy": [*POLICIES.values()],
        "digest": [one.removeprefix("sha256:") for one in judgement.digests.values()],
        "new": [name("new")],
    }
    for slot, kind in changes.items():
        if slot in names:
            picked = chance.choice(pools[kind])
            names[slot] = picked[: len(names[slot])].ljust(len(names[slot]), "0")
    return names


@given(
    st.integers(1, 3),
    st.text("oe", min_size=3, max_size=3),
    st.integers(1, 3),
    assignments,
    st.randoms(use_true_random=False),
)
def test_names_of_any_kind_in_any_place(
    calls: int, statuses: str, groups: int, changes: Mapping[str, str], chance: Any
) -> None:
    of, names = many(calls, statuses[:calls], groups), valid(calls, chance.random())
    call_id, given_rows = f"turn1_{names['turn']}", rows(calls, names, statuses)
    result, judgement = ends(of.open(call_id), *given_rows, groups)
    assert result == plainly(SPEC, BESIDE, call_id, *given_rows, groups)
    assert isinstance(judgement, Foretold)
    names = renamed(calls, judgement, changes, chance)
    call_id, given_rows = f"turn1_{names['turn']}", rows(calls, names, statuses)
    assert ends(of.open(call_id), *given_rows, groups)[0] == plainly(SPEC, BESIDE, call_id, *given_rows, groups)


@pytest.mark.parametrize("one", slots(2))
def test_one_name_in_another_place(one: str) -> None:
    """A turn like those before it but for one name, which is that of a policy, or of another row."""
    for other in ("policy", "shown0", "told1", "run"):
        names = valid(2, "odd")
        names[one] = ({"policy": POLICIES["view"]} | names)[other].ljust(64, "a")[: len(names[one])]
        call_id, given_rows = f"turn1_{names['turn']}", rows(2, names)
        assert ends(many(2).open(call_id), *given_rows)[0] == plainly(SPEC, BESIDE, call_id, *given_rows)


def test_every_vector_under_other_names() -> None:
    """Digests of policies are fixed; all others, and the ids of turns, are other ones each time."""
    assert sum(map(_is_recognised, sorted(VECTORS))) > 3


def _is_recognised(vector: str) -> bool:
    """Whether a vector is, sooner or later. What becomes of it is the same each time."""
    document = VECTORS[vector]["input"]
    beside = {one: value for one, value in document.items() if one != "evidence"}
    policies = set(re.findall(r"sha256:[^\"]*", json.dumps([beside, document.get("evidence", {}).get("callSpec")])))

    def renamed(value: Any, seed: object) -> Any:
        def digest_of(match: re.Match[str]) -> str:
            return f"sha256:{name(match[0], '' if match[0] in policies else seed)}"

        return json.loads(re.sub(r"sha256:[^\"]*", digest_of, json.dumps(value)))

    found = False
    try:
        of = Unopened.of(renamed(document["evidence"]["callSpec"], ""), renamed(beside, ""))
    except (Blocked, InvalidEvidence, KeyError):
        return found
    for seed in range(4):
        evidence = {one: value for one, value in renamed(document["evidence"], seed).items() if value is not None}
        spec, call_id = evidence.pop("callSpec"), f"turn1_{name('turn', seed)}"
        closing = {
            "results": evidence.pop("toolResults", []),
            "uses": evidence.pop("toolUse", []),
            "protocol_state": evidence.pop("protocolState", {}),
            "found": {},
        }
        given_rows = evidence.pop("toolRequests", []), closing | {"shown": evidence}, 100
        result, judgement = ends(of.open(call_id), *given_rows)
        assert result == plainly(spec, renamed(beside, seed), call_id, *given_rows)
        found = isinstance(judgement, Foretold)
    return found


# --- what is recognised, and what never is -------------------------------------------------------------------------


def turns(change: Callable[[list[Rows], Rows, Names], object] | None = None, calls: int = 2) -> Any:
    """Turns with other names each, changed in the same way."""

    def made(seed: object) -> tuple[str, Any, Any]:
        names = valid(calls, seed)
        requests, closing = rows(calls, names)
        if change is not None:
            change(requests, closing, names)
        return f"turn1_{names['turn']}", requests, closing

    return made


def test_turns_that_differ_in_names_are_recognised() -> None:
    of = Unopened.of(SPEC, BESIDE)
    assert [recognised(of, *turns()(seed)) for seed in range(6)] == [False] * 4 + [True] * 2


@pytest.mark.parametrize("calls", [1, 2, 3])
def test_reminders_come_in_any_order(calls: int) -> None:
    """Judging puts them in order by their names, and the names are others each time."""
    of, orders = many(calls), set()
    for seed in range(12):
        call_id, *given_rows = turns(calls=calls)(("order", seed))
        assert recognised(of, call_id, *given_rows)
        assert ends(of.open(call_id), *given_rows)[0] == plainly(SPEC, BESIDE, call_id, *given_rows)
        entries = [one["reminderDigest"] for one in given_rows[1]["shown"]["reminderQueue"][0]["entries"]]
        orders.add(tuple(sorted(range(calls), key=entries.__getitem__)))
    assert len(orders) > 1 or calls == 1


def _input(requests: list[Rows], _: Rows, names: Names) -> None:
    requests[0]["input"] = {"id": names["input0"]}


def _payload(_: list[Rows], closing: Rows, names: Names) -> None:
    closing["results"][0]["payload"] = names["result0"]


def _own_ids(requests: list[Rows], closing: Rows, names: Names) -> None:
    """Rows are put in the order of their ids, and these are names."""
    ids = {row["toolCallId"]: f"{names[f'input{number}']}/1" for number, row in enumerate(requests)}
    shown = closing["shown"]["toolRender"]
    for row in (*requests, *closing["results"], *closing["uses"], *shown):
        row["toolCallId"] = ids[row["toolCallId"]]


def _capitals(_: list[Rows], closing: Rows, names: Names) -> None:
    closing["shown"]["sessionRefs"].append("run://" + names["view"].upper())


def _escape(_: list[Rows], closing: Rows, names: Names) -> None:
    closing["shown"]["sessionRefs"].append("\f" + names["view"])


def _quotes(_: list[Rows], closing: Rows, __: Names) -> None:
    closing["shown"]["sessionRefs"].append('"here"')


def _scoped(_: list[Rows], closing: Rows, names: Names) -> None:
    closing["found"]["contextAccess"] = [{"ref": f"notes/{names['view']}"}]


def _order(_: list[Rows], closing: Rows, names: Names) -> None:
    closing["shown"]["sessionRefs"] += [f"run://{names['view']}", f"run://{names['reduced']}"]


def _near(_: list[Rows], closing: Rows, names: Names) -> None:
    """Whether a short word comes before a name depends on the name."""
    closing["shown"]["sessionRefs"] += [names["view"], "7"]


def _two_queues(_: list[Rows], closing: Rows, __: Names) -> None:
    queue = copy.deepcopy(closing["shown"]["reminderQueue"][0])
    closing["shown"]["reminderQueue"].append(queue | {"queueId": "more"})


def _tails(_: list[Rows], closing: Rows, names: Names) -> None:
    """What stands after the names is the same from both ends, and goes where its name goes."""
    low, middle, high = sorted(name(names["view"], number) for number in range(3))
    entries = [f"sha256:{low}x", f"sha256:{middle}y", f"sha256:{high}x"]
    closing["shown"]["reminderQueue"][0]["entries"] = [{"reminderDigest": one} for one in entries]


def _hidden_tail(_: list[Rows], closing: Rows, names: Names) -> None:
    """One reminder is only to be seen as one when it is trimmed, and its name stands where nobody reads it."""
    low, middle, high = sorted(name(names["view"], number) for number in range(3))
    entries = [f"sha256:{low}", f" sha256:{middle}y", f"sha256:{high}"]
    closing["shown"]["reminderQueue"][0]["entries"] = [{"reminderDigest": one} for one in entries]
    closing["uses"][0]["reminderDigest"] = f"sha256:{middle}"


def _begun_alike(_: list[Rows], closing: Rows, names: Names) -> None:
    """Of names that begin alike it is what follows them that is put in order."""
    entries = [f"sha256:{names['view'][:32]}z", f"sha256:{names['view']}z"]
    closing["shown"]["reminderQueue"][0]["entries"] = [{"reminderDigest": one} for one in entries]


def _deep(requests: list[Rows], _: Rows, __: Names) -> None:
    """In a member that nobody reads."""
    nested: list[Any] = []
    for _depth in range(500):
        nested = [nested]
    requests[0]["entries"] = nested


def _lowest(_: list[Rows], closing: Rows, names: Names) -> None:
    """Digits that hardly any name comes before."""
    queue = closing["shown"]["reminderQueue"][0]
    queue["entries"] += [{"reminderDigest": f"sha256:{name(names['view'], number)}"} for number in range(20)]
    closing["shown"]["sessionRefs"] = ["0" * 30 + "1", name(names["view"], "ref")[:32]]


ODD: Final = [
    *(_input, _payload, _own_ids, _capitals, _escape, _quotes, _scoped, _order, _near, _two_queues),
    *(_tails, _hidden_tail, _begun_alike, _deep, _lowest),
]


@pytest.mark.parametrize("change", ODD)
def test_where_more_than_equality_counts_nothing_is_recognised(change: Any) -> None:
    of = Unopened.of(SPEC, BESIDE)
    made = turns(change)
    for seed in range(8):
        call_id, *given_rows = made(seed)
        result, judgement = ends(of.open(call_id), *given_rows)
        assert not isinstance(judgement, Foretold)
        assert result == plainly(SPEC, BESIDE, call_id, *given_rows)


def test_what_is_found_is_found_every_time() -> None:
    """Also what closes a turn all the same, and keeps it from a mutation."""
    beside = {**BESIDE, "mutationConstraints": {"activePolicyDigest": "sha256:another"}}
    of = Unopened.of(SPEC, beside)
    for seed in range(8):
        call_id, *given_rows = turns()(seed)
        result, judgement = ends(of.open(call_id), *given_rows)
        assert judgement is not None
        assert judgement.failure_classes == ("mutation.policy_digest_mismatch",)
        assert result == plainly(SPEC, beside, call_id, *given_rows)


def test_the_lowest_digest_may_be_that_of_a_policy() -> None:
    """There are shorter names that come before it, and no others."""
    lowest = "0" * 64
    spec = {**SPEC, "decompositionPolicyDigest": f"sha256:{lowest}"}
    of = Unopened.of(spec, BESIDE)

    def refs(_: list[Rows], closing: Rows, names: Names) -> None:
        closing["shown"]["sessionRefs"] = [f"run://{lowest}", f"run://{names['run']}"]

    assert not learnt(of, turns(refs))
    call_id, requests, closing = turns(refs)("lowest")
    closing["shown"]["sessionRefs"][1] = "run://" + "0" * 32
    assert ends(of.open(call_id), requests, closing)[0] == plainly(spec, BESIDE, call_id, requests, closing)


def test_a_prefix_of_a_scope_may_end_within_a_name() -> None:
    """What a role may read is told by how a reference begins."""
    first = turns(_scoped)(0)
    ref = first[2]["found"]["contextAccess"][0]["ref"]
    spec = {**SPEC, "orchestrationRole": "specialist"}
    beside = {**BESIDE, "contextConstraints": {"roleScopes": {"specialist": {"read": [ref[:8]]}}}}
    of = Unopened.of(spec, beside)
    for seed in (0, 0, 0, 0, 0, 1):
        call_id, *given_rows = turns(_scoped)(seed)
        assert ends(of.open(call_id), *given_rows)[0] == plainly(spec, beside, call_id, *given_rows)


def test_what_is_no_json_is_read_as_ever() -> None:
    of = many(2)
    call_id, requests, closing = turns()("odd")
    requests = [{**row, "toolName": Grep("grep")} for row in requests]
    closing["results"] = tuple(closing["results"])
    assert ends(of.open(call_id), requests, closing)[0] == plainly(SPEC, BESIDE, call_id, requests, closing)
    same_in_json = base64.b64decode("grep")
    with pytest.raises(InvalidEvidence):
        of.open(call_id).request([{**requests[0], "toolName": same_in_json}])


def test_who_makes_rows_of_json_may_say_so() -> None:
    """They are not looked at twice, and what becomes of them is the same."""
    call_id, requests, closing = turns()("made")
    state = many(2, groups=2).open(call_id).request(requests, of_json=True)
    closed = state.close(**closing, of_json=True)
    assert isinstance(closed.judgement, Foretold)
    assert (permitted(state, requests), told(closed)) == plainly(SPEC, BESIDE, call_id, requests, closing, 2)
    again = Unopened.of(SPEC, BESIDE).open(call_id).request(requests[:1], of_json=True)
    again = again.request(requests[1:], of_json=True)
    assert told(again.close(**closing, of_json=True)) == told(closed)


class Grep(str):
    """A text that is not quite one."""

    __slots__ = ()


def test_what_was_given_may_change_afterwards() -> None:
    call_id, requests, closing = turns()("changed")
    plain = plainly(SPEC, BESIDE, call_id, *copy.deepcopy((requests, closing)), 2)
    state = many(2, groups=2).open(call_id).request(requests)
    requests[0]["toolName"] = "rm"
    assert state.document["evidence"]["toolRequests"][0]["toolName"] == "grep"
    requests[0]["toolName"] = "grep"
    closed = state.close(**closing)
    closing["shown"]["sessionRefs"].append("elsewhere")
    assert isinstance(closed.judgement, Foretold)
    assert (permitted(state, requests), told(closed)) == plain


def test_turns_under_other_terms_are_others() -> None:
    """What is known of turns under one policy says nothing of those under another."""
    of = many(2)
    pinned = {"toolName": "grep", "schemaDigest": "sha256:" + name("another schema")}
    spec = {**SPEC, "toolPolicy": {"allowedTools": [pinned]}}
    other = Unopened.of(spec, BESIDE)
    call_id, *given_rows = turns()("terms")
    assert recognised(of, call_id, *given_rows)
    result, judgement = ends(other.open(call_id), *given_rows)
    assert judgement is None
    assert result == plainly(spec, BESIDE, call_id, *given_rows)


def test_a_long_turn_is_read() -> None:
    """As often as it comes: a shape is learnt by walking all of its turn."""
    of = Unopened.of(SPEC, BESIDE)
    for seed in range(24):
        call_id, *given_rows = turns(calls=20)(seed)
        result, judgement = ends(of.open(call_id), *given_rows)
    assert not isinstance(judgement, Foretold)
    assert result == plainly(SPEC, BESIDE, call_id, *given_rows)


# --- states of turns that were recognised --------------------------------------------------------------------------


def test_a_call_is_redeemed_once() -> None:
    call_id, requests, closing = turns()("redeemed")
    state = many(2).open(call_id).request(requests[:1])
    later = state.request(requests[1:])
    row, second = requests
    named = {"call_id": row["toolCallId"], "tool_name": "grep", "input_digest": row["inputDigest"]}
    after = {"call_id": second["toolCallId"], "tool_name": "grep", "input_digest": second["inputDigest"]}
    for wrong in ({"tool_name": "rm"}, {"call_id": "c"}, {"input_digest": second["inputDigest"]}):
        with pytest.raises(WrongMutation):
            redeem_call(later, **{**named, **wrong})
    with pytest.raises(WrongMutation):
        redeem_call(state, **after)
    redeem_call(later, **named)
    assert not state.permits(*named.values())
    for either in (state, later):
        with pytest.raises(Forged, match="redeemed already"):
            redeem_call(either, **named)
    redeem_call(later, **after)
    assert isinstance(later.close(**closing).judgement, Foretold)


def test_a_turn_that_was_recognised_goes_on_the_plain_way() -> None:
    """Step by step, and with a mutation."""
    call_id, requests, closing = turns()("on")
    mutation = {
        "kind": "issue",
        "action": "issue.update",
        "inputRefs": [closing["uses"][0]["summaryRef"]],
        "instructionRef": "instruction://1",
        "capabilityClaims": ["capabilities.change_morphisms", "capabilities.change_morphisms.issue_update"],
    }
    found = []
    for opened in (many(2).open(call_id), CallSpec.open({**SPEC, "callId": call_id}, BESIDE)):
        state = opened.request(requests[:1]).request(requests[1:])
        answered = state.answer(closing["results"], closing["found"]).use(closing["uses"])
        closed = answered.close(closing["protocol_state"], closing["shown"])
        ready = state.close(**closing).authorize(mutation)
        states = [opened.document, state.document, answered.document, told(closed), ready.judgement.as_json()]
        found.append([*states, judge(ready.document).as_json(), ready.intent])
    assert found[0] == found[1]


def test_many_threads_may_ask() -> None:
    """While the first of them learns."""
    of = Unopened.of(SPEC, BESIDE)
    wrong: list[object] = []

    def work(thread: int) -> None:
        for seed in range(8):
            call_id, *given_rows = turns()((thread, seed))
            if ends(of.open(call_id), *given_rows)[0] != plainly(SPEC, BESIDE, call_id, *given_rows):
                wrong.append(given_rows)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert not wrong
    assert recognised(of, *turns()("after"))


@pytest.mark.parametrize("space", ["", " ", "\f", "\v"])
@pytest.mark.parametrize("kind", ["deferPolicy", "allowedCallers"])
def test_a_tool_that_a_document_forbids_is_refused_whatever_was_learnt(space: str, kind: str) -> None:
    """A document is read without the white space around its texts, some of which JSON writes with digits."""
    forbidden = name("forbidden")
    documents = {"deferPolicy": {"deferred": [space + forbidden]}, "allowedCallers": {"tools": {space + forbidden: []}}}
    spec = {one: value for one, value in SPEC.items() if one != "toolPolicy"} | {
        f"{kind}Digest": digest(documents[kind])
    }
    beside = {**BESIDE, "policyDocuments": {kind: documents[kind]}}
    of = Unopened.of(spec, beside)

    def calling(requests: list[Rows], _: Rows, names: Names) -> None:
        for row in requests:
            row["toolName"] = name(names["view"], "tool")

    assert learnt(of, turns(calling))
    call_id, requests, closing = turns(calling)("forbidden")
    for row in requests:
        row["toolName"] = forbidden
    result, judgement = ends(of.open(call_id), requests, closing)
    assert judgement is None
    assert result == plainly(spec, beside, call_id, requests, closing)


def test_a_long_turn_does_not_hold_on_to_all_that_it_was() -> None:
    """Each step has all rows so far: to keep every one of them would be the square of its rows."""
    _, requests, _ = turns(calls=200)("long")
    state = Unopened.of(SPEC, BESIDE).open(f"turn1_{name('long')}").request(requests[:1])
    gc.collect()
    before = sum(isinstance(one, Growing) for one in gc.get_objects())
    for row in requests[1:]:
        state = state.request([row])
    gc.collect()
    assert sum(isinstance(one, Growing) for one in gc.get_objects()) - before < 40
    assert len(state.document["evidence"]["toolRequests"]) == 200


def test_a_name_of_a_policy_is_found_wherever_it_stands() -> None:
    """Also in a document, and in words that are read in lower case."""
    document = {"deferred": ["x"], "note": name("in a document")}
    spec = {**SPEC, "deferPolicyDigest": digest(document)}
    beside = {
        **BESIDE,
        "policyDocuments": {"deferPolicy": document},
        "contextConstraints": {"allowedInjectionPoints": ["POINT-" + name("a point").upper(), "invoke_response"]},
    }
    written = Growing.opened(spec, beside).written
    fixed = {one.decode() for text in written for one in names_in(text)}
    assert fixed >= {name("in a document"), name("a point"), digest(document).removeprefix("sha256:")}
    assert fixed >= {*POLICIES.values()}
