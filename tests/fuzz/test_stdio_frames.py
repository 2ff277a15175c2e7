"""Standard streams under fuzz: one connection, which has to live through all of it, and an answer for every line."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final

import pytest

from tests.fuzz.answers import MEMORY, SIZES, answer, check_all
from tests.fuzz.frames import SENTINEL, Sent, sent
from tests.load.serving import PATIENCE, Server, serve

pytestmark = pytest.mark.no_cover

BATCH: Final = 40
"""Fewer than a session may have unanswered."""
BLANK: Final = b" \t\r"


class Lines:
    """What the server says, as it comes."""

    limit: int
    """Bytes that a message may have."""

    def __init__(self, server: Server) -> None:
        self._into = server.popen.stdin
        self._heard: queue.Queue[bytes] = queue.Queue()
        threading.Thread(target=self._listen, args=(server.popen.stdout,), daemon=True).start()

    def _listen(self, source: IO[bytes]) -> None:
        for line in source:
            self._heard.put(line)
        self._heard.put(b"")

    def say(self, data: bytes) -> None:
        assert self._into is not None
        self._into.write(data)
        self._into.flush()

    def hear(self, type_: str | None = None) -> dict[str, Any]:
        """The next message; of this type, or the next answer."""
        while line := self._heard.get(timeout=PATIENCE):
            told = answer(line)
            if type_ == told["type"] or (type_ is None and told["type"] not in ("manifest", "progress")):
                return told
        raise AssertionError("the server says nothing more")

    def ask(self, one: Sent) -> dict[str, Any]:
        self.say(one.data + b"\n")
        return self.hear()

    def end(self) -> list[bytes]:
        """What is left to be heard at the end of the input."""
        assert self._into is not None
        self._into.close()
        return list(iter(lambda: self._heard.get(timeout=PATIENCE), b""))


@contextmanager
def streams(folder: Path) -> Iterator[tuple[Server, Lines]]:
    with serve(folder, stdio=True) as server:
        lines = Lines(server)
        while (manifest := lines.hear("manifest")["payload"])["status"] == "booting":
            pass
        lines.limit = manifest["limits"]["max_message_bytes"]
        yield server, lines


@pytest.mark.req("TRANS-23", "TRANS-24", "TRANS-33", "SEC-02")
@pytest.mark.parametrize("count", SIZES)
def test_lines(count: int, tmp_path: Path) -> None:
    with streams(tmp_path) as (server, lines):
        [tool] = lines.ask(SENTINEL)["payload"]["macro_tools"]
        several(lines, range(200), tool["macro_id"])
        before = server.figures()
        several(lines, range(200, 200 + count), tool["macro_id"])
        now = server.figures()
        assert now.no_more_than(before, kilobytes=MEMORY), f"{before} became {now}"
        assert lines.end() == []  # nothing was answered twice
        assert server.ended() == 0
        assert not server.left()
        assert not server.faults()


def several(lines: Lines, seeds: range, tool: str) -> None:
    for first in range(0, len(seeds), BATCH):
        batch = [*(sent(seed, tool, as_line) for seed in seeds[first : first + BATCH]), SENTINEL]
        lines.say(b"".join(one.data + b"\n" for one in batch))
        batch = [one for one in batch if one.data.strip(BLANK) and not one.silent]
        check_all(batch, [lines.hear() for _ in batch])


def as_line(data: bytes) -> bytes:
    return data.replace(b"\n", b" ")


@pytest.mark.req("CONF-03")
def test_lines_that_are_too_long_and_one_that_is_never_ended(tmp_path: Path) -> None:
    with streams(tmp_path) as (server, lines):
        before = server.figures()
        for times in (1, 5):
            lines.say(b'{"type":"' + b"x" * (times * lines.limit) + b'"}\n')
            assert lines.hear()["payload"]["code"] == "message_too_large"
            assert lines.ask(SENTINEL)["id"] == "sentinel"
        now = server.figures()
        assert now.no_more_than(before, kilobytes=MEMORY), f"{before} became {now}"
        lines.say(SENTINEL.data)
        assert [answer(line)["id"] for line in lines.end()] == ["sentinel"]
        assert server.ended() == 0
        assert not server.faults()
