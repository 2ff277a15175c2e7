"""The message for an optional dependency that is not installed."""

from __future__ import annotations


def how_to_install(extra: str) -> str:
    """Return how to install an extra of ``pyproject.toml`` from a checkout: no package index has this project."""
    return f"run `make setup-dev` in the checkout, or `pip install 'CHECKOUT[{extra}]'` with the path of the checkout"


def missing_extra(module: str | None, extra: str) -> str:
    """Return the message for a ``module`` that was not found (None: unknown), with how to install its extra."""
    dependency = (module or "a dependency").partition(".")[0]
    return f"{dependency} is not installed; it belongs to the extra {extra!r}: {how_to_install(extra)}"
