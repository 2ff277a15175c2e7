"""A request from its bytes to the bytes of the response, and the tokens of the response.

Budgets: a request of 50 facts against a pack of 120 rules and 100,000 base facts, decoded, evaluated, rendered and
encoded in at most 2.5 ms median; a request of 10,000 facts decoded, checked for duplicate keys and validated in at
most 40 ms. Milliseconds are CPU time, of all threads, in one process.

The second table measures explanations. The last table compares the tokens of a response, with and without explanations,
with those of a list of all tools of the pack, as a server without intents sends it.
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from typing import Any

import decoding
import msgspec
from _packs import NOW, PER_INTENT, actions, base_facts, description, make_pack, request_bytes
from _table import print_table

from manglecp.intent import Domain, Identity, respond
from manglecp.intent.evaluation import evaluate
from manglecp.intent.responder import answer_bytes
from manglecp.intent.tokens import counter
from manglecp.mangle import Program, Source
from manglecp.wire import Profile, encode, receive
from manglecp.wire.messages import IntentRequest

TOOLS = 60
RULES = 120
BASE_FACTS = 100_000
BUDGET = 2.5
LARGE_BUDGET = 40.0
TIMES = 400
TIMES_WITH_REASONS = 20
PRINCIPAL = Identity("bench", frozenset({"weekend"}), "user")
MOST_BYTES = 1 << 24


def clock() -> int:
    return NOW


def _milliseconds(since: int) -> float:
    return (time.process_time_ns() - since) / 1e6


def load() -> Domain:
    start = time.process_time_ns()
    pack = make_pack(TOOLS)
    domain = Domain.load(pack, facts=base_facts(BASE_FACTS))
    own = {source.name for source in pack.sources}
    rules = [rule for rule in domain.program.rules if rule.clause.span and rule.clause.span.source.name in own]
    assert len(rules) == RULES, len(rules)
    print(
        f"{TOOLS} tools, {len(rules)} rules, {BASE_FACTS:,} base facts: loaded in {_milliseconds(start) / 1e3:.1f} s\n"
    )
    return domain


def measure(domain: Domain, data: bytes) -> dict[str, list[float]]:
    """Measure each part many times. Rendering is the response without the evaluation, which is measured separately."""
    parts: dict[str, list[float]] = {"decode": [], "evaluate": [], "render": [], "encode": [], "together": []}
    for _ in range(TIMES):
        start = time.process_time_ns()
        request = receive(data, MOST_BYTES)
        parts["decode"].append(_milliseconds(start))
        assert isinstance(request, IntentRequest)
        start = time.process_time_ns()
        evaluate(domain, request, PRINCIPAL, clock=clock)
        parts["evaluate"].append(_milliseconds(start))
        start = time.process_time_ns()
        response = respond(domain, request, PRINCIPAL, clock).response
        parts["render"].append(max(0.0, _milliseconds(start) - parts["evaluate"][-1]))
        start = time.process_time_ns()
        encode(response)
        parts["encode"].append(_milliseconds(start))
        start = time.process_time_ns()
        answer_bytes(domain, data, PRINCIPAL, clock)
        parts["together"].append(_milliseconds(start))
    return parts


def small(domain: Domain) -> bool:
    data = request_bytes()
    answer = msgspec.json.decode(answer_bytes(domain, data, PRINCIPAL, clock))
    assert answer["type"] == "intent_response", answer
    tools = answer["payload"]["macro_tools"]
    windows = sum("validity" in tool for tool in tools)
    print(f"A request of 50 facts ({len(data):,} bytes); {len(tools)} tools in the answer, {windows} with a window\n")
    parts = measure(domain, data)
    rows = [[name, *_spread(times)] for name, times in parts.items()]
    print_table(["part", "least ms", "median ms", "p95 ms"], rows)
    return statistics.median(parts["together"]) <= BUDGET


def _spread(times: list[float]) -> list[str]:
    """Return least, median and p95; on a busy machine the least is the most precise."""
    return [f"{ms:.3f}" for ms in (min(times), statistics.median(times), statistics.quantiles(times, n=20)[-1])]


def reasons(domain: Domain) -> None:
    """Measure the same request with explanations, for a principal without the permission to see policy."""
    variants: dict[str, dict[str, Any]] = {
        "none": {},
        "why": {"include_proof_hints": True},
        "why not": {"x-why_not": [f"tool_{PER_INTENT - 1}"]},
        "rule coverage": {"x-rule_coverage": True},
    }
    rows = []
    for name, options in variants.items():
        data = _request_with(options)
        times = []
        for _ in range(TIMES_WITH_REASONS):
            start = time.process_time_ns()
            answer_bytes(domain, data, PRINCIPAL, clock)
            times.append(_milliseconds(start))
        rows.append([name, *_spread(times)])
    print()
    print_table(["explanation", "least ms", "median ms", "p95 ms"], rows)


def _request_with(options: dict[str, Any]) -> bytes:
    message = msgspec.json.decode(request_bytes())
    message["payload"]["options"] = options
    return msgspec.json.encode(message)


def large() -> bool:
    """Measure the request of the benchmark ``decoding``, which has more details."""
    data = decoding.message(decoding.facts(random.Random(1)))
    profile = Profile.of(Program.load([Source("schema.mg", decoding.DECLARATIONS)]).predicates)
    times = []
    for _ in range(15):
        start = time.process_time_ns()
        request = receive(data, MOST_BYTES)
        assert isinstance(request, IntentRequest)
        read = profile.read(request.payload.facts, NOW, limit=decoding.FACTS)
        times.append(_milliseconds(start))
        assert len(read) == decoding.FACTS
    least, median, _ = _spread(times)
    print(f"\nA request of {decoding.FACTS:,} facts ({len(data):,} bytes) read in {median} ms median, {least} least")
    return statistics.median(times) <= LARGE_BUDGET


def tokens() -> None:
    """Print the tokens of a response to one intent, and of a list of all tools."""
    counting = counter()
    print(f"\nTokens ({counting.by}), {PER_INTENT} tools to an intent\n")
    rows = []
    for tools in (10, 100, 1_000):
        domain = Domain.load(make_pack(tools), facts=base_facts(1_000))
        answer = answer_bytes(domain, request_bytes(), PRINCIPAL, clock)
        shown = len(msgspec.json.decode(answer)["payload"]["macro_tools"])
        listed, told = counting.count(_everything(tools)), counting.count(answer)
        why = counting.count(answer_bytes(domain, _request_with({"include_proof_hints": True}), PRINCIPAL, clock))
        rows.append([f"{tools:,}", f"{listed:,}", f"{shown}", f"{told:,}", f"{listed / told:.1f}", f"{why:,}"])
    headings = ["tools of the pack", "list of all tools", "offered", "response", "ratio", "with explanations"]
    print_table(headings, rows)


def _everything(tools: int) -> bytes:
    schemas = [action.input_schema for action in actions()]
    listed = [
        {"name": f"tool_{i}", "description": description(i), "inputSchema": schemas[i % len(schemas)]}
        for i in range(tools)
    ]
    return msgspec.json.encode({"tools": listed})


def main() -> int:
    domain = load()
    kept = [small(domain), large()]
    reasons(domain)
    tokens()
    if not all(kept):
        print(f"\nover budget: {BUDGET} ms for the request, {LARGE_BUDGET} ms to read {decoding.FACTS:,} facts")
    return 0 if all(kept) else 1


if __name__ == "__main__":
    sys.exit(main())
