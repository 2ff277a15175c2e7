"""A listing decides how a call is treated, and what may be sent."""

import json
from typing import Any

import pytest

from manglecp.pack import ListingError
from manglecp.toolhost.dispatch.catalogue import Catalogue, read_catalogue
from manglecp.toolhost.dispatch.dispatcher import prepare_call
from manglecp.toolhost.dispatch.messages import HostCall
from manglecp.toolhost.state import Artifact

SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "string"}},
    "required": ["a"],
    "additionalProperties": False,
}


def listing(*tools: dict[str, Any]) -> bytes:
    return json.dumps({"ok": True, "tools": tools}).encode()


def one(**tool: Any) -> Catalogue:
    return read_catalogue(listing({"aid": "AID.X.v1", **tool}))


@pytest.mark.parametrize(
    ("tool", "tier"),
    [
        ({}, 3),
        ({"side_effects": []}, 3),
        ({"side_effects": [7]}, 3),
        ({"side_effects": ["none"]}, 0),
        ({"side_effects": ["filesystem_write", "proc_exec"]}, 2),
        ({"side_effects": ["proc_exec", "filesystem_write"]}, 2),
        ({"side_effects": ["network"], "mutates": False}, 0),
        ({"side_effects": ["payments"], "mutates": False}, 3),
        ({"side_effects": ["process"], "mutates": False, "tier": 0}, 2),
        ({"side_effects": ["process", "payments"], "mutates": False, "tier": 0}, 3),
        ({"side_effects": ["payments"], "tier": 0}, 3),
        ({"side_effects": ["none"], "tier": 2}, 2),
        ({"side_effects": ["none"], "tier": 99}, 3),
        ({"side_effects": ["none"], "tier": -1}, 0),
        ({"side_effects": ["none"], "tier": True}, 0),
    ],
)
def test_a_host_can_raise_the_tier_of_its_action_and_never_lower_it(tool: dict[str, Any], tier: int) -> None:
    assert one(**tool)["AID.X.v1"].tier == tier


def test_what_is_not_said_is_the_careful_thing() -> None:
    profile = one(idempotent="yes", timeout="soon", inputs_schema=[])["AID.X.v1"]
    assert (profile.idempotent, profile.timeout, profile.inputs_schema) == (False, None, None)
    assert one(timeout=-1)["AID.X.v1"].timeout is None
    assert one(timeout=1e300)["AID.X.v1"].timeout is None
    assert one(timeout=True)["AID.X.v1"].timeout is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"noise {", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[1]", "no reason given"),
        (b'{"ok":false,"error":"plugin missing"}', "plugin missing"),
        (b'{"ok":true,"tools":{}}', "no reason given"),
        (listing({"name": "x"}), "without aid"),
        (listing({"aid": "A"}, {"aid": "A"}), "A is listed twice"),
    ],
)
def test_a_listing_that_is_none_is_refused(text: bytes, reason: str) -> None:
    with pytest.raises(ListingError, match=reason):
        read_catalogue(text)


@pytest.mark.req("IPC-17", "IPC-18")
def test_an_object_becomes_the_text_that_travels() -> None:
    catalogue = one(side_effects=["filesystem"], idempotent=True, timeout=5, inputs_schema=SCHEMA)
    slots = {0: Artifact("t", "p", "1", 1)}
    call = prepare_call(catalogue, "AID.X.v1", inputs={"a": 1, "b": "ü"}, slots=slots, idempotency_key="k")
    assert isinstance(call, HostCall)
    assert (call.tier, call.idempotent, call.timeout, call.idempotency_key) == (1, True, 5.0, "k")
    assert (call.input_json, call.slots) == ('{"a":1,"b":"ü"}', slots)
    text = '{ "a" : 1 }'
    same = prepare_call(catalogue, "AID.X.v1", input_json=text)
    assert isinstance(same, HostCall)
    assert same.input_json == text  # the very bytes: a lease is bound to them
    assert list(catalogue) == ["AID.X.v1"]
    assert len(catalogue) == 1


@pytest.mark.req("IPC-21", "IPC-32")
@pytest.mark.parametrize(
    ("said", "kind", "status", "detail"),
    [
        ({"input_json": "[1]"}, "tool_error", "INVALID_PICK", "not a JSON object"),
        ({"input_json": "{"}, "tool_error", "INVALID_PICK", "not JSON"),
        ({"input_json": ""}, "tool_error", "INVALID_PICK", "not JSON"),
        ({"input_json": '{"a":1,"a":1}'}, "tool_error", "INVALID_PICK", "not JSON"),
        ({"inputs": {"a": object()}}, "tool_error", "INVALID_PICK", "not JSON"),
        ({"inputs": {"a": "\ud800"}}, "tool_error", "INVALID_PICK", "not JSON"),
        ({"inputs": {"a": 1}, "input_json": "{}"}, "exception", None, "both given"),
    ],
)
def test_input_that_is_no_object_is_not_sent(said: dict[str, Any], kind: str, status: str | None, detail: str) -> None:
    result = prepare_call(one(inputs_schema=SCHEMA), "AID.X.v1", **said)
    assert isinstance(result, dict)
    assert (result["type"], result.get("status")) == (kind, status)
    assert detail in result["detail"]


def test_an_action_that_is_not_listed_is_not_found() -> None:
    result = prepare_call(one(), "AID.Y.v1")
    assert isinstance(result, dict)
    assert (result["type"], result["status"]) == ("not_found", "INVALID_PICK")
