"""How much a test tries: a tenth by default, everything under `make soak`."""

from __future__ import annotations

from typing import Any

from hypothesis import settings

__all__ = ["effort", "examples"]


def _soaking() -> bool:
    return settings.get_current_profile_name() == "soak"


def effort(most: int) -> int:
    """Return how many inputs to try, or how large an input to make."""
    return most if _soaking() else max(1, most // 10)


def examples(most: int, **options: Any) -> settings:
    """Return the settings of a property with its own number of examples instead of the profile's."""
    usual = settings.get_profile(settings.get_current_profile_name()).max_examples
    return settings(max_examples=most if _soaking() else min(most, max(usual, effort(most))), **options)
