"""What a client sent is repeated in few characters, all of them in plain sight."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest
from hypothesis import example, given, strategies as st

from manglecp.base.strict_json import Fault
from manglecp.base.text import quote
from manglecp.mangle import Program, Source
from manglecp.wire.errors import WireError
from manglecp.wire.message_reader import receive, receive_from_server
from manglecp.wire.messages import VERSION, encode
from manglecp.wire.profile import Profile
from tests.wire.test_nulls import EXAMPLES

PROFILE: Final = Profile.of(
    Program.load(
        [
            Source(
                "s.mg",
                """
                Decl p(A, N) temporal descr [direction("input")] bound [/name, /number].
                Decl m(A) descr [direction("input")] bound [fn:Map(/string, /number)].
                """,
            )
        ]
    ).predicates
)
HIDDEN: Final = "\x1b\r\n\x00\x7f\x9b\u202e\u2066\u200b\ufeff\u2028\u00ad\u3164\ufe0f\u2800\U000e0041"
LONG: Final = "\x1b\u202e" * 20_000


@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        ("plain, é and \N{GRINNING FACE}", "'plain, é and \N{GRINNING FACE}'"),
        ("a\x1b[31m", r"'a\x1b[31m'"),
        ("a\nb", r"'a\nb'"),
        ("a\u202eb", r"'a\u202eb'"),
        ("a\u3164\ufe0f", r"'a\u3164\ufe0f'"),
        ("\U000e0041", r"'\U000e0041'"),
        ("\ud800", r"'\ud800'"),
    ],
)
def test_what_is_not_seen_is_written_out(text: str, quoted: str) -> None:
    assert quote(text) == quoted
    assert Fault("").inside(text).path == f"$.{quoted[1:-1]}"


def requests(text: str) -> list[bytes]:
    """Messages that say the text wherever an error may repeat it."""
    envelope = {"type": "intent_request", "id": "c-1", "manglecp": VERSION}
    asked: dict[str, Any] = {"intent": {"name": "a"}}
    documents = [
        {**envelope, "type": text, "payload": asked},
        {**envelope, "payload": {**asked, "options": {"disclosure_preference": text}}},
        {"type": "authenticate", "id": "c", "manglecp": VERSION, "payload": {"scheme": text, "token": "t"}},
    ]
    key = json.dumps(text)
    repeated = f'{{"payload": {{"a": {{{key}: 1, {key}: 2}}}}}}'
    return [*(json.dumps(document).encode() for document in documents), repeated.encode()]


def facts(text: str) -> list[Any]:
    number = {"_type": "int64", "value": text}
    return [
        {"pred": text, "args": []},
        {"pred": f"_manglecp_{text}", "args": []},
        {"pred": "p", "args": [text, 1]},
        {"pred": "p", "args": [{"_type": text, "value": text}, number]},
        {"pred": "p", "args": ["/a", {"_type": "int64", "value": [text]}]},
        {"pred": "p", "named_args": {text: 1}},
        {"pred": "p", "args": ["/a", 1], "t": {"at": text}},
        {"pred": "p", "args": ["/a", 1], "source": {"source_type": text}},
        {"pred": "p", "args": ["/a", 1], "category": text},
        {"pred": "m", "args": [{text: text}]},
        {"pred": "m", "args": [{"_type": "map", "value": [[text, 1], [text, 2]]}]},
        {"pred": "m", "args": [text]},
        {"head": {"predicate": text, "args": []}},
        {"head": {"predicate": "p", "args": [{"type": text}]}},
        {"head": {"predicate": "p", "args": [{"type": "map", "entries": {text: {"type": "variable", "name": text}}}]}},
    ]


def texts_in(data: Any) -> list[str]:
    if isinstance(data, str):
        return [data]
    parts = data.values() if isinstance(data, dict) else data if isinstance(data, list) else ()
    return [text for part in parts for text in texts_in(part)]


@example(HIDDEN)
@example(LONG)
@example("/" + "a" * 20_000)
@given(st.text(st.characters(categories=["Cc", "Cf", "Zl", "Zp", "Co", "Lu", "Mn"]), min_size=1, max_size=9))
def test_errors_repeat_nothing_that_is_not_seen_and_nothing_long(text: str) -> None:
    told = 0
    errors = []
    for data in requests(text):
        try:
            receive(data, 1 << 24)
        except WireError as error:
            errors.append(error)
    for fact in facts(text):
        request = {"type": "intent_request", "id": "c-1", "manglecp": VERSION}
        data = json.dumps({**request, "payload": {"intent": {"name": "a"}, "facts": [fact]}}).encode()
        try:
            received: Any = receive(data, 1 << 24, structured_facts=True)
            PROFILE.read(received.payload.facts, 0)
        except WireError as error:
            errors.append(error)
    for one in errors:
        for said in texts_in([one.message, one.details]):
            told += 1
            assert said.isprintable(), said
            assert not set(said) & set(HIDDEN), said
            assert len(said) < 1_000
        receive_from_server(encode(one.to_message(one.id)), 1 << 24)
    assert told > 40


@pytest.mark.parametrize(("part", "member"), [("domain", "affinities"), (None, "extensions")])
def test_keys_of_a_server_are_shown_like_texts_of_a_client(part: str | None, member: str) -> None:
    document = json.loads(json.dumps(EXAMPLES["manifest"]))
    payload = document["payload"]
    (payload if part is None else payload[part])[member] = {LONG: "wrong"}
    with pytest.raises(WireError) as error:
        receive_from_server(json.dumps(document).encode(), 1 << 24)
    for said in texts_in([error.value.message, error.value.details]):
        assert said.isprintable()
        assert len(said) < 1_000
