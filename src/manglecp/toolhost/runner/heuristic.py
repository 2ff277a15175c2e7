"""A selector without a model: the first action of the menu that the inputs suffice for and that was not tried yet.

Tried is an action on these inputs and this state: the same would come out again. If nothing is left it says NOOP, which
ends the run. It keeps what it tried, so each run has one of its own.
"""

from __future__ import annotations

from hashlib import sha256

from manglecp.toolhost.runner.canonical import canonical
from manglecp.toolhost.runner.control import Situation
from manglecp.toolhost.runner.menu import Offer
from manglecp.toolhost.runner.selection import Selection, parse

__all__ = ["FirstFit"]


class FirstFit:
    """The selector for one run."""

    def __init__(self) -> None:
        self._tried: set[tuple[str, str, str]] = set()

    def __call__(self, situation: Situation, /) -> Selection:
        inputs_digest = sha256(canonical(dict(situation.inputs))).hexdigest()
        for entry in situation.menu.entries:
            attempt = (entry.offer.aid, situation.state_digest, inputs_digest)
            if attempt not in self._tried and _suffice(situation, entry.offer):
                self._tried.add(attempt)
                return parse(f"<PICK><{entry.sid}><END>")
        return parse("<NOOP><END>")


def _suffice(situation: Situation, offer: Offer) -> bool:
    """Whether every argument that the action must have is among the inputs."""
    required = (offer.inputs_schema or {}).get("required")
    return not isinstance(required, list) or all(name in situation.inputs for name in required)
