"""The confirmation token, with which an approver answers a server's challenge.

    token = v1.<nonce>.<issued_ms>.<mac>
    mac   = base64url(HMAC-SHA256(secret, lines)), without padding; the lines, joined by line feeds, are
            manglecp-confirm-v1, <identity>, <macro_id>, <args_digest>, <nonce>, <issued_ms>

The secret comes with the credential and is never sent. Its holder may choose nonce and time and skip the challenge.
"""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64encode
from typing import Final

from manglecp.base.digest import digest_text

CONFIRMATION_PURPOSE: Final = "manglecp-confirm-v1"


def sign_confirmation(secret: bytes, identity: str, macro_id: str, args_digest: str, nonce: str, issued_ms: int) -> str:
    """Return the token of an approver. A server never calls this."""
    return f"v1.{nonce}.{issued_ms}.{confirmation_mac(secret, identity, macro_id, args_digest, nonce, issued_ms)}"


def confirmation_mac(secret: bytes, identity: str, macro_id: str, args_digest: str, nonce: str, issued_ms: int) -> str:
    """Return the MAC of one approval."""
    # Only the identity could hold a line break, and no two approvals may have the same lines.
    name = identity if "\n" not in identity else digest_text(identity)
    lines = "\n".join((CONFIRMATION_PURPOSE, name, macro_id, args_digest, nonce, str(issued_ms)))
    return urlsafe_b64encode(hmac.digest(secret, lines.encode(), "sha256")).decode().rstrip("=")
