"""The part of the grammar below a statement: terms, atoms, annotations and operators, and moving over tokens."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final, cast

from manglecp.base.source import Source, Span
from manglecp.mangle.lexer import KEYWORDS, Lexer
from manglecp.mangle.syntax import (
    NOW,
    Annotation,
    Apply,
    Atom,
    Constant,
    Now,
    Operator,
    OperatorKind,
    Term,
    TimeBound,
    Variable,
)
from manglecp.mangle.values import INT_MAX, INT_MIN, Bytes, Duration, Float, Name, Time

MAX_NESTING: Final = 100
UNITS: Final = {"ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9, "d": 86400 * 10**9}


class EmptyPart(ValueError):
    """A name with nothing between two slashes."""


class Constants(dict[str, Constant]):
    """Plain constants by their text, each read once."""

    def __missing__(self, text: str) -> Constant:
        first = text[0]
        if first == "/" and ("//" in text or text[-1] == "/"):
            raise EmptyPart(text)
        value = self[text] = Name(text) if first == "/" else text[1:-1] if first == '"' else int(text)
        return value


class TermParser:
    """Reads what stands inside a statement. The current token is always the first one that was not used yet."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.lex = Lexer(source)
        self.constants = Constants()
        self.nesting = 0

    # --- terms -----------------------------------------------------------------------------------------------------

    def atom(self, place: str) -> Atom:
        """An atom; ``place`` names what needs it, if there is something else."""
        start = self.lex.start
        if self.lex.kind != "name":
            fix = None
            if self.lex.kind in KEYWORDS:
                fix = f"{self.lex.kind} is a reserved word: choose another name"
            self.lex.fail(f"{place} needs a predicate, found {self.found()}", fix=fix)
        term = self.term_or_atom()
        if not isinstance(term, Atom):
            self.lex.fail(f"{place} needs a predicate, not a function", self.span_from(start))
        return term

    def atoms(self) -> tuple[Atom, ...]:
        """``[a(), b(X)]``, a trailing comma allowed."""
        atoms: list[Atom] = []
        self.open("[")
        while self.lex.kind != "]":
            atoms.append(self.atom("this list"))
            if not self.accept(",") and self.lex.kind != "]":
                self.lex.fail(f"']' or ',' is needed here, found {self.found()}")
        self.close("]")
        return tuple(atoms)

    def term(self) -> Term:
        """A value: an atom is refused."""
        term = self.term_or_atom()
        if isinstance(term, Atom):
            self.lex.fail(
                f"{term.predicate}(…) is an atom, a value is needed here",
                term.span,
                "functions are written fn:name(…)",
            )
        return term

    def term_or_atom(self) -> Term | Atom:
        """Whichever stands here."""
        lex = self.lex
        kind = lex.kind
        if kind == "variable":
            return self.variable()
        if kind == "name":
            return self.application()
        if kind == "constant":
            name = self.constants[lex.text]
            lex.advance()
            return name
        if kind == "number":
            number = lex.number_value()
            lex.advance()
            return number
        if kind == "string":
            string = lex.string_value()
            lex.advance()
            return string
        if kind == "[":
            return self.bracketed()
        if kind == "{":
            return self.struct()
        if kind == "float":
            value = Float(lex.float_value())
            lex.advance()
            return value
        if kind == "bytes":
            data = Bytes(lex.bytes_value())
            lex.advance()
            return data
        if kind == "dot_type":
            return self.dot_type()
        fix = None
        if kind in ("timestamp", "duration"):
            made = "fn:time:parse_rfc3339" if kind == "timestamp" else "fn:duration:parse"
            fix = f'as a value write {made}("…")'
        elif kind in KEYWORDS:
            fix = f"{kind} is a reserved word"
        return lex.fail(f"a term is needed here, found {self.found()}", fix=fix)

    def variable(self) -> Variable:
        """The variable that is the current token."""
        variable = Variable(self.lex.text, self.lex.span())
        self.lex.advance()
        return variable

    def application(self) -> Apply | Atom:
        """``fn:f(…)`` or ``p(…)``; a name without parentheses is refused."""
        lex = self.lex
        start, name = lex.start, lex.text
        lex.advance()
        if lex.kind != "(":
            span = Span(self.source, start, start + len(name))
            value = "" if ":" in name else f'; as a value write "{name}" or /{name}'
            lex.fail(f"{name} needs parentheses", span, f"write {name}(…), or {name}() without arguments{value}")
        self.open("(")
        args = self.modes() if name == "mode" and lex.kind in ("+", "-", "?") else self.terms(")")
        span = self.span_from(start)
        return Apply(name, args, span) if name.startswith("fn:") else Atom(name, args, span)

    def modes(self) -> tuple[Term, ...]:
        """``mode(+, -)`` as in the manual means ``mode("+", "-")``."""
        modes: list[Term] = []
        while self.lex.kind in ("+", "-", "?"):
            modes.append(self.lex.kind)
            self.lex.advance()
            if not self.accept(","):
                break
        self.close(")")
        return tuple(modes)

    def terms(self, closing: str) -> tuple[Term, ...]:
        """Terms up to ``closing``, whose opening bracket was just read; a trailing comma is allowed."""
        lex = self.lex
        args: list[Term] = []
        while lex.kind != closing:
            args.append(self.term())
            if lex.kind == ",":
                lex.advance()
            elif lex.kind != closing:
                lex.fail(f"'{closing}' or ',' is needed here, found {self.found()}")
        self.close(closing)
        return tuple(args)

    def bracketed(self) -> Apply:
        """A list, or a map if the first element has a colon behind it."""
        lex = self.lex
        start = lex.start
        self.open("[")
        if self._lone_comma("]"):
            self.close("]")
            return Apply("fn:list", (), self.span_from(start))
        if lex.kind == "]":
            self.close("]")
            return Apply("fn:list", (), self.span_from(start))
        first = self.term()
        if not self._at_colon():
            if self.accept(","):
                rest = self.terms("]")
            elif lex.kind == "]":
                self.close("]")
                rest = ()
            else:
                lex.fail(f"',' or ']' is needed here, found {self.found()}")
            return Apply("fn:list", (first, *rest), self.span_from(start))
        entries = self.entries("]", first)
        return Apply("fn:map", entries, self.span_from(start))

    def struct(self) -> Apply:
        """``{/a: 1}`` as the function application that it stands for."""
        start = self.lex.start
        self.open("{")
        if self._lone_comma("}"):
            self.close("}")
            return Apply("fn:struct", (), self.span_from(start))
        return Apply("fn:struct", self.entries("}", None), self.span_from(start))

    def _lone_comma(self, closing: str) -> bool:
        """``[,]`` and ``{,}`` are the manual's empty list and struct."""
        lex = self.lex
        if lex.kind != ",":
            return False
        lex.advance()
        if lex.kind != closing:
            lex.fail(f"a term is needed before ',', found {self.found()}")
        return True

    def entries(self, closing: str, first: Term | None) -> tuple[Term, ...]:
        """Keys and values in turn, up to the closing bracket. ``first`` is a key that was read already."""
        lex = self.lex
        flat: list[Term] = []
        while first is not None or lex.kind != closing:
            key = self.term() if first is None else first
            first = None
            self.colon()
            flat += (key, self.term())
            if not self.accept(",") and lex.kind != closing:
                lex.fail(f"'{closing}' or ',' is needed here, found {self.found()}")
        self.close(closing)
        return tuple(flat)

    def dot_type(self) -> Apply:
        """``.Struct</a : /number, opt /b : /string>`` is ``fn:Struct(/a, /number, fn:opt(/b, /string))``."""
        lex = self.lex
        start, name = lex.start, lex.text[1:]
        lex.advance()
        if lex.kind != "<":
            lex.fail(
                f".{name} starts a type and needs '<', found {self.found()}",
                Span(self.source, start, start + len(name) + 1),
                "after a full stop leave a space",
            )
        self.open("<")
        args: list[Term] = []
        while lex.kind != ">":
            member = lex.start
            if self.accept("opt"):
                label = self.term()
                self.colon()
                args.append(Apply("fn:opt", (label, self.term()), self.span_from(member)))
            else:
                args.append(self.term())
                if self._at_colon():
                    self.colon()
                    args.append(self.term())
            if not self.accept(",") and lex.kind != ">":
                lex.fail(f"'>' or ',' is needed here, found {self.found()}")
        self.close(">")
        return Apply(f"fn:{name}", tuple(args), self.span_from(start))

    # --- time ------------------------------------------------------------------------------------------------------

    def annotation(self) -> Annotation:
        """``@[…]``"""
        start = self.lex.start
        self.expect("@")
        bounds = self.time_bounds()
        return Annotation(bounds, self.span_from(start))

    def operator(self) -> Operator:
        """``<-[…]``, ``[-[…]``, ``<+[…]`` or ``[+[…]``."""
        start = self.lex.start
        kind = cast(OperatorKind, self.lex.kind)
        self.lex.advance()
        bounds = self.time_bounds()
        return Operator(kind, bounds, self.span_from(start))

    def time_bounds(self) -> tuple[TimeBound, ...]:
        """One or two bounds in brackets."""
        self.expect("[")
        first = self.time_bound()
        bounds = (first, self.time_bound()) if self.accept(",") else (first,)
        self.expect("]")
        return bounds

    def time_bound(self) -> TimeBound:
        """A time, a duration, ``now`` or a variable."""
        lex = self.lex
        kind, text, span = lex.kind, lex.text, lex.span()
        value: Time | Duration | Variable | Now
        if kind == "timestamp":
            value = self.timestamp(text)
        elif kind == "duration":
            value = self.duration(text)
        elif kind == "now":
            value = NOW
        elif kind == "variable":
            value = Variable(text, span)
        else:
            lex.fail(
                f"{self.found()} is not a time",
                fix="write a timestamp such as 2026-01-31T12:00:00Z, a duration such as 5m, a variable, now, or _",
            )
        lex.advance()
        if kind == "timestamp" and lex.kind in ("+", "-", "number") and lex.start == span.end:
            lex.fail("a timestamp has no zone offset", fix="write it in UTC")
        return TimeBound(value, text, span)

    def timestamp(self, text: str) -> Time:
        """In UTC. One that nanoseconds in 64 bits cannot say is refused."""
        date, _, clock = text.rstrip("Z").partition("T")
        clock, _, fraction = clock.partition(".")
        try:
            moment = datetime.fromisoformat(f"{date}T{clock or '00:00:00'}").replace(tzinfo=UTC)
        except ValueError:
            self.lex.fail(f"{text} is not a date")
        ns = int(moment.timestamp()) * 10**9 + int((fraction + "0" * 9)[:9])
        if not INT_MIN <= ns <= INT_MAX:
            self.lex.fail(f"{text} is out of range", fix="times lie between 1677-09-21 and 2262-04-11")
        return Time(ns)

    def duration(self, text: str) -> Duration:
        """A number and a unit. One that nanoseconds in 64 bits cannot say is refused."""
        digits = text.rstrip("dhms")
        significant = digits.lstrip("0")
        ns = int(significant or "0") * UNITS[text[len(digits) :]] if len(significant) <= 19 else INT_MAX + 1
        if ns > INT_MAX:
            self.lex.fail("duration does not fit into 64 bits of nanoseconds", fix="durations reach about 292 years")
        return Duration(ns)

    # --- small moves -----------------------------------------------------------------------------------------------

    def open(self, bracket: str) -> None:
        """Take an opening bracket. Very deep nesting is refused."""
        self.nesting += 1
        if self.nesting > MAX_NESTING:
            self.lex.fail(f"nested more than {MAX_NESTING} deep")
        self.lex.depth += 1
        self.expect(bracket)

    def close(self, bracket: str) -> None:
        """Take a closing bracket."""
        self.nesting -= 1
        self.lex.depth -= 1
        self.expect(bracket)

    def _at_colon(self) -> bool:
        return self.lex.kind == ":" or (self.lex.kind == "name" and self.lex.text[0] == ":")

    def colon(self) -> None:
        """A colon, even when it is glued to the name behind it."""
        lex = self.lex
        if not self._at_colon():
            lex.fail(f"':' is needed here, found {self.found()}")
        lex.read_at(lex.start + 1)

    def accept(self, kind: str) -> bool:
        """Take a token of this kind, if it is the current one."""
        if self.lex.kind != kind:
            return False
        self.lex.advance()
        return True

    def expect(self, kind: str, what: str | None = None) -> None:
        """Take a token of this kind; anything else is refused, with ``what`` as its name."""
        if self.lex.kind != kind:
            self.lex.fail(f"{what or repr(kind)} is needed here, found {self.found()}")
        self.lex.advance()

    def found(self) -> str:
        """The current token, as a message quotes it."""
        if self.lex.kind == "end":
            return "the end of the text"
        text = self.lex.text
        return f"'{text}'" if len(text) <= 40 else f"'{text[:40]}…'"

    def span_from(self, start: int) -> Span:
        """From there to the end of what was taken last."""
        return Span(self.source, start, self.lex.previous_end)
