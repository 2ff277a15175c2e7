"""Evaluations take their turn in threads, in the order in which they came.

An interpreter computes in one thread at a time, and each change from one thread to another costs as much as a good part
of a small evaluation. So a thread does a *round*: it takes whoever waits, one after the other, for a moment; then it
has the tools of all of them kept at once, and the event loop hears of all of them at once.

Nobody waits for company. What comes first goes at once, and what comes meanwhile is taken by the thread that is at it.
Nobody waits for somebody else's long evaluation either: when a round lasts, another thread takes those that wait, and
what the round has finished is kept and told without it.

An overloaded server answers fewer requests, not all of them more slowly: what cannot begin soon is refused, and told
when to come back (``rate_limited``, ERR-30).
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from typing import Final, TypeAlias

from manglecp.intent import Identity
from manglecp.invoke import Announced, Invoker
from manglecp.server.admission import limited
from manglecp.server.settings import ServerSettings
from manglecp.wire import WireError
from manglecp.wire.messages import IntentRequest, IntentResponse

__all__ = ["Evaluating", "Outcome", "Turn"]

_MOMENT: Final = 0.005
"""Seconds in which a round takes one more."""
_LASTING: Final = 0.010
"""Seconds after which a round is one that lasts."""

Outcome: TypeAlias = IntentResponse | Exception
_Made: TypeAlias = tuple["Turn", tuple[IntentResponse, Announced] | Exception]
_log = logging.getLogger(__name__)


class Turn:
    """An evaluation that somebody asked for."""

    __slots__ = ("answered", "context", "identity", "invoker", "request", "since")

    def __init__(
        self, invoker: Invoker, request: IntentRequest, identity: Identity, answered: Callable[[Outcome], None]
    ) -> None:
        self.invoker = invoker
        self.request = request
        self.identity = identity
        self.answered = answered
        self.context = contextvars.copy_context()
        self.since = time.monotonic()


class _Round:
    """What a thread does before it tells anybody. ``made`` is what it has finished and nobody has kept."""

    __slots__ = ("began", "made")

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.made: deque[_Made] = deque()


class Evaluating:
    """One for a process. Used from its event loop only."""

    def __init__(self, settings: ServerSettings) -> None:
        self._settings = settings
        self._waiting: deque[Turn] = deque()
        self._rounds: dict[_Round, None] = {}
        # One more than evaluate: what a round that lasts has finished is kept by somebody.
        self._threads = ThreadPoolExecutor(settings.evaluations + 1, "manglecp-evaluation")
        self._looking = False
        self._open = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._typical = 0.005
        """Seconds that an evaluation takes, more or less."""

    @property
    def running(self) -> int:
        """How many rounds are under way."""
        return len(self._rounds)

    @property
    def waiting(self) -> int:
        """How many wait for a thread."""
        return len(self._waiting)

    def ask(
        self, invoker: Invoker, request: IntentRequest, identity: Identity, answered: Callable[[Outcome], None]
    ) -> Turn:
        """Have it evaluated, and ``answered`` called with what comes of it, in the context of this call."""
        settings = self._settings
        if len(self._rounds) + len(self._waiting) >= settings.evaluations + settings.waiting:
            raise self._busy()
        turn = Turn(invoker, request, identity, answered)
        if self._rounds:
            self._waiting.append(turn)
        else:
            self._begin(turn)
        self._open += 1
        self._idle.clear()
        return turn

    def withdraw(self, turn: Turn) -> bool:
        """Nobody wants the answer. Had it not begun? Then it never will, and nobody is answered."""
        try:
            self._waiting.remove(turn)
        except ValueError:  # a thread has it
            return False
        self._over()
        return True

    async def over(self) -> None:
        """Wait until everything is answered that was asked for."""
        await self._idle.wait()

    def shutdown(self) -> None:
        """End the threads, once nothing is asked for any more."""
        self._threads.shutdown()

    # --- rounds ------------------------------------------------------------------------------------------------------

    def _begin(self, turn: Turn) -> None:
        one = _Round()
        done = asyncio.get_running_loop().run_in_executor(self._threads, self._work, one, turn)
        self._rounds[one] = None
        done.add_done_callback(lambda done: self._end(one, done.result()))
        self._look_later()

    def _work(self, one: _Round, first: Turn) -> list[tuple[Turn, Outcome]]:
        """In a thread."""
        turn: Turn | None = first
        until = time.monotonic() + _MOMENT
        while turn is not None:
            one.made.append((turn, _attempted(turn)))
            turn = self._next() if time.monotonic() < until else None
        return _settled(one.made)

    def _next(self) -> Turn | None:
        try:
            return self._waiting.popleft()
        except IndexError:  # the loop, or another round, may be faster
            return None

    def _end(self, one: _Round, answers: list[tuple[Turn, Outcome]]) -> None:
        del self._rounds[one]
        if answers:
            took = (time.monotonic() - one.began) / len(answers)
            self._typical += 0.1 * (took - self._typical)
        self._tell(answers)
        if all(map(_lasts, self._rounds)):
            self._take_next()

    def _tell(self, answers: list[tuple[Turn, Outcome]]) -> None:
        for turn, answer in answers:
            self._over()
            try:
                turn.context.run(turn.answered, answer)
            except Exception:  # of one is nothing to the others
                _log.exception("an answer could not be told")

    def _take_next(self) -> None:
        if len(self._rounds) < self._settings.evaluations and (turn := self._next()) is not None:
            self._begin(turn)

    def _over(self) -> None:
        self._open -= 1
        if not self._open:
            self._idle.set()

    # --- what takes long ---------------------------------------------------------------------------------------------

    def _look_later(self) -> None:
        if not self._looking:
            self._looking = True
            asyncio.get_running_loop().call_later(_LASTING, self._look)

    def _look(self) -> None:
        self._looking = False
        if not self._rounds:
            return
        self._refuse_late()
        lasting = [one for one in self._rounds if _lasts(one)]
        for one in lasting:
            if one.made:
                done = asyncio.get_running_loop().run_in_executor(self._threads, _settled, one.made)
                done.add_done_callback(lambda done: self._tell(done.result()))
        if len(lasting) == len(self._rounds):
            self._take_next()
        self._look_later()

    def _refuse_late(self) -> None:
        """Those that have waited too long; the first has waited longest."""
        since = time.monotonic() - self._settings.longest_wait
        with contextlib.suppress(IndexError):  # a thread may be faster
            while self._waiting[0].since <= since:
                turn = self._waiting.popleft()
                if turn.since > since:  # it was
                    self._waiting.appendleft(turn)
                    return
                self._tell([(turn, self._busy())])

    def _busy(self) -> WireError:
        return limited("The server is busy", self._typical * (len(self._waiting) + 1) / self._settings.evaluations)


def _lasts(one: _Round) -> bool:
    return time.monotonic() - one.began >= _LASTING


def _attempted(turn: Turn) -> tuple[IntentResponse, Announced] | Exception:
    try:
        return turn.invoker.answer(turn.request, turn.identity)
    except Exception as error:
        return error


def _settled(made: deque[_Made]) -> list[tuple[Turn, Outcome]]:
    """What a round has made, once its tools are kept. Two threads may both be at it: each one is taken by one of
    them."""
    taken: list[_Made] = []
    with contextlib.suppress(IndexError):
        while made:
            taken.append(made.popleft())
    answers: list[tuple[Turn, Outcome]] = []
    for invoker, group in groupby(taken, lambda one: one[0].invoker):
        several = list(group)
        failed = iter(_announced(invoker, [found[1] for _, found in several if not isinstance(found, Exception)]))
        for turn, found in several:
            answers.append((turn, found if isinstance(found, Exception) else next(failed) or found[0]))
    return answers


def _announced(invoker: Invoker, several: list[Announced]) -> list[Exception | None]:
    try:
        return invoker.announce(several)
    except Exception as error:
        return [error] * len(several)
