"""Ask a pack in memory and read the answer as a client would: from its bytes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from manglecp.intent.composition import Composer
from manglecp.intent.domain import Domain
from manglecp.intent.evaluation import IntentEvaluation
from manglecp.intent.identity import ANONYMOUS, Identity
from manglecp.intent.responder import answer_bytes
from manglecp.pack import Pack
from tests.intent.packs import clock, request


def asked(domain: Domain | Pack, intent: str = "observe", facts: Iterable[Any] = (), **changes: Any) -> dict[str, Any]:
    """The payload of the answer."""
    identity: Identity = changes.pop("identity", ANONYMOUS)
    domain = Domain.load(domain) if isinstance(domain, Pack) else domain
    data = msgspec.json.encode(request(intent, facts, **changes))
    message = msgspec.json.decode(answer_bytes(domain, data, identity, clock))
    assert message["type"] == "intent_response", message
    payload: dict[str, Any] = message["payload"]
    return payload


def tools(domain: Domain | Pack, intent: str = "observe", facts: Iterable[Any] = (), **changes: Any) -> dict[str, Any]:
    """The macro-tools of the answer by name."""
    found = asked(domain, intent, facts, **changes)["macro_tools"]
    assert len({tool["name"] for tool in found}) == len(found)
    return {tool["name"]: tool for tool in found}


def composer(evaluation: IntentEvaluation) -> Composer:
    return Composer(evaluation.domain, evaluation.result)
