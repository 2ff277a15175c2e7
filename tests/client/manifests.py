"""Manifests for tests: the specification's example, with some of it changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from manglecp.wire import receive_from_server
from manglecp.wire.messages import Manifest, ManifestPayload

EXAMPLE = Path(__file__).parent.parent / "wire" / "examples" / "companion-5.1.Manifest.json"


def manifest(**changes: Any) -> Manifest:
    """A change replaces a member; of an object, the members that it names. ``auth`` is not required."""
    data = json.loads(EXAMPLE.read_bytes())
    payload = data["payload"]
    payload["auth"] = {"required": False}
    for name, value in changes.items():
        known = payload.get(name)
        payload[name] = {**known, **value} if isinstance(known, dict) and isinstance(value, dict) else value
    message = receive_from_server(msgspec.json.encode(data), 1 << 24)
    assert isinstance(message, Manifest)
    return message


def payload(**changes: Any) -> ManifestPayload:
    return manifest(**changes).payload
