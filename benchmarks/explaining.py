"""Explanations as bases grow: why a tool is offered, why one is not, and single facts of dense graphs.

Budgets at 100,000 base facts: ``why`` at most 30 ms, ``why_not`` at most 100 ms. Milliseconds are CPU time of a whole
request, the least of several runs; the column ``plain`` is the same request without explanations.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from _packs import NOW, NOW_TEXT, PER_INTENT, base_facts, make_pack, request_bytes
from _table import print_table

from manglecp.intent import Domain, Identity
from manglecp.intent.responder import answer_bytes
from manglecp.mangle import Fact, Program, Source
from manglecp.pack import SandboxPolicy, read_pack

ROOT = Path(__file__).resolve().parent.parent
SIZES = (1_000, 10_000, 100_000)
WHY_MS, WHY_NOT_MS = 30.0, 100.0
USER = Identity("bench", frozenset(), "user")
LOCAL = Identity("local", frozenset({"explain_policy"}), "local")  # explanations may use all values


def clock() -> int:
    return NOW


def least_ms(run: Callable[[], object], seconds: float = 2.0, most: int = 7) -> float:
    times: list[float] = []
    started = time.monotonic()
    while not times or (len(times) < most and time.monotonic() - started < seconds):
        before = time.process_time()
        run()
        times.append((time.process_time() - before) * 1e3)
    return min(times)


def request(intent: str, facts: list[dict[str, Any]], options: dict[str, Any]) -> bytes:
    payload = {"intent": {"name": intent}, "facts": facts, "eval_time": NOW_TEXT, "options": options}
    return msgspec.json.encode({"type": "intent_request", "id": "r", "manglecp": "2026-02-draft", "payload": payload})


def answer_ms(domain: Domain, data: bytes, caller: Identity = USER) -> float:
    def run() -> None:
        answer = msgspec.json.decode(answer_bytes(domain, data, caller, clock))
        assert answer["type"] == "intent_response", answer

    run()  # compiles
    return least_ms(run)


def generated(size: int) -> dict[str, float]:
    domain = Domain.load(make_pack(60), facts=base_facts(size))
    variants = {
        "plain": {},
        "why": {"include_proof_hints": True},
        "why_not": {"x-why_not": [f"tool_{PER_INTENT - 1}"]},
    }
    data = msgspec.json.decode(request_bytes())
    times = {}
    for name, options in variants.items():
        data["payload"]["options"] = options
        times[f"generated pack: {name}"] = answer_ms(domain, msgspec.json.encode(data))
    return times


SEEN = [
    {"pred": "console_event", "args": ["s", "error", "boom", "2026-01-15T11:59:00Z"]},
    {"pred": "network_request", "args": ["r", "GET", "/api", 500], "t": {"at": "2026-01-15T11:59:00Z"}},
]
LOGGED = {"pred": "backend_log", "args": ["service_3", "ERROR", "bad"], "t": {"at": "2026-01-15T11:59:30Z"}}
EXPIRED = {**LOGGED, "t": {"at": "2026-01-15T10:59:30Z"}}


def incident(size: int) -> dict[str, float]:
    pack = read_pack(ROOT / "examples" / "incident", sandbox=SandboxPolicy(degrade=True))
    facts = [Fact("log_file", (f"service_{i}", f"{i}.log")) for i in range(size)]
    domain = Domain.load(pack, facts=facts)
    why_not = {"x-why_not": ["full_stack_diagnosis"]}
    variants = {
        "plain": request("diagnose_error", [*SEEN, LOGGED], {}),
        "why": request("diagnose_error", [*SEEN, LOGGED], {"include_proof_hints": True}),
        "why_not, expired log": request("diagnose_error", [*SEEN, EXPIRED], why_not),
        "why_not, no log": request("diagnose_error", SEEN, why_not),
    }
    times = {f"incident: {name}": answer_ms(domain, data) for name, data in variants.items()}
    times["incident, local: why_not, expired log"] = answer_ms(domain, variants["why_not, expired log"], LOCAL)
    times["incident, local: why_not, no log"] = answer_ms(domain, variants["why_not, no log"], LOCAL)
    return times


def repository(size: int) -> list[Fact]:
    """Return the facts of a repository whose files all lead back to the first ones."""
    count = size // 24
    names = [f"src/m{i}.py" for i in range(count)]
    facts: list[Fact] = []
    for i, name in enumerate(names):
        is_test = i % 5 == 4
        facts.append(Fact("file", (name, "python", 100 + i, f"hash{i}")))
        facts += [Fact("imports_file", (name, names[j])) for j in sorted({i // 2, i // 3, max(i - 1, 0)} - {i})]
        facts += [Fact("symbol", (name, f"name{i}_{n}", "function", 10 * n + 1, 10 * n + 9)) for n in range(19)]
        facts += [Fact("test_file", (name,))] if is_test else []
    return facts


class Scanned:
    """A source of generated facts that are already known."""

    version = "1"

    def __init__(self, facts: list[Fact]) -> None:
        self.facts = facts

    def begin(self, _: Any) -> list[Fact]:
        return self.facts


def workspace(size: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as root:
        pack = read_pack(ROOT / "examples" / "workspace", {"root": root}, sandbox=SandboxPolicy(degrade=True))
    domain = Domain.load(pack, generated=Scanned(repository(size)))  # type: ignore[arg-type]
    first, last = f"src/m{0}.py", f"src/m{size // 24 - 1}.py"
    to_change = [{"pred": "to_change", "args": [first]}]
    traceback = [{"pred": "failed_at", "args": [last, 3]}]
    why = {"include_proof_hints": True}
    variants = {
        "plain": request("change", to_change, {}),
        "why, all files depend on it": request("change", to_change, why),
        "why, no file depends on it": request("change", [{"pred": "to_change", "args": [last]}], why),
        "why, traceback": request("diagnose_failure", traceback, why),
        "why_not commit": request("review", [], {"x-why_not": ["commit_changes"]}),
        "why_not tests": request("review", [], {"x-why_not": ["run_affected_tests"]}),
    }
    return {f"workspace: {name}": answer_ms(domain, data) for name, data in variants.items()}


def graph(size: int) -> dict[str, float]:
    """Explain facts of a closure from one source over a graph with that many edges, without a request around it."""
    nodes = size // 3
    edges = [Fact("edge", (i, (i * k + 1) % nodes)) for i in range(nodes) for k in (2, 3, 5)]
    text = """
    Decl edge(X, Y) bound [/number, /number].
    reach(0).
    reach(Y) :- reach(X), edge(X, Y).
    many(N) :- reach(_) |> do fn:group_by(), let N = fn:count().
    big() :- many(N), N > 1.
    small() :- many(N), N < 1.
    """
    base = Program.load([Source("graph.mg", text)]).base(edges)
    farthest = max(row[0] for row in base.evaluate([]).rows(("reach", 1)))

    def ms(explain: Callable[[Any], object]) -> float:
        return least_ms(lambda: explain(base.evaluate([]).explainer))

    return {
        "graph: why reach": ms(lambda explainer: explainer.explain(f"reach({farthest})")),
        "graph: why big": ms(lambda explainer: explainer.explain("big()")),
        "graph: why_not reach": ms(lambda explainer: explainer.why_not(f"reach({nodes})")),
        "graph: why_not small": ms(lambda explainer: explainer.why_not("small()")),
    }


def main() -> int:
    chosen = [
        table for table in (generated, incident, workspace, graph) if table.__name__ in sys.argv[1:] or not sys.argv[1:]
    ]
    over: list[str] = []
    rows: dict[str, list[str]] = {}
    for size in SIZES:
        for table in chosen:
            for name, ms in table(size).items():
                rows.setdefault(name, []).append(f"{ms:.1f}")
                budget = WHY_NOT_MS if "why_not" in name else WHY_MS
                if ms > budget:
                    over.append(f"{name} at {size:,}: {ms:.1f} ms, budget {budget:.0f}")
    print_table(["CPU ms", *(f"{size:,}" for size in SIZES)], [[name, *cells] for name, cells in rows.items()])
    print("\n".join(over))
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
