"""A load generator for servers on standard streams: lines of JSON, with several pending requests.

Responses are matched by id and can arrive in any order. Other lines (a manifest, progress) are skipped.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from _load import LoadResult, cpu_of

__all__ = ["Lines", "on_streams"]


class Lines:
    """The client of a server process."""

    def __init__(self, process: subprocess.Popen[bytes], failed: Callable[[dict[str, Any]], bool]) -> None:
        """``failed`` returns whether a response is an error."""
        assert process.stdin is not None
        assert process.stdout is not None
        self._process = process
        self._in, self._out = process.stdin, process.stdout
        self._failed = failed

    def send(self, *messages: dict[str, Any]) -> None:
        self._in.write(b"".join(json.dumps(one).encode() + b"\n" for one in messages))
        self._in.flush()

    def receive(self) -> dict[str, Any]:
        """Return the next response. Raises RuntimeError if it is an error or the server has ended."""
        while True:
            line = self._out.readline()
            if not line:
                raise RuntimeError("the server has ended")
            message: dict[str, Any] = json.loads(line)
            if message.get("id") is not None and message.get("type") != "progress":
                if self._failed(message):
                    raise RuntimeError(f"{message}")
                return message

    def wait_ready(self) -> None:
        """Read manifests until the server has loaded its pack; earlier requests are refused."""
        while json.loads(self._out.readline())["payload"]["status"] != "ready":
            pass

    def load(self, message: dict[str, Any], times: int, at_once: int) -> LoadResult:
        """Send a message ``times`` times, each with a new id, with ``at_once`` pending requests."""
        text = json.dumps({**message, "id": "<id>"})
        sent: dict[str, float] = {}
        latencies: list[float] = []
        numbers = iter(range(times))

        def send(count: int) -> None:
            lines = []
            for _, number in zip(range(count), numbers, strict=False):
                lines.append(text.replace("<id>", f"n{number}"))
                sent[f"n{number}"] = time.perf_counter()
            if lines:
                self._in.write("".join(line + "\n" for line in lines).encode())
                self._in.flush()

        start, before = time.perf_counter(), cpu_of(self._process.pid)
        send(at_once)
        while sent:
            latencies.append((time.perf_counter() - sent.pop(self.receive()["id"])) * 1_000)
            send(1)
        return LoadResult(time.perf_counter() - start, cpu_of(self._process.pid) - before, sorted(latencies))


@contextmanager
def on_streams(command: Sequence[str], failed: Callable[[dict[str, Any]], bool]) -> Iterator[Lines]:
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        try:
            yield Lines(process, failed)
        finally:
            process.terminate()
