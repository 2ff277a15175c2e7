"""The measured programs. They are deterministic: the same text on all machines."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = Path(__file__).parent / "programs"


def intent_rules() -> str:
    """Return 127 rules in six layers for an agent's request, with declarations."""
    return (PROGRAMS / "intent_rules.mg").read_text(encoding="utf-8")


def intent_facts() -> str:
    """Return the 60 facts of one request."""
    return (PROGRAMS / "intent_facts.mg").read_text(encoding="utf-8")


def intent_base(count: int) -> list[str]:
    """Return facts of a server about a code base: symbols, calls between them, files."""
    rnd = random.Random(5)
    symbols = int(count * 0.6)
    files = int(count * 0.08)
    places = max(20, count // 25)
    lines = []
    for i in range(symbols):
        place, kind, line = rnd.randrange(places), "/func" if i % 3 else "/type", rnd.randrange(10000)
        lines.append(f"symbol(/s/{i}, /f/{place}, {kind}, {line}).")
    calls: set[tuple[int, int]] = set()
    while len(calls) < count - symbols - files:
        calls.add((rnd.randrange(symbols), rnd.randrange(symbols)))
    lines += [f"calls(/s/{caller}, /s/{callee})." for caller, callee in sorted(calls)]
    lines += [f'filemeta(/fm/{i}, "lib/pkg{i}/file{i}.go", {rnd.randrange(100000)}).' for i in range(files)]
    return lines


# --- graphs --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Graph:
    """A recursive program as text, with the number of facts of each derived predicate."""

    text: str
    expected: Mapping[str, int]


def closure_of_chain(nodes: int) -> Graph:
    """Return the transitive closure of a chain."""
    facts = [f"edge({node}, {node + 1})." for node in range(nodes - 1)]
    rules = ["path(X, Y) :- edge(X, Y).", "path(X, Z) :- path(X, Y), edge(Y, Z)."]
    decls = _declared("number", edge=2, path=2)
    return Graph(_lines(decls, facts, rules), {"path": nodes * (nodes - 1) // 2})


def random_edges(nodes: int, count: int, seed: int) -> list[tuple[int, int]]:
    """Return the sorted edges of a directed graph without loops."""
    rnd = random.Random(seed)
    edges: set[tuple[int, int]] = set()
    while len(edges) < count:
        edge = (rnd.randrange(nodes), rnd.randrange(nodes))
        if edge[0] != edge[1]:
            edges.add(edge)
    return sorted(edges)


def reachable_pairs(edges: list[tuple[int, int]], sources: Iterable[int]) -> int:
    """Return the number of pairs of a source and a reachable node, by a search from each source."""
    following: dict[int, list[int]] = {}
    for start, end in edges:
        following.setdefault(start, []).append(end)
    pairs = 0
    for source in sources:
        seen: set[int] = set()
        waiting = list(following.get(source, ()))
        while waiting:
            node = waiting.pop()
            if node not in seen:
                seen.add(node)
                waiting += following.get(node, ())
        pairs += len(seen)
    return pairs


def reachable_from(sources: int) -> Graph:
    """Return the reachability from the first nodes of a random graph (2,000 nodes, 6,000 edges)."""
    edges = random_edges(2_000, 6_000, seed=7)
    facts = [f"src({node})." for node in range(sources)] + [f"edge({a}, {b})." for a, b in edges]
    rules = ["reach(X, Y) :- src(X), edge(X, Y).", "reach(X, Z) :- reach(X, Y), edge(Y, Z)."]
    decls = _declared("number", edge=2, src=1, reach=2)
    return Graph(_lines(decls, facts, rules), {"reach": reachable_pairs(edges, range(sources))})


def same_generation(depth: int) -> Graph:
    """Return the same-generation program on a complete binary tree."""
    nodes = 2 ** (depth + 1) - 1
    facts = [f"node(/n/{node})." for node in range(1, nodes + 1)]
    facts += [f"par(/n/{node}, /n/{node // 2})." for node in range(2, nodes + 1)]
    rules = ["sg(X, X) :- node(X).", "sg(X, Y) :- par(X, XP), sg(XP, YP), par(Y, YP)."]
    decls = _declared("name", par=2, node=1, sg=2)
    return Graph(_lines(decls, facts, rules), {"sg": sum(4**level for level in range(depth + 1))})


def points_to(variables: int) -> Graph:
    """Return Andersen's points-to analysis of a random program."""
    rnd = random.Random(3)
    objects = 400

    def variable() -> str:
        rnd.random()  # one more draw per variable, as in the reference program
        return f"/v/{rnd.randrange(variables)}"

    new: set[tuple[str, str]] = set()
    while len(new) < objects:
        new.add((variable(), f"/o/{rnd.randrange(objects)}"))
    statements: dict[str, set[tuple[str, str]]] = {"new": new, "assign": set(), "load": set(), "store": set()}
    for kind, count in (("assign", 900), ("load", 350), ("store", 350)):
        while len(statements[kind]) < count:
            pair = (variable(), variable())
            if pair[0] != pair[1]:
                statements[kind].add(pair)
    facts = [f"{kind}({a}, {b})." for kind, pairs in statements.items() for a, b in sorted(pairs)]
    rules = [
        "pt(X, O) :- new(X, O).",
        "pt(X, O) :- assign(X, Y), pt(Y, O).",
        "hpt(P, O) :- store(X, Y), pt(X, P), pt(Y, O).",
        "pt(X, O) :- load(X, Y), pt(Y, P), hpt(P, O).",
    ]
    decls = _declared("name", new=2, assign=2, load=2, store=2, pt=2, hpt=2)
    return Graph(_lines(decls, facts, rules), _points_to_counts(statements))


def _points_to_counts(statements: Mapping[str, set[tuple[str, str]]]) -> dict[str, int]:
    """Return the same analysis, computed with sets until a fixpoint."""
    held: dict[str, set[str]] = {}
    fields: dict[str, set[str]] = {}
    for variable, target in statements["new"]:
        held.setdefault(variable, set()).add(target)

    def grows(sets: dict[str, set[str]], key: str, more: set[str]) -> bool:
        own = sets.setdefault(key, set())
        before = len(own)
        own |= more
        return len(own) > before

    changed = True
    while changed:
        changed = False
        for left, right in statements["assign"]:
            changed |= grows(held, left, held.get(right, set()))
        for left, right in statements["store"]:
            for target in tuple(held.get(left, ())):
                changed |= grows(fields, target, held.get(right, set()))
        for left, right in statements["load"]:
            for target in tuple(held.get(right, ())):
                changed |= grows(held, left, fields.get(target, set()))
    return {"pt": sum(map(len, held.values())), "hpt": sum(map(len, fields.values()))}


def _declared(kind: str, **arities: int) -> list[str]:
    return [
        f"Decl {name}({', '.join('XYZ'[:arity])}) bound [{', '.join([f'/{kind}'] * arity)}]."
        for name, arity in arities.items()
    ]


def _lines(*parts: list[str]) -> str:
    return "\n".join(line for part in parts for line in part) + "\n"
