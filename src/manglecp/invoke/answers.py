"""The answer of a run as it is kept for whoever asks again: the payload of a response, or an error."""

from __future__ import annotations

from typing import Any

import msgspec

from manglecp.wire import WireError
from manglecp.wire.messages import InvokeResult

__all__ = ["Answer", "decoded", "encoded"]

Answer = InvokeResult | WireError


class _Kept(msgspec.Struct, frozen=True, omit_defaults=True):
    result: InvokeResult | None = None
    code: str | None = None
    message: str = ""
    details: dict[str, Any] | None = None
    retry_after_ms: int | None = None


_encode = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(_Kept)


def encoded(answer: Answer) -> bytes:
    """The bytes that :func:`decoded` reads."""
    if isinstance(answer, InvokeResult):
        return _encode(_Kept(result=answer))
    details = None if answer.details is None else dict(answer.details)
    return _encode(
        _Kept(code=answer.code, message=answer.message, details=details, retry_after_ms=answer.retry_after_ms)
    )


def decoded(kept: bytes) -> Answer:
    """The answer as it was first given."""
    found = _decoder.decode(kept)
    if found.result is not None:
        return found.result
    assert found.code is not None  # one of the two
    return WireError(found.code, found.message, found.details, retry_after_ms=found.retry_after_ms)
