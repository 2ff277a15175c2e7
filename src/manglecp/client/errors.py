"""Everything that can go wrong for a client, as one small tree.

    ClientError
    ├── ServerError      the server answered with an error
    ├── ConnectionLost   nobody can say what became of the request
    │   └── NoAnswer     the connection is there, the answer is not
    ├── Unreadable       the server sent something that is no message
    └── Refused          this client does not send that

As text an error has the first of what is wrong with which facts or arguments, so that whoever sees only that can begin.
What a server says is shown with every character in plain sight: it may hold what a terminal would obey. It may have any
shape, too: what cannot be read of its details is passed over.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from manglecp.base.text import truncate
from manglecp.wire import WireError
from manglecp.wire.messages import UNSET, ErrorPayload

_LONGEST: Final = 2_000
"""Characters of a server's text that are repeated."""
_FIRST: Final = 3


class ClientError(Exception):
    """The root of the tree."""


class ServerError(ClientError):
    """The server's answer is an error. ``details`` is empty where it gave none."""

    def __init__(
        self,
        code: str,
        message: str,
        details: Mapping[str, Any] | None = None,
        *,
        recoverable: bool = False,
        retry_after_ms: int | None = None,
    ) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message
        self.details: Mapping[str, Any] = details or {}
        self.recoverable = recoverable
        self.retry_after_ms = retry_after_ms

    @classmethod
    def of(cls, payload: ErrorPayload) -> ServerError:
        """The exception for an error message."""
        return cls(
            payload.code,
            payload.message,
            None if payload.details is UNSET else payload.details,
            recoverable=payload.recoverable,
            retry_after_ms=payload.retry_after_ms,
        )

    def __str__(self) -> str:
        return f"{truncate(self.code, 128)}: {truncate(self.message, _LONGEST)}{_first_of(self.details)}"


class ConnectionLost(ClientError):
    """The connection ended or failed. The effect of the request is unknown."""


class NoAnswer(ConnectionLost):
    """The answer did not come in the time that the caller allows."""


class Unreadable(ClientError):
    """The server sent no message, one that is too long, or one for another request. It is discarded."""


class Refused(ClientError):
    """This client does not send that. ``code`` is the server's where it has one for the same thing."""

    def __init__(self, code: str, message: str, details: Mapping[str, Any] | None = None) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message
        self.details: Mapping[str, Any] = details or {}

    @classmethod
    def of(cls, error: WireError) -> Refused:
        """What this side found wrong with a message, before it was sent."""
        return cls(error.code, error.message, error.details)

    def __str__(self) -> str:
        return f"{self.code}: {self.message}{_first_of(self.details)}"


def _first_of(details: Mapping[str, Any]) -> str:
    told = list(_wrong(details))
    more = f"; and {len(told) - _FIRST} more" if len(told) > _FIRST else ""
    return f" ({'; '.join(truncate(one, _LONGEST) for one in told[:_FIRST])}{more})" if told else ""


def _wrong(details: Mapping[str, Any]) -> Iterator[str]:
    for one in _listed(details, "violations"):
        if isinstance(one, Mapping):
            said, name = str(one.get("message", one.get("issue", ""))), str(one.get("predicate", ""))
            about = f", {name}" if name and f"'{name}'" not in said else ""
            help_ = f" ({one['suggestion']})" if "suggestion" in one else ""
            yield f"fact {one.get('fact_index', '?')}{about}: {said}{help_}"
    for one in _listed(details, "schema_errors"):
        if isinstance(one, Mapping):
            yield f"{one.get('path') or '/'}: {one.get('message', '')}"
    yield from (f"Predicate '{name}' is needed" for name in _listed(details, "missing_facts"))


def _listed(details: Mapping[str, Any], kind: str) -> list[Any] | tuple[Any, ...]:
    found = details.get(kind)
    return found if isinstance(found, list | tuple) else ()
