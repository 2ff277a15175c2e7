"""Evidence of a kind that somebody makes again and again: they say its words, and the rest of it is known.

A *form* is evidence with places for names (:mod:`.shapes`). Whoever makes evidence of a few words, the same way every
time, has a form made of it: the words are said with other names, and where these stand in the evidence, the names of
any words go. That it is so is tried with a second set of names. After that nothing has to be made: words, all in one
text, stand for the evidence.

Names of words become values of a shape by a *fitting* of the form to it. That is worked out once, of evidence that
matches the shape. Between its names a form says the same every time, and so does a shape. So other evidence of the form
matches the shape if, and only if, the name in each place of the form is the value in that place of the shape.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from struct import Struct
from typing import Any, Final, TypeAlias, final

import msgspec

from manglecp.harness.shapes import DIGITS, Shape, Template, Unclear, spans_of

__all__ = ["Fittings", "Form", "Make", "written"]

Make: TypeAlias = Callable[[Sequence[str]], Mapping[str, Any]]
_Pick: TypeAlias = Callable[[Sequence[bytes]], tuple[bytes, ...]]

_encode: Final = msgspec.json.Encoder().encode
_COMPLEMENT: Final = bytes.maketrans(DIGITS, DIGITS[::-1])
_BETWEEN: Final = "\n"
"""Words. No word has one in it."""
_LARGEST: Final = 65_536
"""Bytes of what a form says."""
_ALIKE: Final = 8
"""Shapes that one form may have after the same texts: they are tried one by one."""


def written(words: Sequence[str]) -> bytes:
    """Words as a form takes them. What is no text is none of any form: whoever reads evidence says what is wrong."""
    return _BETWEEN.join(words).encode(errors="surrogatepass")


@final
class Form:
    """Evidence that is made of words."""

    __slots__ = ("_said", "_split", "_text", "count", "numbers", "others", "words")

    def __init__(self, make: Make, words: Sequence[str]) -> None:
        """``make`` makes JSON values, of the words and of nothing that may change. :class:`.Unclear` if what it makes
        is more than the words in their places."""
        if any(_BETWEEN in word for word in words):
            raise Unclear("a word has several lines")
        said = written(words)
        try:
            said.decode()
        except UnicodeDecodeError:
            raise Unclear("a surrogate stands alone in a word") from None
        spans = spans_of(said)
        ends = [0, *(end for _, end in spans)]
        lengths = [end - start for start, end in spans]
        steps = [f"{start - before}x{end - start}s" for before, (start, end) in zip(ends, spans, strict=False)]
        self._split = Struct(f"{''.join(steps)}{len(said) - ends[-1]}x")
        pieces = [
            said[before:start] for before, start in zip(ends, [*(start for start, _ in spans), None], strict=True)
        ]
        self._said = b"%b".join(piece.replace(b"%", b"%%") for piece in pieces)
        first = [b"%0*x" % (size, number) for number, size in enumerate(lengths, 1)]
        second = [name.translate(_COMPLEMENT) for name in first]  # whatever comes first of these came last of those
        text = self._made(make, first)
        names = [text[start:end] for start, end in spans_of(text)]
        others = dict.fromkeys(name for name in names if name not in first)
        known = {name: number for number, name in enumerate([*first, *others])}
        self._text = Template(text, known)
        self.words = len(words)
        """How many there are. As many, :func:`written` and found to be of this form, have no end of a line in them."""
        self.count = len(first)
        """How many names there are in its words."""
        self.numbers = tuple(known[name] for name in names)
        """In each place of the text: which of the names of the words; those after them are the others."""
        self.others = tuple(others)
        """Names that are not of the words, and the same every time."""
        if self.text(second) != self._made(make, second):
            raise Unclear("what is made of words is more than these in their places")

    def names(self, said: bytes) -> tuple[bytes, ...] | None:
        """The names in words as they were :func:`written`; None if they are no words of this form."""
        if len(said) != self._split.size:
            return None
        names = self._split.unpack(said)
        if self._said % names != said or b"".join(names).translate(None, DIGITS):
            return None
        return names

    def text(self, names: Sequence[bytes]) -> bytes:
        """The JSON of the evidence."""
        return self._text.fill((*names, *self.others))

    def _made(self, make: Make, names: Sequence[bytes]) -> bytes:
        words = (self._said % tuple(names)).decode().split(_BETWEEN)
        text = _encode({name: value for name, value in make(words).items() if value is not None})
        if len(text) > _LARGEST or b"\\" in text:
            raise Unclear("nothing of this kind is recognised")
        return text


class Fittings:
    """Some fittings, by what is before the shape, a word and the form. Any thread may ask.

    The word is that of :class:`.Shapes`: a form may be taken for evidence of a step that it was not made for.
    """

    def __init__(self, *, most: int, most_bytes: int) -> None:
        """``most_bytes`` of shapes: those that nobody else remembers any more are held on to here."""
        self._most = most
        self._most_bytes = most_bytes
        self._bytes = 0
        self._known: dict[tuple[Shape, str, Form], tuple[_Fitting, ...]] = {}

    def find(
        self, before: Shape, kind: str, form: Form, values: Sequence[bytes], names: tuple[bytes, ...]
    ) -> tuple[Shape, list[bytes]] | None:
        """The shape of the evidence of a form with these names, and the values that it comes to."""
        for fitting in self._known.get((before, kind, form), ()):
            found = fitting.match(values, names)
            if found is not None:
                return fitting.shape, found
        return None

    def keep(self, kind: str, form: Form, shape: Shape, values: Sequence[bytes], text: bytes) -> None:
        """From now on evidence of this form is found that is of this shape, as this text is."""
        assert shape.before is not None
        key = (shape.before, kind, form)
        known = self._known.get(key, ())
        try:
            fitting = _Fitting(form, shape, len(values), text)
        except Unclear:
            return
        if len(self._known) >= self._most or self._bytes + shape.size > self._most_bytes:
            self._known.clear()
            self._bytes, known = 0, ()
        self._bytes += shape.size
        self._known[key] = (fitting, *known)[:_ALIKE]


class _Fitting:
    """How the names of a form are the values of a shape."""

    __slots__ = ("_fresh", "_names", "_others", "_values", "shape")

    def __init__(self, form: Form, shape: Shape, before: int, text: bytes) -> None:
        """``text`` is of the form and of the shape, which has ``before`` values from the texts before it. Raises
        :class:`.Unclear` where a name of the words stands in it that is fixed in the shape."""
        values = iter(shape.places)
        pairs: dict[tuple[int, int], None] = {}
        for (start, end), number in zip(spans_of(text), form.numbers, strict=True):
            if text[start:end] not in shape.fixed:
                pairs[next(values), number] = None
            elif number < form.count:
                raise Unclear("a name of the words is fixed")
        fresh: dict[int, int] = {}
        for value, number in pairs:
            if value >= before:
                fresh.setdefault(value, number)
        same = [(value, number) for value, number in pairs if fresh.get(value) != number]
        self.shape = shape
        self._others = form.others
        self._fresh = _pick([fresh[value] for value in sorted(fresh)])
        self._values = _pick([value for value, _ in same])
        self._names = _pick([number for _, number in same])

    def match(self, values: Sequence[bytes], names: tuple[bytes, ...]) -> list[bytes] | None:
        """As :meth:`.Shape.match`, of the evidence with these names."""
        names += self._others
        found = [*values, *self._fresh(names)]
        return self.shape.complete(found) if self._values(found) == self._names(names) else None


def _pick(numbers: Sequence[int]) -> _Pick:
    if len(numbers) > 1:
        return itemgetter(*numbers)
    return (lambda found: (found[numbers[0]],)) if numbers else (lambda _: ())
