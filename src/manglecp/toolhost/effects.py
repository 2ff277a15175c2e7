"""What an action does to the world, and the tier of the lease that it needs for that.

The tier of an action is the highest tier of its effects, in whatever order they are declared. A word that nobody knows
is as dangerous as the worst that is known: forgetting to declare never opens a door.

    0  safe        nothing changes
    1  write       files, databases and pages change
    2  system      other machines and processes take part
    3  dangerous   money, identities, things that cannot be brought back, and everything unknown

``mutates=False`` says of a whole action that it only reads. It lowers what can be read without changing it, and is
refused for effects that always change something.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

__all__ = ["DANGEROUS", "SAFE", "SYSTEM", "WRITE", "lease_tier"]

SAFE: Final = 0
WRITE: Final = 1
SYSTEM: Final = 2
DANGEROUS: Final = 3

_TIERS: Final = {
    "none": SAFE,
    "filesystem": WRITE,
    "database": WRITE,
    "browser": WRITE,
    "network": SYSTEM,
    "process": SYSTEM,
    "payments": DANGEROUS,
    "authentication": DANGEROUS,
    "destructive": DANGEROUS,
    # the words of the C++ toolhost
    "gpu_probe": SAFE,
    "process_introspection": SAFE,
    "network_io": SYSTEM,
    "proc_exec": SYSTEM,
    "process_spawn": SYSTEM,
    "dynamic_library_load": DANGEROUS,
}
_READABLE: Final = frozenset({"filesystem", "database", "browser", "network"})


def lease_tier(effects: Iterable[str], *, mutates: bool = True) -> int:
    """The highest tier of the effects; ValueError if an action that only reads declares one that cannot be a read."""
    tier = SAFE
    for effect in effects:
        least = _tier(effect)
        if not mutates and least > SAFE:
            if effect not in _READABLE:
                raise ValueError(f"an action with the effect {effect!r} cannot be declared with mutates=False")
            least = SAFE
        tier = max(tier, least)
    return tier


def _tier(effect: str) -> int:
    known = _TIERS.get(effect)
    if known is not None:
        return known
    if effect.startswith("x-"):  # somebody else's word, whatever it ends in
        return DANGEROUS
    if effect.endswith("_read"):
        return SAFE
    if effect.endswith(("_write", "_delete")):
        return WRITE
    return DANGEROUS
