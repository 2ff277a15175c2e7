"""The typed error of a tool result: a code, whether to retry, and the digest of a message.

All three parts are owed. They may stand on the row itself or in the raw error of a provider, under the names that
providers use. What is missing is filled in, so that every error row has a normal form; and it is named, because an
error whose gaps were filled is still no typed error.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

from manglecp.base.digest import digest_text
from manglecp.harness.reading import Computed, Flag, Limits, Member, Read, Record, Text, a_text, member, reader_of

__all__ = ["ERROR_MEMBERS", "ErrorEnvelope", "read_envelope", "speaks_of_an_error"]

ERROR_MEMBERS: Final = ("errorCode", "retryable", "errorMessage", "errorMessageDigest", "rawError", "errorSummary")
"""The members of a row that speak of an error."""

_NO_CODE: Final = "unknown_error"


class ErrorEnvelope(Record, frozen=True):
    """The error of a result. One with ``gaps`` has its normal form, and is no typed error."""

    error_code: str
    retryable: bool
    error_message_digest: str
    gaps: tuple[str, ...] = ()
    """The parts that were filled in."""
    error_summary_digest: str | None = None


def _first_there(first: str, second: str) -> Computed:
    """As upstream hashes it: a first name that is there hides the second one, even if it is blank."""

    def read(row: dict[str, Any], limits: Limits) -> str | None:
        return member(row, second if row.get(first) is None else first, a_text, limits)

    return Computed(read)


class _RawError(Record, frozen=True):
    error_code: Text = None
    code: Text = None
    retryable: Flag = None
    error_message: Text = None
    message: Text = None
    hashed_code: Annotated[str | None, _first_there("errorCode", "code")] = None
    hashed_message: Annotated[str | None, _first_there("errorMessage", "message")] = None


_read_raw: Final[Read[_RawError]] = reader_of(_RawError)


def _raw_error(value: Any, limits: Limits) -> _RawError | None:
    return _read_raw(value, limits) if isinstance(value, dict) else None  # prose is no error object


class _ErrorMembers(Record, frozen=True):
    error_code: Text = None
    retryable: Flag = None
    error_message: Text = None
    error_message_digest: Text = None
    error_summary: Text = None
    raw_error: Annotated[_RawError, Member(_raw_error)] = _RawError()


_read_members: Final[Read[_ErrorMembers]] = reader_of(_ErrorMembers)


def speaks_of_an_error(row: dict[str, Any], limits: Limits) -> bool:
    """Is a member of an error given? What is blank or of another kind is not."""
    if all(row.get(name) is None for name in ERROR_MEMBERS):
        return False
    found = _read_members(row, limits)
    return found != _ErrorMembers() or isinstance(row.get("rawError"), dict)


def read_envelope(row: dict[str, Any], limits: Limits) -> ErrorEnvelope:
    """The envelope of a row that is an error."""
    found = _read_members(row, limits)
    raw = found.raw_error
    retryable = raw.retryable if found.retryable is None else found.retryable
    text = found.error_message or raw.hashed_message
    given = {
        "errorCode": found.error_code or raw.error_code or raw.code,
        "retryable": retryable is not None,
        "errorMessage": found.error_message or found.error_message_digest or raw.error_message or raw.message,
    }
    return ErrorEnvelope(
        error_code=found.error_code or raw.hashed_code or _NO_CODE,
        retryable=retryable is True,
        error_message_digest=digest_text(text) if text else found.error_message_digest or digest_text(""),
        gaps=tuple(name for name, value in given.items() if not value),
        error_summary_digest=None if found.error_summary is None else digest_text(found.error_summary),
    )
