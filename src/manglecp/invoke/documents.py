"""A proven tool as it is kept between the answer that announced it and the invocation: one JSON document.

It holds the definition, and the digest of the question that it answers. What a client sent is not in it, except what
the rules froze into the chain.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import msgspec

from manglecp.harness.canonical import digest
from manglecp.intent.definition import Definition
from manglecp.intent.identity import Identity
from manglecp.wire.messages.intent import IntentRequest

__all__ = ["Proven", "question_digest"]


@dataclass(frozen=True, slots=True)
class Proven:
    """A tool, and the question that it is an answer to."""

    definition: Definition
    proof_digest: str

    def document(self) -> bytes:
        return msgspec.json.encode(self, order="sorted")

    @staticmethod
    @lru_cache(maxsize=4096)
    def read(document: bytes) -> Proven:
        return _decoder.decode(document)


_decoder = msgspec.json.Decoder(Proven)


def question_digest(request: IntentRequest, identity: Identity, pack_digest: str, now_ns: int) -> str:
    """With the pack it determines the answer: who asked what, with which facts, and when."""
    asked: dict[str, Any] = msgspec.to_builtins(request.payload)
    who = {"name": identity.name, "permissions": sorted(identity.permissions), "trust": identity.trust}
    return digest({"pack": pack_digest, "identity": who, "asked": asked, "now": str(now_ns)})
