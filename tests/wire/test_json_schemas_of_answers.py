"""What a server really answers fits the schemas that it hands out, and a client can read it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from manglecp.intent import Domain, Identity, manifest
from manglecp.intent.responder import answer_bytes
from manglecp.pack import read_pack
from manglecp.wire.json_schemas import schema
from manglecp.wire.message_reader import receive_from_server
from manglecp.wire.messages import IntentResponse, encode

INCIDENT = Path(__file__).parents[2] / "examples" / "incident"
LOCAL = Identity(name="local", permissions=frozenset({"explain_policy"}), trust="local")


@pytest.fixture(scope="module")
def domain() -> Domain:
    return Domain.load(read_pack(INCIDENT))


def request(name: str, **options: Any) -> bytes:
    message = json.loads((INCIDENT / "recorded" / f"{name}.json").read_text("utf-8"))
    message["payload"]["options"] = options
    return json.dumps(message).encode()


def problems(data: bytes) -> list[str]:
    document = json.loads(data)
    return [
        error.message for error in jsonschema_rs.Draft202012Validator(schema(document["type"])).iter_errors(document)
    ]


def test_the_manifest_fits(domain: Domain) -> None:
    data = encode(manifest(domain))
    assert problems(data) == []
    assert receive_from_server(data, len(data)) == manifest(domain)


@pytest.mark.parametrize("name", ["diagnose_error", "fix_error"])
@pytest.mark.parametrize("level", ["full", "condensed", "minimal", "adaptive"])
def test_answers_fit_at_every_level(domain: Domain, name: str, level: str) -> None:
    options = {"include_proof_hints": True, "x-rule_coverage": True, "x-why_not": ["nothing", "observe"]}
    data = answer_bytes(domain, request(name, disclosure_preference=level, **options), LOCAL)
    assert problems(data) == []
    answer = receive_from_server(data, len(data))
    assert isinstance(answer, IntentResponse)
    assert answer.payload.macro_tools
    assert encode(answer) == data


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"{", "malformed_message"),
        (request("fix_error").replace(b"2026-02-draft", b"2026-03-draft", 1), "unsupported_version"),
        (request("fix_error").replace(b'"pred"', b'"prde"', 1), "invalid_facts"),
        (request("fix_error").replace(b'"intent_request"', b'"manifest"', 1), "invalid_type"),
    ],
)
def test_errors_fit(domain: Domain, data: bytes, code: str) -> None:
    answer = answer_bytes(domain, data, LOCAL)
    assert json.loads(answer)["payload"]["code"] == code
    assert problems(answer) == []
