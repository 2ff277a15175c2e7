"""Which requests of a log belong to one conversation, and what each of them adds to it.

Every request repeats the whole conversation, and logs of several agents are interleaved. A request continues a thread
if it begins with the same message (or names the same session) and is longer than what is known of the thread, or the
very same; otherwise it begins a thread of its own: somebody started over, or rewrote the history.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from manglecp.adapters.digests import RunningDigest, canonical_bytes
from manglecp.adapters.fields import texts_of
from manglecp.wire import JSON

__all__ = ["History", "Thread", "Threads", "reminders", "spoken"]

_REMINDER: Final = re.compile(r"<system-reminder>(.*?)</system-reminder>", re.DOTALL)
_MARK: Final = "<system-reminder>"


def reminders(text: str) -> list[str]:
    """The reminders that a harness put into the words of the user."""
    return [found.strip() for found in _REMINDER.findall(text)] if _MARK in text else []


def spoken(text: str) -> bool:
    """Whether a text says anything beside reminders."""
    return bool((_REMINDER.sub("", text) if _MARK in text else text).strip())


class History:
    """The message list of a request, and the system and reminder texts in it, each as a digest that grows."""

    def __init__(self, system: Iterable[str] = ()) -> None:
        self.system = list(system)
        self._messages = RunningDigest()
        self._queue = RunningDigest()
        for text in self.system:
            self._queue.append(text)

    def append(self, message: JSON, queued: Iterable[str]) -> None:
        """One more message, and the texts in it that belong to the reminder queue."""
        self._messages.append(message)
        for text in queued:
            self._queue.append(text)

    @property
    def view(self) -> str:
        """The digest of the messages so far."""
        return self._messages.digest()

    @property
    def queue(self) -> str:
        """The digest of the system and reminder texts so far."""
        return self._queue.digest()


@dataclass(slots=True)
class Thread:
    """A conversation, as far as it is known."""

    number: int
    messages: Sequence[Any] = ()
    history: History = field(default_factory=History)


class Threads:
    """The conversations of a log. Those that have been silent for longest are forgotten first."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._begun = 0
        self._open: OrderedDict[bytes, Thread] = OrderedDict()

    def begin(self) -> Thread:
        """A thread that nothing else will continue."""
        self._begun += 1
        return Thread(self._begun)

    def continued(self, messages: Sequence[Any], session: str | None) -> tuple[Thread, int]:
        """The thread of a request, and how many of its messages were known before."""
        key = canonical_bytes(session if session is not None else texts_of(messages[0]) if messages else None)
        thread = self._open.get(key)
        known = 0 if thread is None else len(thread.messages)
        if thread is None or len(messages) < known or (len(messages) == known and messages != thread.messages):
            thread, known = self.begin(), 0
        self._keep(key, thread)
        return thread, known

    def named(self, name: str) -> tuple[Thread, bool]:
        """The thread that was given this name, and whether it was known before."""
        key = canonical_bytes(name)
        thread = self._open.get(key)
        known = thread is not None
        thread = thread or self.begin()
        self._keep(key, thread)
        return thread, known

    def name(self, name: str, thread: Thread) -> None:
        """Let :meth:`named` find the thread under this name, too."""
        self._keep(canonical_bytes(name), thread)

    def _keep(self, key: bytes, thread: Thread) -> None:
        self._open[key] = thread
        self._open.move_to_end(key)
        if len(self._open) > self._most:
            self._open.popitem(last=False)
