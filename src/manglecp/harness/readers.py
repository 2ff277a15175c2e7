"""Readers convert untrusted JSON to typed, normalised values.

The annotations of a :class:`JsonRecord` define how each member is read; :func:`reader_of` compiles them. A list or an
object in the place of another type makes the document unreadable (:class:`InvalidEvidence`). A scalar that is absent,
null, blank or of the wrong type counts as *not given*: its reader returns None, and the checks decide whether the
value is needed. Only a field without a default must have a value.

Text is trimmed, words are lower-cased, lists without a meaningful order are sorted and deduplicated. The types
of records limit how deep a document can be nested; constants limit the size of lists, texts and verbatim values
(schemas, policy documents).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from types import NoneType
from typing import Annotated, Any, Final, TypeAlias, TypeVar, get_args

import msgspec

from manglecp.base.json import Uncanonical
from manglecp.base.text import normalize_word, trim
from manglecp.harness.canonical_v1 import canonical


class InvalidEvidence(ValueError):
    """The document is unreadable. ``path`` is the JSON pointer to the unreadable value."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(path, message)
        self.path = path
        self.message = message

    def __str__(self) -> str:
        return f"{self.path or '/'}: {self.message}"

    def inside(self, step: str | int) -> InvalidEvidence:
        """Prepend one key or index to the path, and return this error."""
        self.path = f"/{str(step).replace('~', '~0').replace('/', '~1')}{self.path}"
        self.args = (self.path, self.message)
        return self


_MAX_ENTRIES: Final = 10_000  # in one list or object
_MAX_TEXT_LENGTH: Final = 4 << 20  # characters
_MAX_VERBATIM_BYTES: Final = 16 << 20

T = TypeVar("T")
Reader: TypeAlias = Callable[[Any], T]
"""Returns the typed value of a JSON value, or None if it is not given. Raises :class:`InvalidEvidence`."""


class JsonRecord(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel", forbid_unknown_fields=True):
    """A typed JSON object. Its JSON omits members that were not given."""


@dataclass(frozen=True, slots=True)
class Member:
    """The reader of a field. It gets the member with the field's name or, if ``computed``, the whole object."""

    read: Reader[Any]
    computed: bool = False


def _raise_if_container(value: Any, expected: str) -> None:
    if isinstance(value, (list, tuple, dict)):
        raise InvalidEvidence("", f"{expected} is expected, not {'an object' if isinstance(value, dict) else 'a list'}")


def read_text(value: Any) -> str | None:
    """Return the trimmed text; a blank text counts as not given."""
    if type(value) is not str:
        _raise_if_container(value, "a text")
        return None
    if len(value) > _MAX_TEXT_LENGTH:
        raise InvalidEvidence("", f"a text of {len(value):,} characters; at most {_MAX_TEXT_LENGTH:,} are read")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise InvalidEvidence("", "a lone surrogate") from None
    return trim(value) or None


def read_word(value: Any) -> str | None:
    """Return a word of a vocabulary: trimmed, in lower case."""
    text = read_text(value)
    return None if text is None else normalize_word(text)


def read_flag(value: Any) -> bool | None:
    """Return a boolean; numbers and texts count as not given."""
    if type(value) is not bool:
        _raise_if_container(value, "true or false")
        return None
    return value


def read_integer(value: Any) -> int | None:
    """Return a 64-bit integer; a larger integer counts as not given."""
    if type(value) is not int:
        _raise_if_container(value, "a number")
        return None
    return value if -(2**63) <= value < 2**63 else None


def _read_number(value: Any) -> float | None:
    number = value if type(value) is float else read_integer(value)
    return None if number is None or not math.isfinite(number) else float(number)


def _check_container(value: Any, expected: str, types: type[Any] | tuple[type[Any], ...]) -> None:
    if not isinstance(value, types):
        raise InvalidEvidence("", f"{expected} is expected")
    if len(value) > _MAX_ENTRIES:
        raise InvalidEvidence("", f"{len(value):,} entries; at most {_MAX_ENTRIES:,} are read")


def _read_at(step: str | int, read: Reader[T | None], value: Any) -> T | None:
    """Return the value that ``read`` returns; null counts as not given. The path of an error begins with ``step``."""
    try:
        return None if value is None else read(value)
    except InvalidEvidence as error:
        raise error.inside(step) from None


def list_of(read: Reader[T | None]) -> Reader[tuple[T, ...]]:
    """Return a reader of a list in its order, without the entries that are not given."""

    def read_each(value: Any) -> tuple[T, ...]:
        _check_container(value, "a list", (list, tuple))
        items = (_read_at(index, read, entry) for index, entry in enumerate(value))
        return tuple(item for item in items if item is not None)

    return read_each


def _sorted_reader(read: Reader[tuple[Any, ...]], distinct: bool) -> Reader[tuple[Any, ...]]:
    """Return a reader that sorts the list; with ``distinct`` it also removes duplicates."""

    def read_sorted(value: Any) -> tuple[Any, ...]:
        items = read(value)
        return tuple(sorted(set(items) if distinct else items))

    return read_sorted


def mapping_of(read: Reader[T | None], words: bool = False) -> Reader[dict[str, T]]:
    """Return a reader of an object with arbitrary keys and values of one kind; with ``words``, keys are lower-cased."""
    read_key = read_word if words else read_text

    def read_by_name(value: Any) -> dict[str, T]:
        _check_container(value, "an object", dict)
        items: dict[str, T] = {}
        for name, entry in value.items():
            key, item = _read_at(name, read_key, name), _read_at(name, read, entry)
            if key is not None and item is not None and items.setdefault(key, item) != item:
                raise InvalidEvidence("", "is present twice, with different values").inside(name)
        return items

    return read_by_name


def canonical_form(value: Any) -> bytes:
    """Return the canonical JSON. Raises :class:`InvalidEvidence` if there is none, or it is too long."""
    try:
        form = canonical(value)
    except Uncanonical as error:
        raise InvalidEvidence(error.path, error.reason) from None
    if len(form) > _MAX_VERBATIM_BYTES:
        raise InvalidEvidence("", f"{len(form):,} bytes; at most {_MAX_VERBATIM_BYTES:,} are read")
    return form


def read_verbatim(value: Any) -> Any:
    """Return an object unchanged. It must have a canonical form, because it enters a digest."""
    _check_container(value, "an object", dict)
    canonical_form(value)
    return value


_texts: Final = list_of(read_text)
_words: Final = list_of(read_word)
read_texts: Final = _sorted_reader(_texts, distinct=True)
read_words: Final = _sorted_reader(_words, distinct=True)
read_words_by_word: Final = mapping_of(read_word, words=True)
read_words_by_name: Final = mapping_of(read_words)
read_numbers_by_name: Final = mapping_of(_read_number)

Text: TypeAlias = Annotated[str | None, Member(read_text)]
Word: TypeAlias = Annotated[str | None, Member(read_word)]  # a word of a vocabulary, in lower case
RequiredText: TypeAlias = Annotated[str, Member(read_text)]
RequiredWord: TypeAlias = Annotated[str, Member(read_word)]
Flag: TypeAlias = Annotated[bool | None, Member(read_flag)]
Integer: TypeAlias = Annotated[int | None, Member(read_integer)]
Texts: TypeAlias = Annotated[tuple[str, ...], Member(read_texts)]  # a set of texts; empty if not given
OptionalTexts: TypeAlias = Annotated[tuple[str, ...] | None, Member(read_texts)]
"""A set of texts; None if not given."""
OptionalWords: TypeAlias = Annotated[tuple[str, ...] | None, Member(read_words)]
Multiset: TypeAlias = Annotated[tuple[str, ...], Member(_sorted_reader(_texts, distinct=False))]
"""Sorted texts, with repetitions."""
OrderedWords: TypeAlias = Annotated[tuple[str, ...] | None, Member(_words)]  # words in their order
NumbersByName: TypeAlias = Annotated[dict[str, float] | None, Member(read_numbers_by_name)]
VerbatimObject: TypeAlias = Annotated[dict[str, Any] | None, Member(read_verbatim)]

R = TypeVar("R", bound=JsonRecord)


def reader_of(kind: type[R]) -> Reader[R]:
    """Return the reader that the annotations of a record define."""
    read: Reader[R] = _reader_of(kind)
    return read


@cache  # evaluating annotations is slow, and several records contain the same type
def _reader_of(kind: type[Any]) -> Reader[Any]:
    fields = [(field.encode_name, field.default, _member_of(field.type)) for field in msgspec.structs.fields(kind)]

    def read(value: Any) -> Any:
        if not isinstance(value, dict):
            raise InvalidEvidence("", "an object is expected")
        items = []
        for name, default, source in fields:
            if source.computed:
                items.append(source.read(value))
                continue
            item = _read_at(name, source.read, value[name]) if name in value else None
            if item is None and default is msgspec.NODEFAULT:
                reason = "is absent" if value.get(name) is None else "is blank or not a text"
                raise InvalidEvidence(f"/{name}", reason)
            items.append(default if item is None else item)
        return kind(*items)

    return read


def _member_of(annotation: Any) -> Member:
    """Return the Member of an annotation; for a record type without one, the reader of that record."""
    for metadata in getattr(annotation, "__metadata__", ()):
        if isinstance(metadata, Member):
            return metadata
    (kind,) = set(get_args(annotation) or (annotation,)) - {NoneType}
    return Member(_reader_of(kind))


def member_readers(kind: type[JsonRecord]) -> dict[str, tuple[str, Reader[Any]]]:
    """Return the field name and the reader of each member, by member name. The record must not have computed fields."""
    return {field.encode_name: (field.name, _member_of(field.type).read) for field in msgspec.structs.fields(kind)}


def read_member(value: Mapping[str, Any], name: str, read: Reader[T | None]) -> T | None:
    """Return the value that ``read`` returns for a member; None if it is absent. Raises :class:`InvalidEvidence`."""
    return _read_at(name, read, value.get(name))
