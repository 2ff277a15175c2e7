"""Constants of the protocol, apart from the messages, which are slower to import."""

from __future__ import annotations

from typing import Final

CATEGORIES: Final = (
    "browser_automation",
    "codebase_analysis",
    "workflow_orchestration",
    "data_integration",
    "testing",
    "documentation",
    "infrastructure",
    "security",
)
"""The standard categories of domains; custom ones begin with ``x-`` (MANI-09)."""
SCHEMES: Final = ("bearer", "oauth2", "api_key")
MIN_MESSAGE_BYTES: Final = 1 << 24  # every server accepts it (WIRE-21, WIRE-23)
MANIFEST_PATH: Final = "/.well-known/manglecp/manifest.json"
API_KEY_HEADER: Final = "X-MangleCP-API-Key"
