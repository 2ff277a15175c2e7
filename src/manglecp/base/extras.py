"""The message for an optional dependency that is not installed."""

from __future__ import annotations


def how_to_install(extra: str) -> str:
    """Return the command that installs an extra of ``pyproject.toml`` from a checkout; no index has the project."""
    return f"run `make setup-dev` in the checkout, or `pip install 'CHECKOUT[{extra}]'` with the path of the checkout"


def missing_extra(module: str | None, extra: str) -> str:
    """Return the message for a missing ``module``, with the command that installs its extra.

    ``module`` is None if its name is unknown.
    """
    dependency = (module or "a dependency").partition(".")[0]
    return f"{dependency} is not installed; it belongs to the extra {extra!r}: {how_to_install(extra)}"
