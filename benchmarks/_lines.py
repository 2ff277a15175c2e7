"""Load on a server on standard streams: lines of JSON, several of them unanswered at any time.

A server is started once and asked in rounds. Told apart by their ids, answers may come in any order; lines that answer
nothing (a manifest, progress) are passed over.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from _load import Took, cpu_of

__all__ = ["Lines", "on_streams"]


class Lines:
    """A server that was started, as its client sees it."""

    def __init__(self, process: subprocess.Popen[bytes], failed: Callable[[dict[str, Any]], bool]) -> None:
        """``failed`` says whether an answer is that of an error."""
        assert process.stdin is not None
        assert process.stdout is not None
        self._process = process
        self._in, self._out = process.stdin, process.stdout
        self._failed = failed

    def say(self, *messages: dict[str, Any]) -> None:
        self._in.write(b"".join(json.dumps(one).encode() + b"\n" for one in messages))
        self._in.flush()

    def hear(self) -> dict[str, Any]:
        """The next answer."""
        while True:
            line = self._out.readline()
            if not line:
                raise RuntimeError("the server is gone")
            heard: dict[str, Any] = json.loads(line)
            if heard.get("id") is not None and heard.get("type") != "progress":
                if self._failed(heard):
                    raise RuntimeError(f"{heard}")
                return heard

    def load(self, message: dict[str, Any], times: int, at_once: int) -> Took:
        """The same message again and again, with another id each time."""
        text = json.dumps({**message, "id": "<id>"})
        sent: dict[str, float] = {}
        latencies: list[float] = []
        numbers = iter(range(times))

        def ask(count: int) -> None:
            lines = []
            for _, number in zip(range(count), numbers, strict=False):
                lines.append(text.replace("<id>", f"n{number}"))
                sent[f"n{number}"] = time.perf_counter()
            if lines:
                self._in.write("".join(line + "\n" for line in lines).encode())
                self._in.flush()

        start, before = time.perf_counter(), cpu_of(self._process.pid)
        ask(at_once)
        while sent:
            latencies.append((time.perf_counter() - sent.pop(self.hear()["id"])) * 1_000)
            ask(1)
        return Took(time.perf_counter() - start, cpu_of(self._process.pid) - before, sorted(latencies))


@contextmanager
def on_streams(command: Sequence[str], failed: Callable[[dict[str, Any]], bool]) -> Iterator[Lines]:
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        try:
            yield Lines(process, failed)
        finally:
            process.terminate()
