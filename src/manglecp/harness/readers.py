"""Readers convert untrusted JSON to typed, normalised values.

The annotations of a :class:`JsonRecord` define how each member is read; :func:`reader_of` compiles them. A list or an
object in the place of another type makes the document unreadable (:class:`InvalidEvidence`). A scalar that is absent,
null, blank or of the wrong type counts as *not given*, for which a reader returns None; the checks decide whether that
matters. Only a field without a default must be given.

Text is trimmed, words are lower-cased, lists without a meaningful order are sorted and deduplicated. The depth is
bounded by the types, the size of lists, texts and verbatim values (schemas, policy documents) by limits.
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
    """The document is unreadable. ``path`` is the JSON pointer to the reason."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(path, message)
        self.path = path
        self.message = message

    def __str__(self) -> str:
        return f"{self.path or '/'}: {self.message}"

    def under(self, step: str | int) -> InvalidEvidence:
        """Prepend one key or index to the path, and return this error."""
        self.path = f"/{str(step).replace('~', '~0').replace('/', '~1')}{self.path}"
        self.args = (self.path, self.message)
        return self


_MAX_ENTRIES: Final = 10_000  # of one list or object
_MAX_TEXT_LENGTH: Final = 4 << 20  # characters
_MAX_VERBATIM_BYTES: Final = 16 << 20

T = TypeVar("T")
Reader: TypeAlias = Callable[[Any], T]
"""Returns the typed value of a JSON value, or None if it is not given. Raises :class:`InvalidEvidence`."""


class JsonRecord(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel", forbid_unknown_fields=True):
    """A typed JSON object. Its JSON omits members that were not given."""


@dataclass(frozen=True, slots=True)
class Member:
    """A field read from the member of its name. It is required if it has no default."""

    read: Reader[Any]


@dataclass(frozen=True, slots=True)
class ComputedMember:
    """A field computed from several members of the object."""

    read: Reader[Any]


def _refuse_container(value: Any, expected: str) -> None:
    if isinstance(value, (list, tuple, dict)):
        raise InvalidEvidence("", f"{expected} is expected, not {'an object' if isinstance(value, dict) else 'a list'}")


def read_text(value: Any) -> str | None:
    """Return the trimmed text; a blank one counts as not given."""
    if type(value) is not str:
        _refuse_container(value, "a text")
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
        _refuse_container(value, "true or false")
        return None
    return value


def read_integer(value: Any) -> int | None:
    """Return a 64-bit integer; a larger one counts as not given."""
    if type(value) is not int:
        _refuse_container(value, "a number")
        return None
    return value if -(2**63) <= value < 2**63 else None


def _read_number(value: Any) -> float | None:
    number = value if type(value) is float else read_integer(value)
    return None if number is None or not math.isfinite(number) else float(number)


def checked_list(value: Any) -> list[Any] | tuple[Any, ...]:
    """Return the list. Raises :class:`InvalidEvidence` for other types and for too many entries."""
    if not isinstance(value, (list, tuple)):
        raise InvalidEvidence("", "a list is expected")
    if len(value) > _MAX_ENTRIES:
        raise InvalidEvidence("", f"{len(value):,} entries; at most {_MAX_ENTRIES:,} are read")
    return value


def _checked_object(value: Any) -> dict[Any, Any]:
    if not isinstance(value, dict):
        raise InvalidEvidence("", "an object is expected")
    if len(value) > _MAX_ENTRIES:
        raise InvalidEvidence("", f"{len(value):,} members; at most {_MAX_ENTRIES:,} are read")
    return value


def list_of(read: Reader[T | None]) -> Reader[tuple[T, ...]]:
    """Return a reader of a list in its order, without the entries that are not given."""

    def read_each(value: Any) -> tuple[T, ...]:
        items = []
        for index, entry in enumerate(checked_list(value)):
            if entry is None:
                continue
            try:
                item = read(entry)
            except InvalidEvidence as error:
                raise error.under(index) from None
            if item is not None:
                items.append(item)
        return tuple(items)

    return read_each


def _sorted(read: Reader[tuple[Any, ...]], distinct: bool) -> Reader[tuple[Any, ...]]:
    """Return a reader that sorts the list; with ``distinct`` it also removes duplicates."""

    def read_sorted(value: Any) -> tuple[Any, ...]:
        items = read(value)
        return tuple(sorted(set(items) if distinct else items))

    return read_sorted


def mapping_of(read: Reader[T | None], words: bool = False) -> Reader[dict[str, T]]:
    """Return a reader of an object with arbitrary keys and values of one kind; with ``words``, keys are lower-cased."""
    read_key = read_word if words else read_text

    def read_by_name(value: Any) -> dict[str, T]:
        items: dict[str, T] = {}
        for name, entry in _checked_object(value).items():
            try:
                key = read_key(name)
                item = None if entry is None else read(entry)
            except InvalidEvidence as error:
                raise error.under(name) from None
            if key is None or item is None:
                continue
            if items.setdefault(key, item) != item:
                raise InvalidEvidence("", "is present twice, with different values").under(name)
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
    canonical_form(_checked_object(value))
    return value


_texts: Final = list_of(read_text)
_words: Final = list_of(read_word)
read_texts: Final = _sorted(_texts, distinct=True)
read_words: Final = _sorted(_words, distinct=True)
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
"""A set of texts that may also not be given."""
OptionalWords: TypeAlias = Annotated[tuple[str, ...] | None, Member(read_words)]
Multiset: TypeAlias = Annotated[tuple[str, ...], Member(_sorted(_texts, distinct=False))]
"""Sorted texts, of which several may be equal."""
OrderedWords: TypeAlias = Annotated[tuple[str, ...] | None, Member(_words)]  # words in their order
NumbersByName: TypeAlias = Annotated[dict[str, float] | None, Member(read_numbers_by_name)]
VerbatimObject: TypeAlias = Annotated[dict[str, Any] | None, Member(read_verbatim)]

R = TypeVar("R", bound=JsonRecord)


def reader_of(kind: type[R]) -> Reader[R]:
    """Return the reader that the annotations of a record define."""
    read: Reader[R] = _reader_of(kind)
    return read


@cache  # evaluating annotations is slow, and records refer to one another
def _reader_of(kind: type[Any]) -> Reader[Any]:
    members: dict[str, tuple[int, Reader[Any]]] = {}  # member name -> (index of the field, reader)
    computed: list[tuple[int, Reader[Any]]] = []  # (index of the field, reader)
    required: list[tuple[int, str]] = []  # (index of the field, member name)
    defaults: list[Any] = []  # by index of the field
    for index, field in enumerate(msgspec.structs.fields(kind)):
        source = _source_of(field.type)
        is_required = field.default is msgspec.NODEFAULT
        defaults.append(None if is_required else field.default)
        if isinstance(source, ComputedMember):
            computed.append((index, source.read))
            continue
        members[field.encode_name] = index, source.read
        if is_required:
            required.append((index, field.encode_name))

    def read(value: Any) -> Any:
        if not isinstance(value, dict):
            raise InvalidEvidence("", "an object is expected")
        for _, name in required:  # before all else: the error must not depend on the order of the members
            if value.get(name) is None:
                raise InvalidEvidence("", "is absent").under(name)
        fields = defaults.copy()
        for name, member in value.items():  # faster than a loop over the fields: most have no member
            if member is None or name not in members:
                continue
            index, read_value = members[name]
            try:
                item = read_value(member)
            except InvalidEvidence as error:
                raise error.under(name) from None
            if item is not None:
                fields[index] = item
        for index, name in required:
            if fields[index] is None:
                raise InvalidEvidence("", "is blank or not a text").under(name)
        for index, read_object in computed:
            fields[index] = read_object(value)
        return kind(*fields)

    return read


def _source_of(annotation: Any) -> Member | ComputedMember:
    """Return the Member or ComputedMember of an annotation; a plain record type is read by its own annotations."""
    for metadata in getattr(annotation, "__metadata__", ()):
        if isinstance(metadata, (Member, ComputedMember)):
            return metadata
    (kind,) = set(get_args(annotation) or (annotation,)) - {NoneType}
    return Member(_reader_of(kind))


def member_readers(kind: type[JsonRecord]) -> dict[str, tuple[str, Reader[Any]]]:
    """Return the field name and the reader of each member, by its name. The record must not have computed fields."""
    return {field.encode_name: (field.name, _source_of(field.type).read) for field in msgspec.structs.fields(kind)}


def read_member(value: Mapping[str, Any], name: str, read: Reader[T | None]) -> T | None:
    """Return the value that ``read`` returns for a member; None if it is absent. Raises :class:`InvalidEvidence`."""
    member = value.get(name)
    if member is None:
        return None
    try:
        return read(member)
    except InvalidEvidence as error:
        raise error.under(name) from None
