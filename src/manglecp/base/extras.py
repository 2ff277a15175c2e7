"""The message for an optional dependency that is not installed."""

from __future__ import annotations


def how_to_install(extra: str) -> str:
    """Return how to add an extra of ``pyproject.toml``. The project is not on a package index: a checkout is needed."""
    return f"run `make setup-dev` in the checkout, or `pip install 'CHECKOUT[{extra}]'` with the path of the checkout"


def missing_extra(dependency: str | None, extra: str) -> str:
    """Return which dependency is missing, the extra that it belongs to, and how to add it."""
    return f"{dependency} is not installed, which the extra {extra!r} contains: {how_to_install(extra)}"
