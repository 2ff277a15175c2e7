"""Pairing: the next line answers the open request, or no line answers any request again."""

import asyncio
import json
import random
from collections.abc import Callable
from typing import Any

import pytest

from manglecp.toolhost.dispatch.messages import ActionResult, HostCall, interpret_answer
from manglecp.toolhost.dispatch.responses import HostLost, Loss, Request, ResponseReader


def inside(work: Callable[[Callable[..., Request]], None]) -> None:
    """Run in an event loop, with a maker of requests of which everything was sent."""

    async def main() -> None:
        loop = asyncio.get_running_loop()

        def request(call_id: str | None = None, *, sent: int | None = None) -> Request:
            made = Request(b"request\n", loop.create_future(), call_id)
            if sent != 0:
                made.written(8 if sent is None else sent)
            return made

        work(request)

    asyncio.run(main())


def outcome(request: Request) -> Any:
    """The answer, or the loss with what it says about the request."""
    error = request.answer.exception()
    if isinstance(error, HostLost):
        return error.loss.code or error.loss.kind, error.sent, error.suspect
    return request.answer.result()


def test_the_next_line_answers_the_open_request() -> None:
    def work(request: Callable[..., Request]) -> None:
        reader = ResponseReader()
        first = request("a")
        reader.open(first)
        reader.feed(b'{"n":1,"call_id":"a"}\n{"n"')
        assert outcome(first)["n"] == 1
        assert not reader.requests
        second = request("b")
        reader.open(second)
        reader.feed(b":2}\n")  # a host that does not repeat call ids is believed
        assert outcome(second) == {"n": 2}
        assert not reader.spoiled

    inside(work)


@pytest.mark.parametrize(
    ("said", "loss"),
    [
        (b"{}\n{}\n", "crash"),
        (b"\n", "empty_output"),
        (b"no\n", "parse_error"),
        (b"[]\n", "parse_error"),
        (b'{"call_id":"b"}\n', "crash"),
        (b"x" * 65, "oversize"),
    ],
)
def test_after_a_line_that_is_no_answer_nothing_is_taken(said: bytes, loss: str) -> None:
    def work(request: Callable[..., Request]) -> None:
        reader = ResponseReader(limit=64)
        first = request("a")
        reader.open(first)
        reader.feed(said)
        assert reader.spoiled
        reader.feed(b"{}\n{}\n")
        reader.lose(Loss("crash", "over"))
        assert outcome(first) == ({} if said.startswith(b"{}") else (loss, True, True))

    inside(work)


def test_an_answer_to_what_was_not_yet_asked_is_none() -> None:
    def work(request: Callable[..., Request]) -> None:
        for sent, expected in ((0, ("crash", False, False)), (3, ("crash", True, True))):
            reader = ResponseReader()
            early = request(sent=sent)
            reader.open(early)
            reader.feed(b"{}\n")
            assert reader.spoiled
            reader.lose(Loss("crash", "over"))
            assert outcome(early) == expected

    inside(work)


def test_an_action_whose_caller_was_impatient_is_no_suspect() -> None:
    def work(request: Callable[..., Request]) -> None:
        reader = ResponseReader()
        hasty = request()
        reader.open(hasty)
        hasty.suspect = False
        reader.lose(Loss("timeout", "over"))
        assert outcome(hasty) == ("timeout", True, False)

    inside(work)


GOOD = b'{"ok":true,"status":"OK","output_json":"{}","error":"","ds_state":{"delta":true,"slots":{}}}'
SCRAPS = [
    b"",
    b"\n",
    b"\r\n",
    b"\x00",
    b"\xff\xfe",
    b"{",
    b"[" * 500,
    b'"',
    b"null",
    b"1e999",
    b"\xe2\x80\xa8",
    b"{}",
    b'{"ok":1}',
    b'{"ok":true,"status":"OK","output_json":7}',
    b'{"ds_state":{"slots":[]},' + GOOD[1:],
    b'{"call_id":"c1",' + GOOD[1:],
    b'{"call_id":"c0",' + GOOD[1:],
    b'{"call_id":7,' + GOOD[1:],
    *[GOOD] * 12,
]
CALL = HostCall(aid="AID.X.v1")


def _believed(line: bytes) -> bool:
    """Whether a line answers the request c1: as simple as can be, with the other JSON parser."""
    try:
        document = json.loads(line.decode()) if len(line) <= 256 else None
    except (ValueError, RecursionError):
        return False
    return isinstance(document, dict) and document.get("call_id") in (None, "c1")


def _streams(count: int, seed: int) -> None:
    """Byte streams as broken hosts make them: whole answers, cut, doubled, damaged, mixed with noise."""
    chance = random.Random(seed)

    def work(request: Callable[..., Request]) -> None:
        answered = 0
        for _ in range(count):
            stream = bytearray(b"\n".join(chance.choices(SCRAPS, k=chance.randrange(1, 8))))
            for _ in range(chance.randrange(-3, 4)):
                if stream:
                    stream[chance.randrange(len(stream))] = chance.randrange(256)
            reader = ResponseReader(limit=256)
            one = request("c1")
            reader.open(one)
            at = 0
            while at < len(stream):
                step = chance.randrange(1, 200)
                reader.feed(bytes(stream[at : at + step]))
                assert len(reader.partial) <= 256
                at += step
            reader.lose(Loss("crash", "the end"))
            got = outcome(one)
            first, newline, rest = bytes(stream).partition(b"\n")
            assert isinstance(got, dict) == (bool(newline) and _believed(first)), stream
            if isinstance(got, dict):
                result = interpret_answer(CALL, got)
                assert isinstance(result, ActionResult) or result["error"] is True
                answered += 1
                assert reader.spoiled or b"\n" not in rest
        assert count // 4 < answered

    inside(work)


@pytest.mark.req("IPC-30")
def test_no_stream_of_bytes_does_harm() -> None:
    _streams(3_000, seed=19)


@pytest.mark.soak
def test_no_stream_of_bytes_does_harm_at_length() -> None:
    _streams(100_000, seed=20)
