"""Messages as bytes: the same for the same message, UTF-8, and only what is set."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given

from manglecp.wire.message_reader import receive, receive_from_server
from manglecp.wire.messages import (
    CLIENT_TYPES,
    SERVER_TYPES,
    VERSION,
    Authenticate,
    AuthenticatePayload,
    Cancel,
    CancelPayload,
    Intent,
    IntentPayload,
    IntentRequest,
    InvokeResponse,
    InvokeResult,
    MacroTool,
    encode,
)
from tests.wire.message_strategies import messages


def asking(**params: Any) -> IntentRequest:
    return IntentRequest(id="c-1", payload=IntentPayload(intent=Intent(name="observe", params=params)))


@pytest.mark.req("WIRE-01", "WIRE-09", "WIRE-10")
@given(messages)
def test_every_message_has_the_four_members_and_the_version(message: Any) -> None:
    document = json.loads(encode(message))
    assert list(document) == ["type", "id", "manglecp", "payload"]
    assert document["manglecp"] == VERSION == "2026-02-draft"
    assert {**CLIENT_TYPES, **SERVER_TYPES}[document["type"]] is type(message)
    assert isinstance(document["payload"], dict)


@pytest.mark.req("WIRE-16", "WIRE-18", "WIRE-24")
@given(messages)
def test_what_is_sent_is_strict_json_in_utf8(message: Any) -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    data = encode(message)
    assert not data.startswith(b"\xef\xbb\xbf")
    assert b"\n" not in data  # one line, as stdio wants it
    json.loads(data.decode("utf-8"), parse_constant=refuse)


def test_bytes_do_not_depend_on_the_history_of_an_object() -> None:
    assert encode(asking(a=1, b={"c": 2, "d": 3})) == encode(asking(b={"d": 3, "c": 2}, a=1))


@pytest.mark.req("WIRE-24")
@pytest.mark.parametrize(
    ("text", "sent"),
    [("\ud800", "\ufffd"), ("a\udc00b", "a\ufffdb"), ("\ud83d\ude00", "\N{GRINNING FACE}"), ("é", "é")],
)
def test_half_a_character_is_never_sent(text: str, sent: str) -> None:
    message = receive(encode(asking(key=[text, {text: 1}])), 1 << 20)
    assert isinstance(message, IntentRequest)
    assert message.payload.intent.params == {"key": [sent, {sent: 1}]}


@pytest.mark.req("WIRE-18")
@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_what_is_not_a_number_is_never_sent(number: float) -> None:
    assert json.loads(encode(asking(n=number)))["payload"]["intent"]["params"] == {"n": None}


def test_a_cancel_is_sent_with_id_null() -> None:
    assert json.loads(encode(Cancel(payload=CancelPayload(request_id="c-1"))))["id"] is None


def test_what_is_unset_is_not_written() -> None:
    tool = MacroTool(macro_id="m-1", name="n", disclosure_level="minimal")
    assert msgspec.to_builtins(tool) == {"macro_id": "m-1", "name": "n", "disclosure_level": "minimal"}


def test_servers_send_all_four_parts_of_a_result_and_clients_need_only_one() -> None:
    message = InvokeResponse(id="c-1", payload=InvokeResult(result={}))
    document = json.loads(encode(message))
    assert set(document["payload"]) == {"result", "state_delta", "observability", "next"}
    document["payload"] = {"result": {}}
    assert receive_from_server(json.dumps(document).encode(), 1 << 20) == message


def test_a_token_is_not_printed() -> None:
    message = Authenticate(id="c-1", payload=AuthenticatePayload(scheme="bearer", token="s3cret"))
    assert "s3cret" not in repr(message)
    assert f"{message}" == repr(message)
    assert json.loads(encode(message))["payload"]["token"] == "s3cret"
