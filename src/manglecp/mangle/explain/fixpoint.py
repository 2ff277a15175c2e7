"""The fixpoint that proofs, alternatives, expiry and abduction compute, each for values of its own."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TypeVar

_Node = TypeVar("_Node")


def settle(
    nodes: Iterable[_Node], readers: Mapping[_Node, Collection[_Node]], improve: Callable[[_Node], bool]
) -> None:
    """Call ``improve`` with each node, in order, and again with the readers of a node whose value it improved."""
    waiting = dict.fromkeys(nodes)
    while waiting:
        node = next(iter(waiting))
        del waiting[node]
        if improve(node):
            waiting.update(dict.fromkeys(readers.get(node, ())))
