"""A plugin that makes one of the attacks, in whatever host it finds itself; copied beside attacks.py before it runs."""

from attacks import ATTACKS, Scene  # type: ignore[import-not-found]  # a neighbour, not of a package here

from manglecp import action


@action(effects=["destructive"])
def attempt(name: str, scene: list[str | int]) -> str:
    """Make an attack and say what became of it."""
    try:
        ATTACKS[name](Scene(*scene))
    except (MemoryError, OSError, RuntimeError) as error:
        return f"stopped by {error!r}"
    return "worked"
