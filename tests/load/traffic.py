"""Mixed traffic: clients that do everything right, and among them those that are slow, leave, say too much, say what is
no message, or are nobody that the server knows.

Each kind of client is a coroutine that goes on until the traffic is over. Whatever a client must not see is written
down in ``wrong``; correct clients compare every answer with what it has to be.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, Final

from tests.load.questions import Asker, Question

__all__ = ["Client", "Traffic"]

LEAST_WAIT_MS, MOST_WAIT_MS = 50, 10_000
_UNDER_LOAD: Final = frozenset({"rate_limited", "server_not_ready"})
Client = Callable[["Traffic", int], Awaitable[None]]


class Traffic:
    def __init__(self, port: int, identities: tuple[str, ...]) -> None:
        self.port = port
        self._identities = identities
        self.over = False
        self.draining = False
        """Has the server been told to end? Then it may refuse, and connections may end."""
        self.wrong: list[str] = []
        self.done: Counter[str] = Counter()
        """Exchanges by kind of client."""
        self.told_to_wait = 0
        """Correct requests that were put off under load."""
        self.seconds: list[float] = []
        """How long correct clients waited for each answer."""

    def token(self, number: int) -> str:
        return self._identities[number % len(self._identities)]

    def asker(self, number: int) -> Asker:
        return Asker(number)

    def blame(self, kind: str, what: str) -> None:
        self.wrong.append(f"{kind}: {what}")

    def judge(self, kind: str, question: Question, told: dict[str, Any], began: float) -> float:
        """Is this the right answer to a correct client's question? How long that should wait before it asks again."""
        self.done[kind] += 1
        if told["id"] != question.id:
            self.blame(kind, f"{question.id} was answered as {told['id']}")
            return 0.0
        if told["type"] == "error":
            return self._put_off(kind, question, told["payload"])
        self.seconds.append(time.monotonic() - began)
        if (wrong := question.wrong(told["payload"])) is not None:
            self.blame(kind, f"{question.id}: {wrong}")
        return 0.0

    def _put_off(self, kind: str, question: Question, error: dict[str, Any]) -> float:
        waiting = error.get("retry_after_ms")
        designed = error["code"] in _UNDER_LOAD and (error["code"] != "server_not_ready" or self.draining)
        if not designed or not isinstance(waiting, int) or not LEAST_WAIT_MS <= waiting <= MOST_WAIT_MS:
            self.blame(kind, f"{question.id} was refused with {error}")
            return 0.0
        self.told_to_wait += 1
        return 0.0 if self.draining else waiting / 1_000

    def lost(self, kind: str, error: Exception) -> None:
        """A connection of a client that did nothing wrong has ended: all right while the server drains, though never in
        the middle of an answer."""
        partial = error.partial if isinstance(error, asyncio.IncompleteReadError) else b""
        if not self.draining or partial:
            self.blame(kind, f"the connection ended after {partial!r}: {error!r}")

    async def run(self, clients: list[Client]) -> None:
        """Until :meth:`end`, and until every client has left."""

        async def go(client: Client, number: int) -> None:
            while not self.over:
                try:
                    await client(self, number)
                except (OSError, asyncio.IncompleteReadError) as error:
                    self.lost(client.__name__, error)
                    if self.draining:
                        return

        await asyncio.gather(*(go(client, number) for number, client in enumerate(clients)))

    async def pause(self, seconds: float) -> None:
        """Between two things that a bad client does: it is there to be in the way, not to be most of the load."""
        if not self.over:
            await asyncio.sleep(seconds)

    def end(self) -> None:
        self.over = True


@contextlib.contextmanager
def leaving() -> Any:
    """A client that does not care whether its connection still is there."""
    with contextlib.suppress(OSError, asyncio.IncompleteReadError):
        yield
