"""The fixpoint that proofs, alternatives, expiry and abduction compute, each with its own kind of value for a node."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TypeVar

_Node = TypeVar("_Node")


def settle(
    nodes: Iterable[_Node], readers: Mapping[_Node, Collection[_Node]], improve: Callable[[_Node], bool]
) -> None:
    """Call ``improve`` with each node, in order, until no value improves.

    ``improve`` returns whether the value of its node changed; then the ``readers`` of the node are improved again.
    """
    queue = dict.fromkeys(nodes)
    while queue:
        node = next(iter(queue))
        del queue[node]
        if improve(node):
            queue.update(dict.fromkeys(readers.get(node, ())))
