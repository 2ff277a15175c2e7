"""Constants of the protocol, separate from :mod:`.messages`, which is slow to import."""

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
"""The standard categories of domains; a custom category begins with ``x-``."""
SCHEMES: Final = ("bearer", "oauth2", "api_key")  # schemes of authentication
MIN_MESSAGE_BYTES: Final = 1 << 24  # every server accepts messages of this size
MANIFEST_PATH: Final = "/.well-known/manglecp/manifest.json"
API_KEY_HEADER: Final = "X-MangleCP-API-Key"
