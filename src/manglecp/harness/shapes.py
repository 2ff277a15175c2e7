"""Texts that differ in names only: their shape, and what follows from any text of that shape.

A *name* is a run of 32 or more hexadecimal digits: a digest, or an id that somebody drew. A text is taken apart into
its names and what stands between them. Two texts have the same *shape* if they are the same between their names, and
the same names stand in the same places: the third is the first again, the others are all different. Names that are
*fixed* (they stand in what texts are compared with) are part of the text.

What is worked out of a text by way of digests is told by its shape: each digest is the hash of a *template*, a text
with places for names and for digests before it, and so is all that is said in the end. Whether that holds for what
somebody works out is theirs to make sure; here is only how it is told. Names after a certain *mark* may be put in order
on the way: there the least comes first, whichever it is. They have to be all that stands there, up to a quotation mark.

A shape asks that a text is equal to its own template, filled with what stands in it. So nothing is parsed.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from operator import itemgetter
from struct import Struct
from threading import Lock
from typing import Any, Final, NamedTuple

from manglecp.harness.patterns import Pattern

__all__ = ["Filled", "Shape", "Shapes", "Template", "Unclear", "mark_of", "names_in", "spans_of"]

DIGITS: Final = b"0123456789abcdef"
_LEAST: Final = 32
_KINDS: Final = bytes(ord("h") if byte in DIGITS else ord(".") for byte in range(256))
_NAME: Final = re.compile(b"h" * _LEAST + b"h*")
_NAME_IN_ANY_CASE: Final = re.compile(rb"[0-9A-Fa-f]{%d,}" % _LEAST)
_END: Final = b'"'
"""Of a text in JSON."""
_ALIKE: Final = 8
"""Shapes with the same before them and of the same length, at most: they are tried one by one."""
_SEEN: Final = 1_024
_BYTES_OF_A_PLACE: Final = 16
_BYTES_OF_A_NAME: Final = 96
"""In memory, as measured; beside the places that it has."""
_first: Final = Lock()
"""Of whoever says what the pattern of a template is."""


class Unclear(ValueError):
    """A text whose names cannot be told from the rest of it, or have a meaning of their own."""


def spans_of(text: bytes) -> list[tuple[int, int]]:
    """Where the names of a text begin and end."""
    return [match.span() for match in _NAME.finditer(text.translate(_KINDS))]


def names_in(text: bytes) -> dict[bytes, None]:
    """The names of a text, each once, in their order."""
    return dict.fromkeys(text[start:end] for start, end in spans_of(text))


class _Ordered(NamedTuple):
    """Names that are put in order: what they stand after, and their numbers once they are."""

    mark: bytes
    numbers: Sequence[int] = ()


class Template:
    """A text with places for values."""

    __slots__ = ("_pattern", "_pick", "_text", "places")

    def __init__(self, text: bytes, numbers: Mapping[bytes, int], ordered: _Ordered | None = None) -> None:
        """``numbers`` are those of the names that have places, among the values that will be filled in."""
        between: list[bytes] = []
        places: list[int] = []
        last = marked = 0
        for start, end in spans_of(text):
            number = numbers.get(text[start:end])
            if number is None:
                continue
            if ordered is not None and ordered.numbers and text.endswith(ordered.mark, 0, start):
                if not text.startswith(_END, end):
                    raise Unclear("what stands after a name is put in order with it")
                number = ordered.numbers[marked % len(ordered.numbers)]
                marked += 1
            between.append(text[last:start].replace(b"%", b"%%"))
            places.append(number)
            last = end
        between.append(text[last:].replace(b"%", b"%%"))
        self._text = b"%b".join(between)
        self.places = tuple(places)
        self._pick: Callable[[Sequence[bytes]], Any] = itemgetter(*places) if places else _nothing
        self._pattern: Pattern | None = None

    @property
    def parts(self) -> tuple[bytes, Callable[[Sequence[bytes]], Any]]:
        """The text, and what picks the values that go into it: to fill many templates without calling each."""
        return self._text, self._pick

    @property
    def size(self) -> int:
        """In memory, roughly: a place takes more than what stands for it in the text."""
        return len(self._text) + _BYTES_OF_A_PLACE * len(self.places)

    def fill(self, values: Sequence[bytes]) -> bytes:
        """The text with these values in its places."""
        filled: bytes = self._text % self._pick(values)
        return filled

    @property
    def pieces(self) -> list[bytes]:
        """What stands between the places of a JSON text: no such text has the sign that is filled in here."""
        filled: bytes = self._text % ((b"\0",) * len(self.places))
        return filled.split(b"\0")

    def pattern(self, values: Sequence[bytes]) -> Pattern:
        """What the texts have in common that have names of the same lengths; found out when it is first asked for."""
        found = self._pattern
        if found is None:
            made = Pattern(self.pieces, self.places, values)
            with _first:  # another thread may have found another one, of names of other lengths: one of them stays
                found = self._pattern = self._pattern or made
        return found


def _nothing(_: Sequence[bytes]) -> tuple[bytes, ...]:
    return ()


class Filled(NamedTuple):
    """A JSON text, by what it has in common with others and what is its own."""

    template: Template
    values: Sequence[bytes]

    @property
    def text(self) -> bytes:
        """The text itself."""
        return self.template.fill(self.values)

    @property
    def pattern(self) -> Pattern:
        """What it has in common with others, if they have names of the same lengths."""
        return self.template.pattern(self.values)

    @property
    def names(self) -> bytes | None:
        """What is its own, beside the pattern; None if it does not follow the pattern."""
        return self.pattern.names(self.values)

    @property
    def written_pattern(self) -> bytes:
        """The pattern as JSON."""
        return self.pattern.written(self.template.pieces, self.template.places)


class Shape:
    """What texts have in common that come after texts of the shape ``before``; None if they come first.

    It is learnt of one of them. ``values`` are what :meth:`match` made of the texts before it; ``preimages`` are what
    was hashed on the way to what is ``told``, in their order; names after the ``mark`` are put in order before.
    """

    __slots__ = ("_fresh", "_hashed", "_ordered", "_repeated", "_text", "before", "fixed", "size", "steps", "told")

    def __init__(
        self,
        before: Shape | None,
        values: Sequence[bytes],
        text: bytes,
        *,
        fixed: frozenset[bytes],
        preimages: Iterable[bytes] = (),
        told: Iterable[bytes] = (),
        mark: bytes = b"",
    ) -> None:
        spans = spans_of(text)
        if [match.span() for match in _NAME_IN_ANY_CASE.finditer(text)] != spans:
            raise Unclear("digits in capitals may be the same name in another place")
        numbers: dict[bytes, int] = {}
        for number, name in enumerate(values):
            numbers.setdefault(name, number)
        count, fresh, last = len(values), [], 0
        ordered: list[int] = []
        for start, end in spans:
            name = text[start:end]
            if name not in fixed and name not in numbers:
                numbers[name] = count
                count += 1
                fresh.append(f"{start - last}x{end - start}s")
                last = end
            if mark and text.endswith(mark, 0, start):
                if name in fixed:
                    raise Unclear("a fixed name is put in order with others")
                ordered.append(numbers[name])
        self.before = before
        self.steps: int = 0 if before is None else before.steps + 1
        """How many texts there are up to this one."""
        self.fixed = fixed
        self._fresh = Struct("".join(fresh) + f"{len(text) - last}x")
        self._text = Template(text, numbers)
        self._ordered = tuple(ordered)
        self._repeated: int = len(ordered) + (0 if before is None else before._repeated)
        """How many of the values are there a second time, in their order."""
        arranged = _Ordered(mark, range(count, count + len(ordered)))
        hashed = _hashed(preimages, numbers, count + len(ordered), fixed, arranged)
        self._hashed = tuple(template.parts for template in hashed)
        self.told = tuple(Template(one, numbers, arranged) for one in told)
        templates = (self._text, *hashed, *self.told)
        self.size = _BYTES_OF_A_NAME * len(fresh) + sum(template.size for template in templates)

    def match(self, values: Sequence[bytes], text: bytes) -> list[bytes] | None:
        """The values that a text of this shape and those before it come to; None if it is of another.

        The text has to have the length of the one that the shape was learnt of.
        """
        fresh = self._fresh.unpack(text)
        found = [*values, *fresh]
        if self._text.fill(found) != text or b"".join(fresh).translate(None, DIGITS):
            return None
        return self.complete(found)

    def text(self, values: Sequence[bytes]) -> bytes:
        """The text that came to these values."""
        return self._text.fill(values)

    def complete(self, found: list[bytes]) -> list[bytes] | None:
        """The same of a text whose names are there already: what is put in order and what is hashed is added."""
        if self._ordered:
            found += sorted([found[number] for number in self._ordered])
        add = found.append
        for template, pick in self._hashed:
            add(sha256(template % pick(found)).hexdigest().encode())
        distinct = len(set(found)) == len(found) - self._repeated
        return found if distinct and self.fixed.isdisjoint(found) else None

    @property
    def length(self) -> int:
        """Of its text."""
        return self._fresh.size

    @property
    def places(self) -> tuple[int, ...]:
        """The numbers of the values that stand in its text, in their order."""
        return self._text.places


def _hashed(
    preimages: Iterable[bytes], numbers: dict[bytes, int], count: int, fixed: frozenset[bytes], ordered: _Ordered
) -> tuple[Template, ...]:
    """The templates of what was hashed; the digests get numbers, too."""
    found: list[Template] = []
    known: set[bytes] = set()
    for preimage in preimages:
        digest = sha256(preimage).hexdigest().encode()
        if digest in known:
            continue
        known.add(digest)
        template = Template(preimage, numbers, ordered)
        if not template.places:
            continue  # the same for every text
        if digest in numbers or digest in fixed:
            raise Unclear("a digest is there before what it is the digest of")
        numbers[digest] = count + len(found)
        found.append(template)
    return tuple(found)


class Shapes:
    """Some shapes, by what is before them, a word and the length of their texts: what came last stays.

    Any thread may ask.
    """

    def __init__(self, *, most: int, most_bytes: int) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._known: OrderedDict[tuple[Shape, str, int], tuple[Shape, ...]] = OrderedDict()
        self._seen: OrderedDict[int, bool | None] = OrderedDict()
        """Marks of texts whose shapes are not known, and whether that is how it stays."""
        self._count = 0
        self._bytes = 0
        self._lock = Lock()

    def find(self, before: Shape, kind: str, values: Sequence[bytes], text: bytes) -> tuple[Shape, list[bytes]] | None:
        """The shape of a text, and the values that it comes to."""
        key = (before, kind, len(text))
        with self._lock:
            known = self._known.get(key)
            if known is None:
                return None
            self._known.move_to_end(key)
        for shape in known:
            found = shape.match(values, text)
            if found is not None:
                return shape, found
        return None

    def again(self, mark: int) -> bool:
        """Was a text with this mark there before, lately, and is it not refused? Then it is time to learn its shape."""
        with self._lock:
            refused = self._seen.setdefault(mark, None)
            if refused is None:
                self._seen[mark] = False
                if len(self._seen) > _SEEN:
                    self._seen.popitem(last=False)
            else:
                self._seen.move_to_end(mark)
            return refused is False

    def refuse(self, mark: int) -> None:
        """What follows from a text with this mark does not follow from its shape."""
        with self._lock:
            self._seen[mark] = True

    def keep(self, kind: str, length: int, shape: Shape, mark: int | None = None) -> None:
        """From now on texts of this shape are found."""
        assert shape.before is not None
        key = (shape.before, kind, length)
        with self._lock:
            if mark is not None:
                self._seen.pop(mark, None)
            known = self._known.get(key, ())
            self._known[key] = kept = (shape, *known)[:_ALIKE]
            self._known.move_to_end(key)
            self._forget(known)
            self._count += len(kept)
            self._bytes += sum(one.size for one in kept)
            while self._count > self._most or self._bytes > self._most_bytes:
                self._forget(self._known.popitem(last=False)[1])

    def _forget(self, shapes: tuple[Shape, ...]) -> None:
        self._count -= len(shapes)
        self._bytes -= sum(one.size for one in shapes)


def mark_of(before: Shape, kind: str, values: Sequence[bytes], text: bytes, fixed: frozenset[bytes]) -> int:
    """The same for texts of one shape, and for much less than to learn the shape: most come once, and never again."""
    numbers: dict[bytes, int] = {}
    for value in values:
        numbers.setdefault(value, len(numbers))
    between, places, last = [], [], 0
    for start, end in spans_of(text):
        name = text[start:end]
        places.append(name if name in fixed else numbers.setdefault(name, len(numbers)))
        between.append(text[last:start])
        last = end
    return hash((before, kind, tuple(between), text[last:], tuple(places)))
