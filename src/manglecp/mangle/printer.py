"""Canonical text of values, facts and syntax trees, which parses to the same value or tree; plain JSON of values."""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from manglecp.mangle import syntax, values
from manglecp.mangle.lexer import CONSTANT

_STRING_ESCAPES: Final = {ord('"'): '\\"', ord("\\"): "\\\\", ord("\n"): "\\n", ord("\t"): "\\t"} | {
    code: f"\\x{code:02x}" for code in (*range(0x20), 0x7F) if chr(code) not in "\n\t"
}
_NEEDS_ESCAPE: Final = re.compile(r'[\x00-\x1f\x7f"\\]')
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def string_text(text: str) -> str:
    if _NEEDS_ESCAPE.search(text):
        text = text.translate(_STRING_ESCAPES)
    return f'"{text}"'


def bytes_text(data: bytes) -> str:
    parts = [f"\\x{b:02x}" if b >= 0x80 or b in b"\"'\\\n\t" else chr(b) for b in data]
    return 'b"' + "".join(parts) + '"'


def float_text(value: float) -> str:
    """Return the shortest text that parses to the same double, always with a fraction.

    NaN and the infinities have no literal, so they are written as function applications.
    """
    if math.isnan(value):
        return "fn:sqrt(-1.0)"
    if math.isinf(value):
        return "fn:float:mult(1.0e+308, 10.0)" if value > 0 else "fn:float:mult(-1.0e+308, 10.0)"
    text = repr(value)
    return text if "." in text else text.replace("e", ".0e")


def instant_text(ns: int) -> str:
    """Format an instant as RFC 3339 in UTC, its fraction without trailing zeros."""
    seconds, fraction = divmod(ns, 1_000_000_000)
    text = (_EPOCH + timedelta(seconds=seconds)).isoformat()[:19]  # down to the second
    if fraction:
        text += "." + f"{fraction:09d}".rstrip("0")
    return text + "Z"


def duration_text(ns: int) -> str:
    """Format like Go: ``1h30m0s``, ``2.5ms``, ``0s``."""
    if ns == 0:
        return "0s"
    sign, absolute = ("-", -ns) if ns < 0 else ("", ns)
    if absolute < 1_000_000_000:
        for unit, unit_ns in (("ms", 1_000_000), ("µs", 1_000), ("ns", 1)):
            if absolute >= unit_ns:
                return f"{sign}{_decimal(absolute, unit_ns)}{unit}"
    minutes, below_minute = divmod(absolute, 60_000_000_000)
    hours, minutes = divmod(minutes, 60)
    text = f"{_decimal(below_minute, 1_000_000_000)}s"
    if hours:
        return f"{sign}{hours}h{minutes}m{text}"
    return f"{sign}{minutes}m{text}" if minutes else sign + text


def _decimal(number: int, unit: int) -> str:
    """Format ``number / unit`` without trailing zeros; ``unit`` is a power of ten."""
    whole, fraction = divmod(number, unit)
    digit_count = len(str(unit)) - 1
    return f"{whole}.{fraction:0{digit_count}d}".rstrip("0") if fraction else str(whole)


class _Raw(str):
    """Text between the parts of a value, such as ``", "``."""

    __slots__ = ()


_ATOMIC_WRITERS: Final[dict[type, Callable[[Any], str]]] = {
    int: str,
    str: string_text,
    values.Name: lambda v: v.text,
    values.Float: lambda v: float_text(v.value),
    values.Bytes: lambda v: bytes_text(v.data),
    values.Time: lambda v: f'fn:time:parse_rfc3339("{instant_text(v.ns)}")',
    values.Duration: lambda v: f'fn:duration:parse("{duration_text(v.ns)}")',
}


def value_text(value: values.Value) -> str:
    """Return the canonical text of one value, without recursion."""
    write = _ATOMIC_WRITERS.get(type(value))
    if write is not None:
        return write(value)
    texts: list[str] = []
    stack: list[Any] = [value]
    while stack:
        v = stack.pop()
        kind = type(v)
        if kind is _Raw:
            texts.append(v)
        elif kind in _ATOMIC_WRITERS:
            texts.append(_ATOMIC_WRITERS[kind](v))
        elif kind is values.Pair:
            stack += [_Raw(")"), v.second, _Raw(", "), v.first, _Raw("fn:pair(")]
        elif kind is values.List:
            stack.append(_Raw("]"))
            _push_joined(stack, [(item,) for item in v.items])
            stack.append(_Raw("["))
        elif kind is values.Map and not v.entries:
            texts.append("fn:map()")
        else:
            opening, closing = ("[", "]") if kind is values.Map else ("{", "}")
            stack.append(_Raw(closing))
            _push_joined(stack, [(key, _Raw(" : "), entry) for key, entry in v.entries])
            stack.append(_Raw(opening))
    return "".join(texts)


def _push_joined(stack: list[Any], groups: list[tuple[Any, ...]]) -> None:
    """Push groups so that they are popped from left to right, with commas between them."""
    for index in range(len(groups) - 1, -1, -1):
        stack.extend(reversed(groups[index]))
        if index:
            stack.append(_Raw(", "))


def fact_text(predicate: str, args: Iterable[values.Value], interval: tuple[int, int] | None = None) -> str:
    """Return ``p(1,/a)`` and, for a temporal fact, its ``@[start, end]``."""
    text = f"{predicate}({','.join([value_text(arg) for arg in args])})"
    return text if interval is None else text + interval_text(interval)


def interval_text(interval: tuple[int, int]) -> str:
    """Return ``@[start, end]``; ``_`` stands for an infinite end."""
    start, end = interval
    if start == end:
        return f"@[{instant_text(start)}]"
    left = "_" if start == values.INT_MIN else instant_text(start)
    right = "_" if end == values.INT_MAX else instant_text(end)
    return f"@[{left}, {right}]"


# Plain JSON is what actions and JSON Schema read. It cannot be converted back to values: a name becomes its text,
# ``/true`` and ``/false`` become booleans, ``/null`` becomes null, instants and durations become text, and labels of
# structs lose their slash.
_MAX_DEPTH: Final = 100  # levels of nested lists and objects


class NotPlain(ValueError):
    """A value without a plain JSON form."""


def plain_json(value: values.Value, depth: int = 0) -> Any:
    """Convert a value to plain JSON; members keep the order of the value. Raises :class:`NotPlain`."""
    if isinstance(value, (int, str)):
        return value
    if value is values.TRUE or value is values.FALSE:
        return value is values.TRUE
    if value is values.NULL:
        return None
    if isinstance(value, values.Name):
        return value.text
    if isinstance(value, values.Float):
        if not math.isfinite(value.value):
            raise NotPlain(f"{value.value} is not a number in JSON")
        return value.value
    if isinstance(value, values.Time):
        return instant_text(value.ns)
    if isinstance(value, values.Duration):
        return duration_text(value.ns)
    if isinstance(value, values.Bytes):
        return base64.b64encode(value.data).decode()
    if depth >= _MAX_DEPTH:
        raise NotPlain(f"it is nested more than {_MAX_DEPTH} deep")
    if isinstance(value, values.Pair):
        return [plain_json(value.first, depth + 1), plain_json(value.second, depth + 1)]
    if isinstance(value, values.List):
        return [plain_json(item, depth + 1) for item in value.items]
    members: dict[str, Any] = {}
    for key, entry in value.entries:
        if isinstance(key, values.Name):
            name = key.text[1:] if isinstance(value, values.Struct) else key.text
        elif isinstance(key, str):
            name = key
        else:
            raise NotPlain("an object in JSON has keys that are text")
        if name in members:
            raise NotPlain(f"two keys are both written {name!r} in JSON")
        members[name] = plain_json(entry, depth + 1)
    return members


_ENDS_IN_NAME: Final = re.compile(CONSTANT + r"\Z")
INFIX: Final = {":lt": "<", ":le": "<=", ":gt": ">", ":ge": ">="}


def term(node: syntax.Term) -> str:
    """Format a term with the short forms of lists, maps and structs."""
    if isinstance(node, syntax.Variable):
        return node.name
    if not isinstance(node, syntax.Apply):
        return value_text(node)
    args = [term(arg) for arg in node.args]
    if node.function == "fn:list":
        return f"[{', '.join(args)}]"
    has_pairs = len(args) % 2 == 0
    if node.function == "fn:map" and args and has_pairs:
        return f"[{_entries(args)}]"
    if node.function == "fn:struct" and has_pairs:
        return f"{{{_entries(args)}}}"
    return f"{node.function}({', '.join(args)})"


def term_with_values(node: syntax.Term, row: Mapping[str, values.Value]) -> str:
    """Format a term with the values of ``row``, and ``_`` for a variable without a value; nothing is evaluated."""
    return term(_substitute(node, row))


def _substitute(node: syntax.Term, row: Mapping[str, values.Value]) -> Any:
    if isinstance(node, syntax.Variable):
        return row.get(node.name, syntax.Variable("_"))
    if isinstance(node, syntax.Apply):
        return syntax.Apply(node.function, tuple(_substitute(arg, row) for arg in node.args))
    return node


def _entries(args: list[str]) -> str:
    # A space before every colon, because the Go implementation does not accept a variable next to a colon.
    return ", ".join(f"{key} : {value}" for key, value in zip(args[::2], args[1::2], strict=True))


def atom(node: syntax.Atom) -> str:
    return f"{node.predicate}({', '.join(term(arg) for arg in node.args)})"


def atoms(nodes: tuple[syntax.Atom, ...]) -> str:
    """Return ``[p(X), q(Y)]``."""
    return f"[{', '.join(atom(node) for node in nodes)}]"


def _bounds(bounds: tuple[syntax.TimeBound, ...]) -> str:
    return f"[{', '.join(bound.text for bound in bounds)}]"


def annotation(node: syntax.Annotation | None) -> str:
    """Return ``@[start, end]``, or an empty text."""
    return "" if node is None else f"@{_bounds(node.bounds)}"


def operator(node: syntax.Operator | None) -> str:
    """Return ``<-[a, b]`` and a space, or an empty text."""
    return "" if node is None else f"{node.kind}{_bounds(node.bounds)} "


def premise(node: syntax.Premise, write: Callable[[syntax.Term], str] = term) -> str:
    """Format one premise. ``write`` formats its terms, for example with values in place of variables."""
    if isinstance(node, syntax.Equality):
        return f"{write(node.left)} {'!=' if node.negated else '='} {write(node.right)}"
    symbol = INFIX.get(node.atom.predicate)
    if symbol is not None and len(node.atom.args) == 2 and not node.negated and not node.timed:
        left, right = node.atom.args
        return f"{write(left)} {symbol} {write(right)}"
    args = ", ".join(write(arg) for arg in node.atom.args)
    negation = "!" if node.negated else ""
    return f"{negation}{operator(node.operator)}{node.atom.predicate}({args}){annotation(node.annotation)}"


def transform(node: syntax.Transform) -> str:
    """Return ``|> do fn:group_by(…), let X = fn:…``."""
    parts = [] if node.do is None else [f"do {term(node.do)}"]
    parts += map(let, node.lets)
    return "|> " + ", ".join(parts)


def let(node: syntax.Let) -> str:
    return f"let {node.variable.name} = {term(node.expression)}"


def clause(node: syntax.Clause) -> str:
    """Format a rule or a fact on one line."""
    text = atom(node.head) + annotation(node.annotation)
    if node.premises:
        text += " :- " + ", ".join(map(premise, node.premises))
    for step in node.transforms:
        text += " " + transform(step)
    return end_clause(text)


def end_clause(text: str) -> str:
    """Add the full stop; after a name, a space comes first, because names may contain dots."""
    return text + (" ." if _ENDS_IN_NAME.search(text) else ".")


def decl(node: syntax.Decl) -> str:
    parts = [f"Decl {atom(node.atom)}"]
    if node.temporal:
        parts.append("temporal")
    if node.descr:
        parts.append(f"descr {atoms(node.descr)}")
    parts += [f"bound {row(types)}" for types in node.bounds]
    if node.inclusion:
        parts.append(f"inclusion {atoms(node.inclusion)}")
    return " ".join(parts) + "."


def row(types: tuple[syntax.Term, ...]) -> str:
    """Return ``[type, type]``, as after ``bound``."""
    return f"[{', '.join(map(term, types))}]"


def package(keyword: str, node: syntax.Package) -> str:
    """Return the line of ``keyword``: ``Package name!`` or ``Use name!``."""
    attributes = f" {atoms(node.attributes)}" if node.attributes else ""
    return f"{keyword} {node.name}{attributes}!"


def item(node: syntax.Decl | syntax.Clause) -> str:
    return decl(node) if isinstance(node, syntax.Decl) else clause(node)


def unit(node: syntax.Unit) -> str:
    lines = [] if node.package is None else [package("Package", node.package)]
    lines += [package("Use", use) for use in node.uses]
    lines += [item(i) for i in node.items]
    return "".join(line + "\n" for line in lines)
