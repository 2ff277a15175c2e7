"""Proofs as data: a graph of nodes in memory, a tree when it is written out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from manglecp.mangle.explain.shape import RuleRef
from manglecp.mangle.explain.wording import bindings_text
from manglecp.mangle.facts import Fact
from manglecp.mangle.model import Origin
from manglecp.mangle.values import Value

NodeOrigin: TypeAlias = Origin | Literal["derived", "absent"]

MOST_NODES: Final = 10_000
"""A tree of more nodes is written with each repeated part cut off after the first time."""
_DEEPEST_INDENT: Final = 40


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """One step of a proof. Steps that several others rest on are one object."""

    fact: str
    """Canonical text; for an absence, the premise that holds because nothing matches it."""
    origin: NodeOrigin
    rule: RuleRef | None = None
    bindings: Mapping[str, Value] = field(default_factory=dict)
    premises: tuple[Node, ...] = ()
    ground: Fact | None = field(default=None, repr=False)
    """The fact itself; None for an absence."""


@dataclass(frozen=True, slots=True, eq=False)
class Proof:
    """Why a fact holds."""

    fact: str
    root: Node

    def nodes(self) -> list[Node]:
        """Every node once, what it rests on first."""
        return list(_bottom_up(self.root))

    def leaves(self) -> list[str]:
        """The given facts that the proof rests on, sorted."""
        return sorted({node.fact for node in self.nodes() if node.origin not in ("derived", "absent")})

    def rules(self) -> list[RuleRef]:
        """The rules that the proof uses, each once, in the order of their ids."""
        return sorted(
            {node.rule.id: node.rule for node in self.nodes() if node.rule}.values(), key=lambda rule: rule.id
        )

    def as_json(self, most_nodes: int = MOST_NODES) -> dict[str, Any]:
        """Plain dictionaries, lists and texts.

        A part that occurs again is written again, unless that makes more than ``most_nodes`` nodes; then it is cut off,
        which ``"repeated": true`` says, and stands in full only where it comes first.
        """
        cut = _tree_size(self.root) > most_nodes
        root: dict[str, Any] = {}
        work: list[tuple[Node, dict[str, Any]]] = [(self.root, root)]
        seen: set[Node] = set()
        while work:
            node, out = work.pop()
            out["fact"] = node.fact
            out["origin"] = node.origin
            out["rule"] = None if node.rule is None else node.rule.as_json()
            out["bindings"] = bindings_text(node.bindings)
            out["premises"] = []
            if cut and node.premises and node in seen:
                out["repeated"] = True
                continue
            seen.add(node)
            parts: list[tuple[Node, dict[str, Any]]] = [(premise, {}) for premise in node.premises]
            out["premises"] = [part for _, part in parts]
            work += reversed(parts)
        return {"fact": self.fact, "proof": root}

    def text(self, most_nodes: int = MOST_NODES) -> str:
        """The tree, one fact per line, premises indented below what they prove."""
        return "\n".join(self._lines(_tree_size(self.root) > most_nodes)) + "\n"

    def _lines(self, cut: bool) -> Iterator[str]:
        work = [(self.root, 0)]
        seen: set[Node] = set()
        while work:
            node, depth = work.pop()
            margin = "  " * min(depth, _DEEPEST_INDENT) + (f"({depth}) " if depth > _DEEPEST_INDENT else "")
            if cut and node.premises and node in seen:
                yield f"{margin}{node.fact}  [see above]"
                continue
            seen.add(node)
            yield margin + _line(node)
            if node.rule is not None:
                yield f"{' ' * len(margin)}  by {node.rule.text}{_at(node.rule)}"
            work += [(premise, depth + 1) for premise in reversed(node.premises)]


def _line(node: Node) -> str:
    if node.origin != "derived":
        return f"{node.fact}  [{node.origin}]"
    values = ", ".join(f"{name} = {value}" for name, value in bindings_text(node.bindings).items())
    return f"{node.fact}  with {values}" if values else node.fact


def _at(rule: RuleRef) -> str:
    return f"  ({rule.place})" if rule.place else ""


def _bottom_up(root: Node) -> Iterator[Node]:
    """Each node after its premises, without recursion: a proof may be thousands of steps deep."""
    seen = {root}
    work = [(root, iter(root.premises))]
    while work:
        node, rest = work[-1]
        following = next(rest, None)
        if following is None:
            work.pop()
            yield node
        elif following not in seen:
            seen.add(following)
            work.append((following, iter(following.premises)))


def _tree_size(root: Node) -> int:
    """How many nodes there are when every shared part is written wherever it occurs."""
    sizes: dict[Node, int] = {}
    for node in _bottom_up(root):
        sizes[node] = 1 + sum(sizes[premise] for premise in node.premises)
    return sizes[root]
