"""Turns that differ in names only are judged once: the next ones are recognised.

The turns of a tool without effects are all alike. Their rows hold other digests and other ids, and nothing else is new.
So what is judged is a shape (:mod:`.shapes`): a step of a turn that has the shape of one that was judged before, after
steps of the same shapes and under the same terms, is not read again. Its digests, its witness and the calls that it
permits are filled in.

Why that is the same as judging it. Of rows that are recognised (those with no other members than ``PLAIN_MEMBERS``
of :mod:`.learning`) judging does three things with a text: it asks whether it is another text, it puts texts in order,
and it hashes them.

* *Equality.* A text is what stands between its names, and its names. Both are the same in every turn of a shape: what
  stands between them to the letter, and of names which of them are the same. That a name of a row is one of the
  policies, and which, is to the letter, too. Lower case and trimming leave names as they are.
* *Order.* The reminders of a queue are put in order, and so they are when a shape is filled in. Whether anything else
  depends on the order of names is tried. Before a shape is trusted, the turn that it was learnt of is judged twice more
  the plain way, with other names in place of its own: very low ones, counted upwards, and very high ones, counted
  downwards. Of any two names, and of a name and anything else, each comes first once. A turn that has digits between
  its names that are as low or as high is none that could be tried like that.
* *Hashes.* What was hashed is known from the turn that a shape was learnt of. That it is the same for other names is
  what is tried with the same two turns: every digest and every byte of the witness has to be as the shape tells it.

Whatever is not like that is judged the plain way, every time: a turn with a finding, a mutation, other members, a text
that JSON writes with escapes, a long one. The evidence of a turn that was recognised is read if anybody asks for it.
Who says what a turn holds by words of a form (:mod:`.forms`) need not make it for that: it is the text of the shape,
filled with the names of the words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import msgspec

from manglecp.harness.forms import Fittings, Form
from manglecp.harness.growing import Growing
from manglecp.harness.judging import Foretold
from manglecp.harness.learning import Step, grown, learn, named_by
from manglecp.harness.rows import NamedCall
from manglecp.harness.shapes import Filled, Shape, Shapes, Unclear, mark_of, names_in
from manglecp.harness.turn import Turn

__all__ = ["Course", "Step"]

_Seen: TypeAlias = tuple[Shape, Sequence[bytes]]
"""A turn so far: its shape, and its values."""

_MOST_STEPS: Final = 16
"""Of one turn. A shape is learnt by walking its whole turn."""
_LARGEST: Final = 65_536
"""Bytes of one step."""
_shapes: Final = Shapes(most=512, most_bytes=16 << 20)
_fittings: Final = Fittings(most=256, most_bytes=16 << 20)
_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder().decode

_ESCAPE: Final = re.compile(rb"\\(?:u[0-9a-f]{4}|.)")
"""In JSON. What follows one may be a name, and its own digits are none of it."""


class Course:
    """A turn so far: its evidence, which is read when it is asked for, or its shape, or both."""

    __slots__ = ("_before", "_given", "_growing", "_opening", "_seen", "_step", "_told", "recognised")

    def __init__(
        self,
        growing: Growing | None,
        before: Course | None = None,
        step: Step = "open",
        text: bytes | None = None,
        seen: _Seen | None = None,
        recognised: bool = False,
    ) -> None:
        self._growing = growing
        self._before = before
        self._step: Step = step
        self._given = text
        """What came in this step, if its shape may be known; None also where the shape says it (:attr:`_text`)."""
        self._seen = seen
        self._told: bytes | None = None
        """What its shape tells first, once somebody has asked."""
        self._opening: Shape | None = None
        """Of what turns have in common: the shape of the id that was opened with last."""
        self.recognised = recognised
        """Is it known that nothing is found in it?"""

    @classmethod
    def of_many(cls, growing: Growing) -> Course:
        """What turns have in common that differ in nothing but the ids of their calls."""
        # Documents are given as they came. Who reads them trims texts, and puts words into lower case.
        texts = [text for written in growing.written for text in (written, _ESCAPE.sub(b" ", written))]
        fixed = frozenset(name for text in texts for name in (*names_in(text), *names_in(text.lower())))
        return cls(growing, seen=(Shape(None, (), b"", fixed=fixed), ()))

    @property
    def growing(self) -> Growing:
        """The evidence, read."""
        if self._growing is None:
            text = self._text
            assert self._before is not None
            assert text is not None
            self._growing = grown(self._before.growing, self._step, text)
        return self._growing

    @property
    def _text(self) -> bytes | None:
        """What came in this step, if its shape is or may be known."""
        if self._given is None and self.recognised:
            assert self._seen is not None
            shape, values = self._seen
            self._given = shape.text(values)
        return self._given

    @property
    def turn(self) -> Turn:
        """The evidence so far, read now if it was not before."""
        return self.growing.turn

    def called(self, call_id: str) -> Course:
        """One of these turns. No check looks at the id of a call."""
        if type(call_id) is not str or not call_id.isascii():
            return Course(self.growing.called(call_id))
        text = call_id.encode()
        shape = self._opening
        if shape is not None and shape.length == len(text):
            values = shape.match((), text)
            if values:
                return Course(None, self, "open", text, (shape, values))
        assert self._seen is not None
        start, none = self._seen
        growing = self.growing.called(call_id)
        found = _shapes.find(start, "open", none, text)
        if found is None:
            try:
                shape = Shape(start, (), text, fixed=start.fixed)
            except Unclear:
                return Course(growing)
            values = shape.match((), text)
            if not values:  # nothing in it that another id could have instead
                return Course(growing)
            _shapes.keep("open", len(text), shape)
            found = shape, values
        self._opening = found[0]
        return Course(growing, self, "open", text, found)

    def grown(self, step: Step, more: Mapping[str, Any], *, of_json: bool = False) -> Course:
        """With more evidence, which is read unless it is recognised. ``of_json``: it is known to be JSON values."""
        seen = self._seen
        text = None if seen is None or seen[0].steps >= _MOST_STEPS else _text_of(more, of_json=of_json)
        if seen is not None and text is not None:
            found = _shapes.find(seen[0], step, seen[1], text)
            if found is not None:
                return Course(None, self, step, text, found, recognised=True)
        # Who is not going to be learnt does not hold on to all that was before: long turns would add up.
        before = None if text is None else self
        return Course(self.growing.grown(more), before, step, text)

    def said(self, step: Step, form: Form, said: bytes) -> Course | None:
        """With the evidence that a form makes of words, if that is recognised. Nothing of it is made."""
        if self._seen is None or type(form) is not Form:  # another might find more than digits in words
            return None
        before, values = self._seen
        names = form.names(said)
        if names is None or before.steps >= _MOST_STEPS:
            return None
        found = _fittings.find(before, step, form, values, names)
        if found is None:
            text = form.text(names)
            found = _shapes.find(before, step, values, text)
            if found is None:
                return None
            _fittings.keep(step, form, found[0], values, text)
        return Course(None, self, step, None, found, recognised=True)

    # --- what is told of it ----------------------------------------------------------------------------------------

    def requests(self, call: NamedCall) -> bool:
        """Is this call among its requests?"""
        course = self
        try:
            named = _encode(call)
        except UnicodeEncodeError:  # no row that was read is like that
            return False
        while course.recognised:
            # No text in it has a quotation mark or an escape: what stands there like an object is one.
            if course._told is None:
                assert course._seen is not None
                shape, values = course._seen
                course._told = shape.told[0].fill(values)
            if named in course._told:
                return True
            assert course._before is not None
            course = course._before
        rows = course.growing.evidence.tool_requests if course._step == "request" else ()
        return any(row.tool_call_id == call.tool_call_id and named_by(row) == call for row in rows)

    def told(self, number: int) -> Filled:
        """What its shape tells."""
        assert self._seen is not None
        shape, values = self._seen
        return Filled(shape.told[number], tuple(values))  # whoever gets it cannot change what it was told of

    @property
    def judgement(self) -> Foretold:
        """Over a turn that was recognised when it was closed."""
        return Foretold(self)

    @property
    def witness_id(self) -> str:
        """Of such a turn, and so are the next two."""
        return self.told(0).text.decode()

    @property
    def digests(self) -> Mapping[str, str]:
        """All that were worked out."""
        return MappingProxyType(_decode(self.told(1).text))

    @property
    def written(self) -> Filled:
        """The canonical JSON of the witness."""
        return self.told(2)

    # --- learning --------------------------------------------------------------------------------------------------

    def learn(self) -> None:
        """It was judged. If nothing was found in it and one like it was there before, the next one is recognised."""
        before = self._before
        seen = None if before is None else before._seen
        if seen is None or self._text is None:
            return
        shape, before_values = seen
        mark = mark_of(shape, self._step, before_values, self._text, shape.fixed)
        if not _shapes.again(mark):
            return
        try:
            unread, *steps = reversed(list(self._walk()))
            texts = [(course._step, course._text or b"") for course in steps]
            learnt = learn(shape, before_values, unread.growing, texts)
        except Unclear:
            learnt = None
        if learnt is None:
            _shapes.refuse(mark)
            return
        _shapes.keep(self._step, len(self._text), learnt, mark)
        values = learnt.match(before_values, self._text)
        assert values is not None  # it was learnt of this text
        self._seen = learnt, values

    def _walk(self) -> Iterator[Course]:
        """The course of the turn, backwards."""
        course: Course | None = self
        while course is not None:
            yield course
            course = course._before


def _text_of(more: Mapping[str, Any], *, of_json: bool) -> bytes | None:
    """What came in a step, if that is what its JSON says: it is the JSON that is read."""
    there = {name: value for name, value in more.items() if value is not None}
    try:
        text = _encode(there)
        if len(text) > _LARGEST or b"\\" in text:
            return None
        return text if of_json or _decode(text) == there else None
    except (ValueError, TypeError, OverflowError, RecursionError):
        return None
