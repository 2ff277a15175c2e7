"""Redaction by value: replaces secret values in texts and JSON documents by ``[secret NAME]``.

A value, and each line of a value, is found as plain text, in lower case, and in the usual encodings: JSON (also inside
JSON), ``repr``, URL and base64 (also inside a longer base64 text). Redaction prevents accidents, not malice: code that
has a value can encode the value in a form that is not found.
"""

from __future__ import annotations

import json
import threading
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote, quote_plus
from weakref import WeakSet

MIN_LENGTH: Final = 8  # characters; redacting a shorter value would garble texts that contain it by chance
_MIN_TRUNCATED: Final = 200  # characters; a shorter text was not truncated by a host
_MIN_EDGE: Final = 4  # characters of a value that are recognised at the end of a truncated text


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class SecretValue:
    """A value with the name of its secret."""

    name: str
    text: str = field(repr=False)


class Redactor:
    """Redacts each added value for as long as an object refers to the value. Thread-safe."""

    def __init__(self) -> None:
        self._values: WeakSet[SecretValue] = WeakSet()
        self._lock = threading.Lock()
        self._forms: dict[str, str] = {}  # replacements by the form of a value, the longest form first
        self._escaped_forms: tuple[str, ...] = ()  # the forms as they may appear in JSON text

    def add(self, value: SecretValue) -> None:
        with self._lock:
            self._values.add(value)
            marks = {form: f"[secret {each.name}]" for each in self._values for form in _forms_of(each.text)}
            self._escaped_forms = tuple(_escape(marks))
            self._forms = dict(sorted(marks.items(), key=lambda item: -len(item[0])))

    def text(self, text: str, *, truncated: bool = False) -> str:
        """Return the text without values; if it is ``truncated``, also without parts of values at its ends."""
        for form, mark in self._forms.items():
            if form in text:
                text = text.replace(form, mark)
        if truncated and len(text) >= _MIN_TRUNCATED:
            for form, mark in self._forms.items():
                text = _redact_edges(text, form, mark)
        return text

    def json_text(self, text: str) -> str:
        """Return JSON text without values in its strings, names and integers; a text without values is not changed."""
        if not any(form in text for form in self._escaped_forms):
            return text
        try:
            document = json.loads(text)
            redacted = self._redact(document)
            return text if redacted == document else json.dumps(redacted, ensure_ascii=False, separators=(",", ":"))
        except (ValueError, RecursionError):  # no JSON, or nested too deeply
            return self.text(text)

    def answer(self, document: dict[str, Any]) -> dict[str, Any]:
        """Return an answer or a report of a host without secret values. Members named ``…_json`` contain JSON text."""
        return {name: self._redact(value, name) for name, value in document.items()} if self._forms else document

    def _redact(self, value: Any, member: str | None = None) -> Any:
        """Return a JSON value without secret values.

        ``member`` is the name of the member of a host's answer that contains the value; hosts truncate such texts.
        """
        match value:
            case str() if member is not None and member.endswith("_json"):
                return self.json_text(value)
            case str():
                return self.text(value, truncated=member is not None)
            case dict():
                return {self.text(name): self._redact(item, member and name) for name, item in value.items()}
            case list():
                return [self._redact(item, member) for item in value]
            case int():
                return self._forms.get(str(value), value)
        return value


def _forms_of(text: str) -> set[str]:
    """Return the forms in which a value may appear in a text, including JSON inside JSON."""
    return _escape(_escape(_encode(text)))


def _encode(text: str) -> Iterator[str]:
    data = text.encode()
    yield from (line for line in text.splitlines() if len(line) >= MIN_LENGTH)
    yield from (repr(text)[1:-1], ascii(text)[1:-1], repr(data)[2:-1])
    yield from (text, quote(text), quote(text, safe=""), quote_plus(text), text.lower())  # as in the name of a host
    for offset, start in ((0, 0), (1, 2), (2, 3)):  # bytes before the value, and characters that depend on them
        end = -1 if (offset + len(data)) % 3 else None  # the last character depends on the byte after the value
        for encode in (b64encode, urlsafe_b64encode):
            yield encode(bytes(offset) + data).decode().rstrip("=")[start:end]


def _escape(forms: Iterable[str]) -> set[str]:
    """Return the forms, unchanged and as written inside a JSON string."""
    plain = set(forms)
    return plain.union(*({json.dumps(form)[1:-1], json.dumps(form, ensure_ascii=False)[1:-1]} for form in plain))


def _redact_edges(text: str, form: str, mark: str) -> str:
    """Replace a beginning of ``form`` at the end of the text, and an end of ``form`` at the start of the text."""
    sizes = range(min(len(form), len(text)) - 1, _MIN_EDGE - 1, -1)
    if form[:_MIN_EDGE] in text[-len(form) :]:
        size = next((size for size in sizes if text.endswith(form[:size])), 0)
        text = text[: len(text) - size] + (mark if size else "")
    if form[-_MIN_EDGE:] in text[: len(form)]:
        size = next((size for size in sizes if text.startswith(form[-size:])), 0)
        text = (mark if size else "") + text[size:]
    return text
