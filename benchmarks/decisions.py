"""A decision about a call with 100 rules of policy and growing bases, and what its record costs.

Budgets at 20,000 base facts: 2 ms for the median decision, and 10 % of it for the record: building it, and its share of
the group commit. A decision is one that a client requests for an intent: it evaluates the rules for the offer, and for
the call. Times are CPU time of the process in microseconds, of 400 decisions.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from _packs import NOW
from _table import print_table

from manglecp.intent import Call, Decision, Domain, Identity, ProofInputs, decide
from manglecp.invoke import DecisionLog, decide_call
from manglecp.mangle import Fact, Source, Trust
from manglecp.pack import ActionDescription, Pack, Settings
from manglecp.pack.settings import DomainSettings
from manglecp.store import open_store
from manglecp.wire.messages import DecidePayload, Intent

T = TypeVar("T")

SIZES = (2_000, 20_000)
RULES = 100
CALLS = 400
DECISION_US, RECORD_SHARE = 2_000.0, 0.10
CLERK = Identity("ann", frozenset({"refund"}), "user")
DOMAIN = """
Decl order(Order, Customer, Amount) bound [/string, /string, /number].
Decl customer(Customer, Region) bound [/string, /string].
Decl blocked(Customer) bound [/string].
macro("refund", "Refunds an order."). macro_step("refund", 1, "pay"). mandatory("refund") :- intent("help").
"""
POLICY = """
permitted("refund") :- client_permission("refund").
public_reason("refund", "at most what was paid") :- above().
prohibited("refund", "at most what was paid") :- above().
above() :- call("refund"), call_arg("order", O), call_arg("amount", N), order(O, _, Paid), N > Paid.
prohibited("refund", "blocked") :- call("refund"), call_arg("order", O), order(O, C, _), blocked(C).
"""


def rules() -> str:
    """Return rules of policy of which each joins the call with the base; few of them fire."""
    lines = [POLICY]
    for number in range(RULES - 5):
        lines.append(
            f'prohibited("refund", "limit {number}") :- call("refund"), call_arg("order", O), call_arg("amount", N),'
            f' order(O, C, _), customer(C, "region {number}"), N > {number * 10}.'
        )
    return "\n".join(lines)


def load(size: int) -> Domain:
    schema = {"type": "object", "properties": {"order": {"type": "string"}, "amount": {"type": "integer"}}}
    pay = ActionDescription(
        name="pay", aid="bench.pay", description="Pays.", input_schema=schema, output_schema={"type": "object"},
        effects=("filesystem",), mutates=True, tier=1,
    )  # fmt: skip
    texts = (("rules/policy/policy.mg", rules(), Trust.POLICY), ("rules/domain/domain.mg", DOMAIN, Trust.DOMAIN))
    settings = Settings(
        name="bench", permissions=("refund",), domain=DomainSettings(id="bench", description="Benchmark.")
    )
    pack = Pack(
        settings=settings, sources=tuple(Source(*text) for text in texts), fact_files=(), skills={},
        actions={"pay": pay}, externals={}, params={}, digest="bench",
    )  # fmt: skip
    count = size * 4 // 5
    facts = [Fact("order", (f"O-{i}", f"C-{i // 4}", 20 + i % 300)) for i in range(count)]
    facts += [Fact("customer", (f"C-{i}", f"region {i % 300}")) for i in range(count // 4)]
    return Domain.load(pack, facts=[*facts, Fact("blocked", ("C-7",))])


def measure(size: int) -> list[tuple[str, float]]:
    domain, drawn = load(size), random.Random(1)
    inputs = ProofInputs(Intent(name="help"))
    calls = [
        Call("refund", {"order": f"O-{drawn.randrange(size * 4 // 5)}", "amount": drawn.randrange(1, 300)}, inputs)
        for _ in range(CALLS)
    ]
    decisions, evaluation = timed(lambda call: decide(domain, call, CLERK, NOW, call.facts(domain)), calls)
    verdicts = {decision.verdict for decision in decisions}
    assert verdicts == {"allow", "deny"}, verdicts
    requests = [DecidePayload(tool="refund", args=dict(call.args), intent=inputs.intent) for call in calls]
    decisions, median = timed(lambda request: decide_call(domain, request, CLERK, NOW), requests)
    with tempfile.TemporaryDirectory() as folder:
        record = statistics.median(asyncio.run(log(decisions, Path(folder) / f"{n}.db")) for n in range(5))
    rows = [("decision, median", median), ("one evaluation of it", evaluation)]
    return [*rows, ("record", record), ("record, share of the decision", record / median)]


def timed(make: Callable[[T], Decision], inputs: Sequence[T]) -> tuple[list[Decision], float]:
    """Return the decisions, and the median of their CPU times in microseconds."""
    make(inputs[0])  # compiles
    decisions, times = [], []
    for one in inputs:
        before = time.process_time_ns()
        decisions.append(make(one))
        assert decisions[-1].verdict  # computed when it is read
        times.append((time.process_time_ns() - before) / 1_000)
    return decisions, statistics.median(times)


async def log(decisions: list[Decision], path: Path) -> float:
    """Return the CPU time of a record in microseconds; the records of 32 concurrent requests are committed at once."""
    store = open_store(path)
    records = DecisionLog(store, lambda: NOW)
    await records.record(decisions[0], "decide")
    await records.drain()
    before = time.process_time_ns()
    for start in range(0, len(decisions), 32):
        for decision in decisions[start : start + 32]:
            await records.record(decision, "decide")
        await records.drain()
    elapsed = (time.process_time_ns() - before) / 1_000 / len(decisions)
    store.close()
    return elapsed


def main() -> int:
    results = {size: dict(measure(size)) for size in SIZES}
    rows = []
    for name in results[SIZES[0]]:
        cells = [f"{results[size][name]:.0%}" if "share" in name else f"{results[size][name]:,.0f}" for size in SIZES]
        rows.append([name, *cells])
    print_table([f"CPU us, {RULES} rules", *(f"{size:,} facts" for size in SIZES)], rows)
    largest = results[SIZES[-1]]
    over = []
    if largest["decision, median"] > DECISION_US:
        over.append(f"a decision takes {largest['decision, median']:,.0f} us, budget {DECISION_US:,.0f}")
    if largest["record, share of the decision"] > RECORD_SHARE:
        over.append(f"its record costs {largest['record, share of the decision']:.0%} of it, budget {RECORD_SHARE:.0%}")
    print("\n".join(over))
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
