"""Values as deep as they may be go out and come back in, and one step further neither goes out nor in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from manglecp.base.strict_json import Fault
from manglecp.mangle import Fact, List, Map, Name, Pair, Program, Source, Struct, Value
from manglecp.wire.clauses import fact_object
from manglecp.wire.errors import WireError
from manglecp.wire.message_reader import receive, receive_from_server
from manglecp.wire.messages import (
    Intent,
    IntentPayload,
    IntentRequest,
    IntentResponse,
    IntentResult,
    ProofHints,
    WhyNot,
    encode,
)
from manglecp.wire.profile import Profile
from manglecp.wire.values import MAX_NESTING, to_value

LIMIT: Final = 1 << 24
PROFILE: Final = Profile.of(
    Program.load([Source("s.mg", 'Decl p(A) descr [direction("both")] bound [/any].')]).predicates
)
WRAPPERS: Final[dict[str, Callable[[Value], Value]]] = {
    "list": lambda value: List((value,)),
    "pair": lambda value: Pair(1, value),
    "map": lambda value: Map((("a", value),)),
    "map, wrapped": lambda value: Map(((1, value),)),
    "map, in its keys": lambda value: Map(((value, 1),)),
    "struct": lambda value: Struct(((Name("/a"), value),)),
    "struct, wrapped": lambda value: Struct(((1, value),)),
}
INSIDE: Final = [1, "text", Name("/name"), 1 << 60, Map(())]
"""Plain, wrapped, and one with parts, which counts."""


def nested(wrap: Callable[[Value], Value], inside: Value, depth: int) -> Value:
    value = inside
    for _ in range(depth - isinstance(inside, Map)):
        value = wrap(value)
    return value


@pytest.mark.req("DATA-15", "DATA-16")
@pytest.mark.parametrize("inside", INSIDE, ids=str)
@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
def test_the_deepest_values_survive_the_way_out_and_in(wrap: Callable[[Value], Value], inside: Value) -> None:
    """Out where messages are deepest, in the hints; and in again as a fact of a request."""
    fact = Fact("p", (nested(wrap, inside, MAX_NESTING),))
    why = WhyNot(tool="t", known=True, would_unlock=((PROFILE.write(fact),),))
    hints = ProofHints(derivations=(), excluded=(), unmatched_facts=(), why_not=(why,))
    result = IntentResult(eval_time_used="2026-01-01T00:00:00Z", macro_tools=(), proof_hints=hints)
    answer: Any = receive_from_server(encode(IntentResponse(id="1", payload=result)), LIMIT)
    (sent_back,) = answer.payload.proof_hints.why_not[0].would_unlock[0]
    request = IntentRequest(id="2", payload=IntentPayload(intent=Intent(name="a"), facts=[sent_back]))
    received: Any = receive(encode(request), LIMIT)
    assert PROFILE.read(received.payload.facts, 0) == [fact]


@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
def test_one_step_deeper_is_not_written(wrap: Callable[[Value], Value]) -> None:
    with pytest.raises(Fault, match=f"nested more than {MAX_NESTING} deep"):
        PROFILE.write(Fact("p", (nested(wrap, 1, MAX_NESTING + 1),)))


@pytest.mark.parametrize("inside", [1, "text", {"_type": "name", "value": "/a"}], ids=str)
@pytest.mark.parametrize(
    "wrap",
    [
        lambda data: [data],
        lambda data: {"a": data},
        lambda data: {"_type": "list", "value": [data]},
        lambda data: {"_type": "pair", "value": [1, data]},
        lambda data: {"_type": "map", "value": [[1, data]]},
        lambda data: {"_type": "struct", "value": {"a": data}},
    ],
)
def test_one_step_deeper_is_not_read(wrap: Callable[[Any], Any], inside: Any) -> None:
    data = inside
    for _ in range(MAX_NESTING):
        data = wrap(data)
    to_value(data)
    request = IntentRequest(
        id="1", payload=IntentPayload(intent=Intent(name="a"), facts=[{"pred": "p", "args": [wrap(data)]}])
    )
    received: Any = receive(encode(request), LIMIT)  # the message is in order: what is wrong is told of the fact
    with pytest.raises(WireError) as error:
        PROFILE.read(received.payload.facts, 0)
    assert error.value.code == "type_mismatch"
    assert f"nested more than {MAX_NESTING} deep" in str(error.value.details)


@pytest.mark.parametrize("kind", ["list", "map"])
def test_clauses_have_the_same_limit(kind: str) -> None:
    def nested(depth: int) -> Any:
        term: dict[str, Any] = {"type": "number", "value": 1}
        for _ in range(depth):
            inside = {"elements": [term]} if kind == "list" else {"entries": {"k": term}}
            term = {"type": kind, **inside}
        return {"head": {"predicate": "p", "args": [term]}}

    assert fact_object(nested(MAX_NESTING))["pred"] == "p"
    with pytest.raises(Fault, match=f"nested more than {MAX_NESTING} deep"):
        fact_object(nested(MAX_NESTING + 1))
