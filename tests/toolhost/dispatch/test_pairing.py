"""Pairing: the next line belongs to the oldest request, or to nobody ever again."""

import asyncio
import json
import random
from collections.abc import Callable
from typing import Any

import pytest

from manglecp.toolhost.dispatch import ActionResult, HostCall
from manglecp.toolhost.dispatch.messages import interpret_answer
from manglecp.toolhost.dispatch.responses import HostLost, Request, ResponseMatcher


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
        return error.loss, error.sent, error.suspect
    return request.answer.result()


def test_answers_go_to_requests_in_their_order() -> None:
    def work(request: Callable[..., Request]) -> None:
        pairing = ResponseMatcher()
        first, second = request("a"), request("b")
        pairing.add(first)
        pairing.add(second)
        pairing.feed(b'{"n":1,"call_id":"a"}\n{"n"')
        assert outcome(first)["n"] == 1
        assert not second.answer.done()
        pairing.feed(b":2}\n")  # a host that does not say names back is believed
        assert outcome(second) == {"n": 2}
        assert pairing.idle
        assert not pairing.spoiled

    inside(work)


@pytest.mark.parametrize(
    ("said", "loss"),
    [
        (b"{}\n{}\n{}\n", "crash"),
        (b"\n", "empty_output"),
        (b"no\n", "parse_error"),
        (b"[]\n", "parse_error"),
        (b'{"call_id":"b"}\n', "crash"),
        (b"x" * 65, "oversize"),
    ],
)
def test_after_a_line_that_is_no_answer_nothing_is_taken(said: bytes, loss: str) -> None:
    def work(request: Callable[..., Request]) -> None:
        pairing = ResponseMatcher(limit=64)
        first, second = request("a"), request("b")
        pairing.add(first)
        pairing.add(second)
        pairing.feed(said)
        assert pairing.spoiled
        pairing.feed(b"{}\n{}\n")
        pairing.lose_all("crash", "over")
        got = [outcome(each) for each in (first, second)]
        if said.startswith(b"{}"):
            assert got == [{}, {}]
        else:
            assert got == [(loss, True, True), ("crash", True, False)]

    inside(work)


def test_an_answer_to_what_was_not_yet_asked_is_none() -> None:
    def work(request: Callable[..., Request]) -> None:
        for sent, expected in ((0, ("crash", False, False)), (3, ("crash", True, True))):
            pairing = ResponseMatcher()
            early = request(sent=sent)
            pairing.add(early)
            pairing.feed(b"{}\n")
            assert pairing.spoiled
            pairing.lose_all("crash", "over")
            assert outcome(early) == expected

    inside(work)


def test_a_request_that_was_withdrawn_gets_no_answer_and_one_that_was_left_takes_its_own() -> None:
    def work(request: Callable[..., Request]) -> None:
        late: list[str] = []
        pairing = ResponseMatcher(lambda: late.append("late"))
        left, withdrawn, last = request("a"), request("b", sent=0), request("c")
        for each in (left, withdrawn, last):
            pairing.add(each)
        left.answer.cancel()
        pairing.withdraw(withdrawn)
        pairing.feed(b'{"call_id":"a"}\n{"call_id":"c"}\n')
        assert late == ["late"]
        assert not withdrawn.answer.done()
        assert outcome(last) == {"call_id": "c"}

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
    b'{"call_id":7,' + GOOD[1:],
    *[GOOD] * 12,
]
CALL = HostCall(aid="AID.X.v1")


def _believed(stream: bytes, count: int) -> int:
    """How many of the requests c0, c1, ... such a stream answers: as simple as can be, with the other JSON parser."""
    *lines, _ = stream.split(b"\n")
    for position, line in enumerate(lines[:count]):
        try:
            document = json.loads(line.decode()) if len(line) <= 256 else None
        except (ValueError, RecursionError):
            return position
        if not isinstance(document, dict) or document.get("call_id") not in (None, f"c{position}"):
            return position
    return min(len(lines), count)


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
            pairing = ResponseMatcher(limit=256)
            requests = [request(f"c{number}") for number in range(chance.randrange(1, 5))]
            for each in requests:
                pairing.add(each)
            at = 0
            while at < len(stream):
                step = chance.randrange(1, 200)
                pairing.feed(bytes(stream[at : at + step]))
                assert len(pairing.partial) <= 256
                at += step
            pairing.lose_all("crash", "the end")
            outcomes = [outcome(each) for each in requests]
            good = [each for each in outcomes if isinstance(each, dict)]
            assert outcomes[: len(good)] == good  # nobody is answered after somebody who was not
            for document in good:
                result = interpret_answer(CALL, document)
                assert isinstance(result, ActionResult) or result["error"] is True
            assert len(good) == _believed(bytes(stream), len(requests)), stream
            answered += len(good)
        assert count // 4 < answered

    inside(work)


@pytest.mark.req("IPC-30")
def test_no_stream_of_bytes_does_harm() -> None:
    _streams(3_000, seed=19)


@pytest.mark.soak
def test_no_stream_of_bytes_does_harm_at_length() -> None:
    _streams(100_000, seed=20)
