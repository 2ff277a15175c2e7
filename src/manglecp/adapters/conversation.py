"""A conversation with a model, whoever provides it.

A log becomes a sequence of two events. A :class:`Prompt` is what a request adds to a conversation: results of calls,
new words of the user, and digests of everything that the model was shown. A :class:`Reply` is what the model answered,
its parts in their order. Adapters produce events and know their provider; :mod:`.turns` makes evidence of them and
knows none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from manglecp.wire import JSON

__all__ = ["CODE_EXECUTION", "Call", "Caller", "Event", "Failure", "Offer", "Prompt", "Reply", "Result"]

CODE_EXECUTION: Final = "code_execution"


@dataclass(frozen=True, slots=True)
class Caller:
    """Who made a call, if it was not the model itself."""

    kind: str
    parent: str | None
    """The call that made it."""


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call in a reply."""

    id: str
    name: str
    input: JSON
    kind: str = "function"
    block: str = "tool_use"
    valid: bool = True
    """Whether the arguments are of the kind that the provider promises."""
    served: bool = False
    """Whether the provider runs it, so that the result is part of a reply."""
    caller: Caller | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """What a log says of an error. What it does not say is None."""

    code: str | None
    message: str | None
    retryable: bool | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """What came back from a call, and the block or message that showed it to the model."""

    id: str
    payload: JSON
    shown: JSON
    status: str = "ok"
    failure: Failure | None = None
    tools: tuple[str, ...] | None = None
    """The tools that a search found."""
    evidence: Mapping[str, Any] = field(default_factory=dict)
    """Further members of the row that the log itself records, such as ``observation``."""


@dataclass(frozen=True, slots=True)
class Offer:
    """The tools of a request, as documents of the specification, and a digest of each schema."""

    documents: Mapping[str, Any]
    digests: Mapping[str, str]
    """The digest of each document."""
    schemas: Mapping[str, str]
    kinds: Mapping[str, str]
    """Kinds other than ``function``, by the name of the tool."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a request adds to a thread."""

    thread: int
    view: str
    """The digest of its message list."""
    queue: str
    """The digest of its system and reminder texts."""
    results: tuple[Result, ...] = ()
    speaks: bool = False
    """Whether the user says something new."""
    echoes: bool = False
    """Whether it holds the last reply, so that what follows comes after that reply."""
    repeats: bool = False
    """Whether it is the same request once more, and adds nothing."""
    model: str | None = None
    offer: Offer | None = None
    choice: JSON = None
    """``toolChoice``, in the words of the specification."""
    transport: Mapping[str, Any] | None = None
    """``toolTransportPolicy``, as far as the request sets it."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What a model answered: texts, calls, and results of calls that the provider ran."""

    thread: int
    line: int
    parts: tuple[str | Call | Result, ...]
    stop: str | None
    """The stop reason in the words of the specification, another word of the provider, or None if none is recorded."""
    model: str | None = None
    offer: Offer | None = None
    """The tools that there were, in logs that hold no requests to a model."""


Event: TypeAlias = Prompt | Reply
