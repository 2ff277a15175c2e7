"""Words, addresses and numbers of the protocol that both sides know.

Apart from the messages, which cost more to load.
"""

from __future__ import annotations

from typing import Final

__all__ = ["API_KEY_HEADER", "CATEGORIES", "MANIFEST_PATH", "MIN_MESSAGE_BYTES", "SCHEMES"]

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
"""The standard ones of domains; others begin with ``x-`` (MANI-09)."""
SCHEMES: Final = ("bearer", "oauth2", "api_key")
"""How a credential may be presented."""
MIN_MESSAGE_BYTES: Final = 1 << 24
"""What every server accepts, and so the least that it may publish (WIRE-21, WIRE-23)."""
MANIFEST_PATH: Final = "/.well-known/manglecp/manifest.json"
"""Where a server on HTTP has its manifest."""
API_KEY_HEADER: Final = "X-MangleCP-API-Key"
"""What carries a credential of the scheme ``api_key`` on HTTP."""
