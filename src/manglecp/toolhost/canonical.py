"""The digest of an input's canonical form, for idempotency keys.

A lease is bound to the very bytes that are run (:func:`.leases.input_digest`). An idempotency key compares values:
another order of members or other spaces are the same input. Numbers count as they are written: ``1`` and ``1.0``
differ. An object with a repeated name has no canonical form.
"""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any, Final


def unique(members: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object; raises ValueError for a repeated name. For ``object_pairs_hook``."""
    read = dict(members)
    if len(read) != len(members):
        raise ValueError("a name is given twice")
    return read


_decode: Final = json.JSONDecoder(object_pairs_hook=unique).decode
_encode: Final = json.JSONEncoder(separators=(",", ":"), sort_keys=True, allow_nan=False).encode


def canonical_digest(input_json: str) -> str:
    """Return the SHA-256 of the canonical form; of the text itself if it is no JSON."""
    try:
        text = _encode(_decode(input_json))
    except (ValueError, RecursionError):
        text = input_json
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
