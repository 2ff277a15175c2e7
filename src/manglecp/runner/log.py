"""The run log: one line of canonical JSON per event, each with the hash of the line before.

``chain_prev`` is the ``chain_hash`` of the record before, or 64 zeros; ``chain_hash`` is the SHA-256 of
``chain_prev`` and the record without these two members. Keys are sorted, so both are in the first 161 bytes of a line:
a verifier hashes ``{`` and the rest of the line, and never re-encodes numbers or texts.

Upstream, the Machina runner, has the same format. But a chain alone does not reveal a missing tail, and an attacker can
compute a new chain. So the last record, ``run_end``, counts the records and, if the log has a key, seals them with an
HMAC. Without a key, store :attr:`RunLog.head` elsewhere and verify against it.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Annotated, Any, Final, Protocol

import msgspec

from manglecp.wire import Fault, decode


def canonical(value: Any) -> bytes:
    """Return the bytes of a JSON value in a run log: sorted keys, no spaces, UTF-8. Raises ValueError.

    It is not the canonical form of the harness, which writes some numbers as text: a log must return values unchanged.
    """
    try:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, RecursionError) as error:
        raise ValueError(f"not a JSON value: {error}") from None


def copy_json(value: Any) -> Any:
    """Return a deep copy of a JSON value. Raises ValueError for any other value."""
    try:
        return json.loads(canonical(value))
    except RecursionError as error:
        raise ValueError(f"not a JSON value: {error}") from None


SPEC_VERSION: Final = "1.4.2"  # the version of the Machina process contract
PROFILE_ID: Final = "A"  # the profile of the contract

# A UUID, or a run id of upstream: two 64-bit numbers in hexadecimal, not padded, so mostly 32 digits, sometimes fewer.
_RUN_ID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{2,32}")
_HEADER_TEXT: Final = re.compile(r"[^\x00-\x1f\x7f\ud800-\udfff]{1,256}")
_HEADER_FORMATS: Final = {
    _RUN_ID: "a UUID, or up to 32 hexadecimal digits",
    _HEADER_TEXT: "a text of 1 to 256 characters without control characters",
}


@dataclass(frozen=True, slots=True)
class RunHeader:
    """The members that every record of a run has (section 1 of the Machina process contract).

    ``request_id`` is the caller's trace id.
    """

    run_id: str = ""  # the empty default, for a record without a run id, is refused
    request_id: str | None = None
    spec_version: str = SPEC_VERSION
    profile_id: str = PROFILE_ID

    def __post_init__(self) -> None:
        texts: Mapping[str, object] = self.members()
        for name, text in texts.items():
            pattern = _RUN_ID if name == "run_id" else _HEADER_TEXT
            if not isinstance(text, str) or pattern.fullmatch(text) is None:
                raise RunnerError(f"{name} is not {_HEADER_FORMATS[pattern]}")

    @classmethod
    def new(cls, request_id: str | None = None) -> RunHeader:
        """Return a header with a random run id."""
        return cls(str(uuid.uuid4()), request_id)

    @classmethod
    def read(cls, members: Mapping[str, Any]) -> RunHeader:
        """Return the header of a record; other members are ignored. Raises :class:`RunnerError`."""
        return cls(**{field.name: members[field.name] for field in fields(cls) if field.name in members})

    def members(self) -> dict[str, str]:
        """Return the members for a record; without a request id, ``request_id`` is absent, not null."""
        return {name: text for name, text in asdict(self).items() if text is not None}


GENESIS: Final = "0" * 64  # chain_prev of the first record
END: Final = "run_end"
MAX_LINE_BYTES: Final = 64 * 1024 * 1024
_PREFIX_LENGTH: Final = 161  # bytes that _hash_prefix() returns: two hashes of 64, and 33 of names and punctuation


class Sink(Protocol):
    """Receives the events of a run, in order; ``step`` counts from 0."""

    def write(self, event: str, step: int, payload: Mapping[str, Any]) -> None: ...


class RunLog(AbstractContextManager["RunLog"]):
    """Writes a log. Each record is flushed to the kernel at once, and to the disk when the log is closed.

    ``record_count`` is the number of records, ``head`` the hash of the last one; ``key`` is the secret of the seal.
    """

    def __init__(
        self,
        stream: IO[bytes],
        header: RunHeader,
        *,
        key: bytes | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        if key is not None and not key:
            raise ValueError("the key is empty")
        self._stream = stream
        self._header = header.members()
        self._key = key
        self._clock = clock
        self._has_ended = False
        self.record_count = 0
        self.head = GENESIS

    @classmethod
    def create(cls, path: Path, header: RunHeader, *, key: bytes | None = None) -> RunLog:
        """Create a log file that only this user can read. Raises FileExistsError."""
        if key is not None and not key:
            raise ValueError("the key is empty")  # raised before the file is created
        return cls(os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb"), header, key=key)

    def write(self, event: str, step: int, payload: Mapping[str, Any]) -> None:
        """Append a record. Raises ValueError after ``run_end``, or if the record is too long or not JSON."""
        if self._has_ended:
            raise ValueError("the run has ended")
        members = dict(payload)
        if event == END:
            members["records"] = self.record_count + 1
            if self._key is not None:
                members["seal"] = _seal(self._key, self.head, members)
        ts = self._clock().astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        record = canonical({**self._header, "event": event, "step": step, "payload": members, "ts": ts})
        digest = _chain_hash(self.head, record)
        line = _hash_prefix(digest, self.head) + record[1:] + b"\n"
        if len(line) > MAX_LINE_BYTES:
            raise ValueError(f"the record has more than {MAX_LINE_BYTES} bytes")
        self._stream.write(line)
        self._stream.flush()
        self._has_ended = event == END
        self.record_count += 1
        self.head = digest

    def close(self) -> None:
        """Sync to disk and close. A second call does nothing."""
        if self._stream.closed:
            return
        try:
            self._stream.flush()
            os.fsync(self._stream.fileno())
        except ValueError:
            pass  # a stream in memory has no descriptor
        finally:
            self._stream.close()

    def __exit__(self, *_: object) -> None:
        self.close()


class RunRecord(msgspec.Struct, frozen=True):
    event: str
    step: Annotated[int, msgspec.Meta(ge=0)]
    payload: dict[str, Any]
    ts: str


@dataclass(frozen=True, slots=True)
class VerifiedLog:
    """A log with verified hashes. ``head`` is the hash of the last record."""

    header: RunHeader
    records: tuple[RunRecord, ...]
    head: str


def verify(
    log: Path | Iterable[bytes], *, key: bytes | None = None, head: str | None = None, end_required: bool = True
) -> VerifiedLog:
    """Return the log if all hashes are right. Raises :class:`BrokenLog`.

    With ``key``, the log must have a seal by this key. With ``head``, the last record must have this hash.
    ``end_required=False`` accepts a log without an end record, as upstream writes it; only ``head`` can then reveal a
    missing tail.
    """
    if key is not None and not key:
        raise ValueError("the key is empty")
    prev = GENESIS
    header: RunHeader | None = None
    records: list[RunRecord] = []
    number = 0
    for number, line in enumerate(_read_lines(log) if isinstance(log, Path) else log, 1):
        if records and records[-1].event == END:
            raise BrokenLog(number, "a record follows the end of the run")
        digest, document = _check_link(number, line, prev)
        try:
            record = msgspec.convert(document, RunRecord)
            record_header = RunHeader.read(document)
        except (msgspec.ValidationError, RunnerError) as error:
            raise BrokenLog(number, str(error)) from None
        if header is not None and record_header != header:
            raise BrokenLog(number, "a record of another run")
        if records and record.step < records[-1].step:
            raise BrokenLog(number, "the step is smaller than that of the record before")
        if record.event == END:
            _check_end(number, record, prev, key)
        header = record_header
        records.append(record)
        prev = digest
    if header is None:
        raise BrokenLog(1, "the log is empty")
    if records[-1].event != END and (end_required or key is not None):
        raise BrokenLog(number, "the end of the run is missing; --no-end (end_required=False) accepts that")
    if head is not None and not hmac.compare_digest(head.encode(), prev.encode()):
        raise BrokenLog(number, "the last hash is not the expected head")
    return VerifiedLog(header, tuple(records), prev)


def _read_lines(file: Path) -> Iterator[bytes]:
    with file.open("rb") as stream:
        while line := stream.readline(MAX_LINE_BYTES + 1):  # one byte over the limit: verify() refuses such a line
            yield line


def _check_link(number: int, line: bytes, prev: str) -> tuple[str, dict[str, Any]]:
    """Return the hash and the parsed object of a line whose predecessor has the hash ``prev``. Raises BrokenLog."""
    if len(line) > MAX_LINE_BYTES:
        raise BrokenLog(number, f"longer than {MAX_LINE_BYTES} bytes")
    if not line.endswith(b"\n"):
        raise BrokenLog(number, "the line is incomplete")
    digest = _chain_hash(prev, b"{" + line[_PREFIX_LENGTH:-1])
    if line[:_PREFIX_LENGTH] != _hash_prefix(digest, prev):
        raise BrokenLog(number, "the hash does not match: the line was changed, removed or moved")
    try:
        document = decode(line[:-1])
    except Fault as fault:
        raise BrokenLog(number, str(fault)) from None
    if not isinstance(document, dict):
        raise BrokenLog(number, "the line is not an object")
    return digest, document


def _check_end(number: int, record: RunRecord, prev: str, key: bytes | None) -> None:
    if record.payload.get("records") != number:
        raise BrokenLog(number, "the end record has another number of records than the log")
    if key is None:
        return
    sealed_payload = {name: value for name, value in record.payload.items() if name != "seal"}
    if not hmac.compare_digest(_seal(key, prev, sealed_payload).encode(), str(record.payload.get("seal")).encode()):
        raise BrokenLog(number, "the seal is not by this key")


def _chain_hash(prev: str, record: bytes) -> str:
    return hashlib.sha256(prev.encode() + record).hexdigest()


def _hash_prefix(digest: str, prev: str) -> bytes:
    return f'{{"chain_hash":"{digest}","chain_prev":"{prev}",'.encode()


def _seal(key: bytes, prev: str, payload: Mapping[str, Any]) -> str:
    return hmac.digest(key, b"manglecp run log\n" + prev.encode() + canonical(payload), "sha256").hex()


class RunnerError(ValueError):
    """An invalid input of the runner."""


class PatchRefused(RunnerError):
    """An input patch that is not a JSON object, too large or too deep."""


class PolicyRefused(RunnerError):
    """A policy command that may not be started."""


class BrokenLog(RunnerError):
    """A run log that was changed or is incomplete. ``line`` is the first wrong line, counted from 1."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(f"line {line}: {reason}")
        self.line = line
        self.reason = reason
