from __future__ import annotations

from collections.abc import Iterable

import pytest

from manglecp.adapters import LogError, ingest, records
from manglecp.adapters.records import read_records
from tests.adapters.checking import Document, exchanges, lines, log, message, text, turns


def read(data: bytes | str | Iterable[bytes | str]) -> list[tuple[int, object]]:
    return [(line, value) for line, value in read_records(data)]


def test_lines() -> None:
    assert read(b'{"a":1}\n\n  [2]\r\n') == [(1, {"a": 1}), (3, [2])]
    assert read('{"ä":1}\n3') == [(1, {"ä": 1}), (2, 3)]
    assert read(("1\n", b"2\n")) == [(1, 1), (2, 2)]
    assert read(b"") == read(b"\n \n") == []


def test_events() -> None:
    stream = b': hello\nevent: x\nid: 7\nretry: 10\ndata: {"a":1}\n\ndata:[2]\ndata:\n\ndata: [DONE]\n'
    assert read(stream) == [(5, {"a": 1}), (7, [2])]


def test_one_document_over_several_lines() -> None:
    assert read(b'\n{\n "a": [\n  1\n ]\n}\n') == [(2, {"a": [1]})]
    assert read(b"[\n1,\n2\n]") == [(1, [1, 2])]


@pytest.mark.parametrize(
    ("data", "line", "message"),
    [
        (b'{"a": 1}\n{"a": 1, "a": 2}\n', 2, "an object has the key 'a' twice"),
        (b'1\n"\xff"\n', 2, "not UTF-8: byte 0xff"),
        (b'1\n{"a": [1, 2', 2, "not JSON: "),
        (b"{\n" + b'"a": 1', 1, "not JSON: "),
        ("1\n\ud800", 2, "a lone surrogate"),
        (b"[" * 200 + b"]" * 200, 1, "nested more than 100 deep"),
        (b"[" * 100_000, 1, "nested too deeply"),
    ],
)
def test_damage(data: bytes | str, line: int, message: str) -> None:
    with pytest.raises(LogError) as refused:
        read(data)
    assert (refused.value.line, refused.value.path) == (line, "$")
    assert refused.value.message.startswith(message)


@pytest.mark.parametrize(
    ("data", "limits"),
    [
        (b'"aaaa"\n', {"MAX_LINE_BYTES": 6}),
        (b"1\n2\n3\n", {"MAX_LOG_BYTES": 5}),
        (b"[" * 10 + b"1" + b"]" * 10, {"MAX_NESTING": 9}),
        (b"[\n" + b"1,\n" * 9 + b"1]", {"MAX_LINE_BYTES": 5}),
    ],
)
def test_limits(data: bytes, limits: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    assert read(data)
    for name, limit in limits.items():
        monkeypatch.setattr(records, name, limit)
    with pytest.raises(LogError):
        read(data)


def test_limits_are_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    deep = b"[" * records.MAX_NESTING + b"]" * records.MAX_NESTING
    assert len(read(deep)) == 1
    with pytest.raises(LogError):
        read(b"[" + deep + b"]")
    for name, limit in {"MAX_LINE_BYTES": 6, "MAX_LOG_BYTES": 6}.items():
        monkeypatch.setattr(records, name, limit)
    assert read(b'"aaaa"') == [(1, "aaaa")]


def test_turns_in_front_of_the_damage_are_given() -> None:
    whole = log("anthropic-exchanges.jsonl")
    documents = ingest(whole[:-40], "anthropic")
    given: list[Document] = []
    with pytest.raises(LogError) as refused:
        given.extend(documents)
    assert refused.value.line == 4
    assert [one["turn"]["number"] for one in given] == [1, 2, 3]
    assert given[1] == turns(whole)[1]


def test_an_unknown_source() -> None:
    with pytest.raises(ValueError, match="is not one of anthropic, openai, mcp, otel, jsonl"):
        next(ingest(b"", "gemini"))


def test_a_message_of_a_stream_that_is_damaged() -> None:
    record = {"response": 'data: {"type": "message_start", "message": {}}\n\ndata: {'}
    with pytest.raises(LogError) as refused:
        turns(lines([record]))
    assert refused.value.path == "$.response"
    assert refused.value.message.startswith("line 3 of the stream: not JSON")


def test_an_empty_log_has_no_turns() -> None:
    assert turns(b"") == []
    assert len(turns(lines(exchanges(message(text("ok"), stop="end_turn"))))) == 1
