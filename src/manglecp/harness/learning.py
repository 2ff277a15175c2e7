"""A shape is learnt of a turn that was judged, and tried before it is trusted.

What is tried, and why that is enough, is said where shapes are used: :mod:`.recognising`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import msgspec

from manglecp.harness.classes import State
from manglecp.harness.growing import Growing
from manglecp.harness.judging import conclude, findings_upto
from manglecp.harness.rows import NamedCall, ToolRequest
from manglecp.harness.shapes import Shape, Template, Unclear, names_in
from manglecp.harness.witness import Witness

__all__ = ["PLAIN_MEMBERS", "Step", "grown", "learn", "named_by"]

Step: TypeAlias = Literal["open", "request", "close"]

_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder().decode
_COMPLEMENT: Final = bytes.maketrans(b"0123456789abcdef", b"fedcba9876543210")
_EXTREME: Final = re.compile(rb"0{16}|f{16}")
"""What other names could not come before, or after, though some name does."""
_DEEPEST: Final = 16
"""Levels of lists and objects in a step. Rows have fewer."""
_IN_ORDER: Final = b'"reminderDigest":"sha256:'
"""What the names stand after that judging puts in order: those of one queue."""
PLAIN_MEMBERS: Final = frozenset(
    {
        "toolRequests", "toolCallId", "toolName", "schemaDigest", "inputDigest", "schemaValid", "callerId",
        "actionIndex", "ordinal", "callGroupId", "branchId", "exampleDigest",
        "toolResults", "status", "resultDigest", "sequence", "provenance", "kind", "ref",
        "errorCode", "retryable", "errorMessageDigest",
        "toolUse", "disposition", "mutationInputRef", "summaryRef", "retryRef",
        "toolRender", "operatorPayloadDigest", "reminderRenderDigest", "injectionPoint", "policyDigest",
        "reminderQueue", "queueId", "reducedDigest", "entries", "reminderDigest",
        "stateViews", "viewId", "viewDigest", "sourceRefs",
        "guardrailDecisions", "stage", "guardrailId", "triggered", "outcome", "thresholdRef",
        "branchJoins", "joinClosed", "decomposition", "mode", "fanOut", "continuity", "handoffRef",
        "protocolState", "stopReason", "continuationAllowed", "turnIndex", "checkpointRef",
        "sessionRefs", "trajectoryRefs",
    }
)  # fmt: skip
"""Members of rows. No text of theirs is looked into: it is compared as a whole, put in order, and hashed."""


def learn(
    before: Shape, values: Sequence[bytes], growing: Growing, texts: Sequence[tuple[Step, bytes]]
) -> Shape | None:
    """The shape of the last step of a turn with what it tells; None if that does not hold for other names.

    ``growing`` is the turn before all of these steps, ``before`` the shape of the last but one, and ``values`` are what
    it came to. :class:`.Unclear` if its names cannot be told from the rest.
    """
    said = _said(growing, texts)
    if said is None:
        return None
    fixed = before.fixed
    last = texts[-1][1]
    shape = Shape(before, values, last, fixed=fixed, preimages=said.preimages, told=said.told, mark=_IN_ORDER)
    names = {name: None for _, text in texts for name in names_in(text) if name not in fixed}
    numbers = {name: number for number, name in enumerate(names)}
    if any(_EXTREME.search(Template(text, numbers).fill([b" "] * len(numbers))) for _, text in texts):
        return None
    for others in _other_names(names):
        renamed = [(step, Template(text, numbers).fill(others)) for step, text in texts]
        again = _said(growing, renamed)
        if again is None or again.told != _foretold(shape, [text for _, text in renamed]):
            return None
    return shape


def grown(growing: Growing, step: Step, text: bytes) -> Growing:
    """With what came in a step."""
    return growing.called(text.decode()) if step == "open" else growing.grown(_decode(text))


def _calls_of(growing: Growing) -> list[NamedCall]:
    """The calls that the requests of a turn name."""
    return [call for row in growing.evidence.tool_requests if (call := named_by(row)) is not None]


def named_by(row: ToolRequest) -> NamedCall | None:
    """The call that a request is; None if it does not say with which input."""
    return None if row.input_digest is None else NamedCall(row.tool_call_id, row.tool_name, row.input_digest)


class _Said(NamedTuple):
    """What follows from the last step of a turn, and what was hashed on the way."""

    preimages: list[bytes]
    told: list[bytes]


def _said(growing: Growing, texts: Sequence[tuple[Step, bytes]]) -> _Said | None:
    """A turn, judged the plain way; None if something is found in it, or it is none that can be recognised."""
    before = growing
    try:
        for step, text in texts:
            if step != "open" and not _members(_decode(text)) <= PLAIN_MEMBERS:
                return None
            before, growing = growing, grown(growing, step, text)
            if step == "request" and findings_upto(growing.turn, State.TOOL_REQUESTS):
                return None
    except (ValueError, RecursionError):  # what was taken for a name is a number; or it is nested very deep
        return None
    preimages: list[bytes] = []
    if texts[-1][0] == "request":
        known = set(_calls_of(before))
        return _Said(preimages, [_encode([call for call in _calls_of(growing) if call not in known])])
    judgement = conclude(growing.turn, preimages.append)
    if judgement.findings:
        return None
    written = bytes(Witness(judgement).written)
    return _Said(preimages, [judgement.witness_id.encode(), _encode(dict(judgement.digests)), written])


def _members(value: Any) -> set[str]:
    """The names of all members in a JSON value. Without recursion: a stranger decides how deep it is."""
    found: set[str] = set()
    level = [value]
    for _ in range(_DEEPEST):
        objects = [one for one in level if isinstance(one, dict)]
        found.update(name for one in objects for name in one)
        parts = [one.values() for one in objects] + [one for one in level if isinstance(one, list)]
        level = [part for some in parts for part in some]
        if not level:
            return found
    raise Unclear("nested deeper than rows are")


def _other_names(names: Mapping[bytes, None]) -> Iterator[list[bytes]]:
    """As many names of the same lengths, twice: low ones that rise, and high ones that fall."""
    low = [b"%0*x" % (len(name), number) for number, name in enumerate(names, 1)]
    yield low
    yield [name.translate(_COMPLEMENT) for name in low]


def _foretold(shape: Shape, texts: Sequence[bytes]) -> list[bytes] | None:
    """What a shape tells of the last of these texts; None if they are not of it and those before it."""
    shapes: list[Shape] = []
    one = shape
    while one.before is not None:
        shapes.insert(0, one)
        one = one.before
    values: list[bytes] = []
    for one, text in zip(shapes, texts, strict=True):
        found = one.match(values, text)
        if found is None:
            return None
        values = found
    return [template.fill(values) for template in shape.told]
