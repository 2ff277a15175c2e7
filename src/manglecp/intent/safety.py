"""What a person should know before a tool runs. Derived from the actions in the chain; a pack can only add to it.

Names of effects that the specification does not know begin with ``x-`` on the wire (TOOL-16), whatever a host calls
them. ``none`` stands alone or not at all (OPEN-25).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from manglecp.intent.definition import SafetyData
from manglecp.pack import ActionDescription
from manglecp.wire.messages import SIDE_EFFECTS

__all__ = ["safety", "side_effects"]

NONE: Final = "none"


def side_effects(effects: Iterable[str]) -> tuple[str, ...]:
    """As they are shown: sorted, each once."""
    named = {effect if effect in SIDE_EFFECTS or effect.startswith("x-") else f"x-{effect}" for effect in effects}
    return tuple(sorted(named - {NONE})) or (NONE,)


def safety(
    effects: Iterable[str],
    chain: Sequence[ActionDescription],
    *,
    needs_confirmation: bool,
    reversible: bool = False,
    idempotent: bool = False,
) -> SafetyData:
    """Both words may be said by rules; else they hold if the actions say so.

    Every action of a chain has to be reversible. A chain of actions that may each be repeated may not be repeated
    itself: the first undoes what the second did. So only a single action lends its word.
    """
    return SafetyData(
        requires_user_confirmation=needs_confirmation,
        side_effects=side_effects(effects),
        reversible=reversible or (bool(chain) and all(action.reversible for action in chain)),
        idempotent=idempotent or (len(chain) == 1 and chain[0].idempotent),
    )
