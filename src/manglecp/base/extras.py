"""The message for an optional dependency that is not installed."""

from __future__ import annotations


def how_to_install(extra: str) -> str:
    """Return how to add an extra of ``pyproject.toml``. The project is not on a package index: a checkout is needed."""
    return f"run `make setup-dev` in the checkout, or `pip install 'CHECKOUT[{extra}]'` with the path of the checkout"


def missing_extra(module: str | None, extra: str) -> str:
    """Return which dependency is missing, by the module of it that was not found, and how to add its extra."""
    dependency = (module or "a dependency").partition(".")[0]
    return f"{dependency} is not installed; it belongs to the extra {extra!r}: {how_to_install(extra)}"
