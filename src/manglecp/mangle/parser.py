"""The recursive-descent parser of the grammar in ``docs/reference/mangle.md``.

A malformed clause is reported and skipped up to its full stop, so that one run reports every malformed clause. For
plain ground facts there is a fast path: one regular expression matches the whole fact.
"""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections.abc import Callable
from itertools import chain
from typing import Any, Final, NoReturn, TypeVar, cast

from manglecp.base.diagnostic import Diagnostic
from manglecp.base.gc_pause import gc_paused
from manglecp.base.source import Source, Span, Trust
from manglecp.mangle import syntax
from manglecp.mangle.errors import ParseError
from manglecp.mangle.lexer import GAP, KEYWORDS, Lexer, UnterminatedString
from manglecp.mangle.printer import INFIX
from manglecp.mangle.values import INT_MAX, INT_MIN, Bytes, Duration, Float, Name, Time

MAX_NESTING: Final = 100  # open brackets
MAX_ERRORS: Final = 50  # the parser stops after so many diagnostics
LONG_TEXT: Final = 100_000  # the garbage collector is paused while a text of more characters is parsed

COMPARISONS: Final = {symbol: predicate for predicate, symbol in INFIX.items()}

# A constant that needs no decoding: a name, a short number or a string without escapes.
_ARG: Final = r'(?:(?:/[A-Za-z0-9.\-_~%/]+|-?\d{1,18})(?=[ \t\r\n\f,)])|"[^"\\\r]*")'
_FACT: Final = re.compile(
    rf"{GAP}([a-z][A-Za-z0-9_]*)\({GAP}({_ARG}(?:{GAP},{GAP}{_ARG})*){GAP}(\)){GAP}\.(?![^ \t\r\n\f#])", re.ASCII
)
_ARG_PATTERN: Final = re.compile(_ARG, re.ASCII)

# Text that is skipped without reading tokens, on the way to the end of a malformed clause.
_SKIPPABLE: Final = re.compile(r"""[^"'`#./!A-Za-z0-9_]+|/+(?=/)|!+(?=!)""")

_ATOM_START: Final = re.compile(r":?[a-z][A-Za-z0-9:_.]*\(")

_Node = TypeVar("_Node")


class Constants(dict[str, syntax.Constant]):
    """Constants by their text, which _ARG matched; memoised. Raises KeyError for a malformed name."""

    def __missing__(self, text: str) -> syntax.Constant:
        first = text[0]
        if first == "/" and ("//" in text or text[-1] == "/"):
            raise KeyError(text)  # a name has no empty parts
        value = self[text] = Name(text) if first == "/" else text[1:-1] if first == '"' else int(text)
        return value


def parse(source: Source) -> syntax.Unit:
    """Parse a source. Raises :class:`ParseError` with all problems."""
    with gc_paused(len(source.text) > LONG_TEXT):
        return Parser(source).unit()


def parse_premise(source: Source) -> syntax.Premise:
    """Parse one premise, such as a query from a command line; a full stop may follow. Raises :class:`ParseError`."""
    parser = Parser(source)
    parser.refuse_surrogates()
    parser.lex.advance()
    premise = parser.premise()
    parser.accept(".")
    if parser.lex.kind != "end":
        parser.lex.fail(f"one premise is enough, found {parser.current_token()}")
    return premise


def decode(name: str, data: bytes, trust: Trust = Trust.DOMAIN) -> Source:
    """Decode the bytes of a file: UTF-8, with or without a byte order mark. Raises :class:`ParseError`."""
    data = data.removeprefix(BOM_UTF8)
    try:
        return Source(name, data.decode(), trust)
    except UnicodeDecodeError as error:
        source = Source(name, data.decode(errors="replace"), trust)
        offset = len(data[: error.start].decode())
        message = f"not UTF-8: byte {data[error.start]:#04x}"
        raise ParseError([Diagnostic("parse", message, Span(source, offset, offset + 1))]) from None


class Parser:
    """Parses programs. The current token of the lexer is the first token that is not consumed yet."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.lex = Lexer(source)
        self.constants = Constants()
        self.errors: list[Diagnostic] = []
        self.own_package: syntax.Package | None = None
        self.uses: list[syntax.Package] = []

    def unit(self) -> syntax.Unit:
        """Parse the whole source. Raises :class:`ParseError` with all problems."""
        items: list[syntax.Decl | syntax.Clause] = self.statements()
        return syntax.Unit(self.own_package, tuple(self.uses), tuple(items), self.source)

    def statements(self) -> list[Any]:
        """Parse the whole source; return the results of :meth:`item` and :meth:`plain_fact`."""
        self.refuse_surrogates()
        items: list[Any] = []
        lex = self.lex
        try:
            self._recover(lex.advance)
            if lex.kind == "Package":
                self.own_package = self._recover(lambda: self.package("Package"))
            while lex.kind == "Use":
                use = self._recover(lambda: self.package("Use"))
                if use is not None:
                    self.uses.append(use)
            while lex.kind != "end":
                self._plain_facts(items)
                if lex.kind == "end":
                    break
                item = self._recover(self.item)
                if item is not None:
                    items.append(item)
        except UnterminatedString as error:
            self.errors.extend(error.diagnostics)
        except _TooManyErrors:
            pass
        if self.errors:
            raise ParseError(self.errors)
        return items

    def refuse_surrogates(self) -> None:
        """Raise ParseError for text that cannot be encoded as UTF-8."""
        try:
            self.source.text.encode()
        except UnicodeEncodeError as error:
            span = Span(self.source, error.start, error.end)
            raise ParseError([Diagnostic("parse", "lone surrogates are not text", span)]) from None

    def _recover(self, read: Callable[[], _Node]) -> _Node | None:
        """Return what ``read`` parses; after a syntax error, record the error, skip the clause and return None."""
        try:
            return read()
        except UnterminatedString:
            raise
        except ParseError as error:
            self.errors.extend(error.diagnostics)
            if len(self.errors) >= MAX_ERRORS:
                raise _TooManyErrors from None
            self._skip_clause()
            return None

    def _skip_clause(self) -> None:
        """Move to the token after the next full stop (or exclamation mark of a package line)."""
        lex = self.lex
        lex.depth = 0
        while lex.kind != "end":
            at_end = lex.kind == "." or (
                lex.kind == "!" and self.source.text[lex.end : lex.end + 1] in ("", "\n", "\r")
            )
            while True:
                skipped = _SKIPPABLE.match(self.source.text, lex.end)
                try:
                    lex.read_at(lex.end if skipped is None else skipped.end())
                    break
                except UnterminatedString:
                    raise
                except ParseError:
                    pass  # the error of this clause was reported
            if at_end:
                return

    def _plain_facts(self, items: list[Any]) -> None:
        """Append to ``items`` the plain ground facts that start at the current token: a fast path."""
        lex = self.lex
        if lex.kind != "name":
            return
        text, constant, plain_fact = self.source.text, self.constants.__getitem__, self.plain_fact
        match_fact, find_args = _FACT.match, _ARG_PATTERN.findall
        position = lex.start
        while True:
            match = match_fact(text, position)
            if match is None:
                break
            predicate = match[1]
            if predicate in KEYWORDS:
                break
            # One character more than the arguments: _ARG looks ahead to the character after the last argument.
            try:
                args = tuple(map(constant, find_args(text, match.start(2), match.end(2) + 1)))
            except KeyError:
                break  # the slow path reports the problem
            start, position = match.start(1), match.end()
            items.append(plain_fact(predicate, args, start, match.end(3), position))
        if position != lex.start:
            self._recover(lambda: lex.read_at(position))

    def plain_fact(self, predicate: str, args: tuple[syntax.Constant, ...], start: int, atom_end: int, end: int) -> Any:
        """Return a fact of the fast path; its atom ends at the offset ``atom_end``, its full stop at ``end``."""
        source, new_tuple = self.source, tuple.__new__  # faster than Span(…)
        head = syntax.Atom(predicate, args, new_tuple(Span, (source, start, atom_end)))
        return syntax.Clause(head, None, (), (), new_tuple(Span, (source, start, end)))

    def package(self, keyword: str) -> syntax.Package:
        """Parse ``Package name [attributes]!`` or ``Use name [attributes]!``."""
        start = self.lex.start
        self.expect(keyword)
        name, name_span = self.lex.text, self.lex.span()
        if self.lex.kind in ("variable", "dot_type"):
            self.lex.fail("a package name is written in lower case")
        self.expect("name", "a package name")
        if name != name.lower() or name.startswith((":", "fn:")):
            self.lex.fail(f"{name} is not a package name", name_span, "use lower-case letters, digits, '_' and dots")
        attributes = self.atoms() if self.lex.kind == "[" else ()
        self.expect("!")
        return syntax.Package(name, attributes, self.span_from(start))

    def item(self) -> Any:
        """Parse a declaration or a clause."""
        lex = self.lex
        lex.depth = 0
        if lex.kind == "Decl":
            return self.decl()
        if lex.kind in ("Package", "Use"):
            lex.fail(f"{lex.kind} stands only at the top of a file", fix="move it before the first clause")
        return self.clause()

    def decl(self) -> syntax.Decl:
        """Parse ``Decl p(X, Y) temporal descr […] bound […] inclusion […].``"""
        lex = self.lex
        start = lex.start
        lex.advance()
        atom = self.atom("a declaration")
        for argument in atom.args:
            if not isinstance(argument, syntax.Variable):
                lex.fail("arguments of a Decl are variables", atom.span, "write Decl p(X, Y) …")
        temporal = self.accept("temporal")
        descr = self.atoms() if self.accept("descr") else ()
        bounds: list[tuple[syntax.Term, ...]] = []
        while self.accept("bound"):
            self.open("[")
            bounds.append(self.terms("]"))
        inclusion = self.atoms() if self.accept("inclusion") else ()
        if lex.kind in ("temporal", "descr", "bound"):
            fix = "the order is: atom, temporal, descr […], bound […], inclusion […]"
            lex.fail(f"{lex.kind} stands in the wrong place", fix=fix)
        self.full_stop(start)
        return syntax.Decl(atom, temporal, descr, tuple(bounds), inclusion, self.span_from(start))

    def clause(self) -> syntax.Clause:
        """Parse ``head @[…] :- premises |> transforms.``"""
        lex = self.lex
        start = lex.start
        head = self.atom("a clause")
        annotation = self.annotation() if lex.kind == "@" else None
        premises: list[syntax.Premise] = []
        transforms: list[syntax.Transform] = []
        if self.accept(":-"):
            premises.append(self.premise())
            while self.accept(","):
                if lex.kind in (".", "|>"):
                    break  # the comma was a trailing comma
                premises.append(self.premise())
            while lex.kind == "|>":
                transforms.append(self.transform())
        self.full_stop(start)
        return syntax.Clause(head, annotation, tuple(premises), tuple(transforms), self.span_from(start))

    def transform(self) -> syntax.Transform:
        """Parse ``|> do fn:group_by(…), let X = fn:…``"""
        lex = self.lex
        start = lex.start
        lex.advance()
        do: syntax.Apply | None = None
        lets: list[syntax.Let] = []
        if self.accept("do"):
            function_start = lex.start
            expression = self.term()
            if not isinstance(expression, syntax.Apply):
                lex.fail("do takes a function", self.span_from(function_start), "write do fn:group_by(X), let …")
            do = expression
        elif lex.kind == "let":
            lets.append(self.let())
        else:
            lex.fail("a transform starts with do or let", fix="write |> do fn:group_by(X), let N = fn:count()")
        while self.accept(","):
            lets.append(self.let())
        return syntax.Transform(do, tuple(lets), self.span_from(start))

    def let(self) -> syntax.Let:
        lex = self.lex
        start = lex.start
        self.expect("let")
        if lex.kind != "variable":
            lex.fail("let binds a variable", fix="write let X = fn:…")
        variable = self.variable()
        self.expect("=")
        expression = self.term()
        if not isinstance(expression, syntax.Apply):
            fix = "a plain value can be bound in the body with X = …"
            lex.fail("let needs a function application", self.span_from(start), fix)
        return syntax.Let(variable, expression, self.span_from(start))

    def premise(self) -> syntax.Premise:
        """Parse a literal, an equality or a comparison."""
        lex = self.lex
        start = lex.start
        negated = self.accept("!")
        temporal_operator = self.operator() if lex.kind in ("<-", "<+", "[-", "[+") else None
        left = self.atom("a negated premise") if negated else self.term_or_atom()
        if negated and (lex.kind in COMPARISONS or lex.kind in ("=", "!=")):
            lex.fail("a comparison cannot be negated", fix="use the opposite comparison")
        annotation = self.annotation() if lex.kind == "@" else None
        symbol = lex.kind
        if not negated and (symbol in COMPARISONS or symbol in ("=", "!=")):
            if isinstance(left, syntax.Atom):
                lex.fail(f"{left.predicate}(…) is an atom and has no value to compare", left.span)
            if temporal_operator is not None or annotation is not None:
                lex.fail("a comparison holds at no particular time", self.span_from(start), "drop the annotation")
            lex.advance()
            right = self.term()
            span = self.span_from(start)
            if symbol in COMPARISONS:
                return syntax.Literal(syntax.Atom(COMPARISONS[symbol], (left, right), span), span=span)
            return syntax.Equality(left, right, symbol == "!=", span)
        if not isinstance(left, syntax.Atom):
            lex.fail("a premise is an atom or a comparison", self.span_from(start))
        return syntax.Literal(left, negated, temporal_operator, annotation, self.span_from(start))

    def full_stop(self, start: int) -> None:
        """Parse the full stop of the clause that begins at the offset ``start``."""
        lex = self.lex
        fix = None
        if lex.kind == "dot_type":
            fix = "leave a space after the full stop"
        elif lex.text in ("and", "or"):
            fix = "write a comma for `and`, and one clause for each alternative of `or`"
        elif lex.kind == "end" or not self.source.line_text(lex.span().line)[: lex.span().column - 1].strip():
            fix = f"end the clause that begins in line {self.source.position(start)[0]} with a full stop"
        self.expect(".", fix=fix)

    def atom(self, context: str) -> syntax.Atom:
        """Parse an atom; ``context`` is the construct that needs the atom, for messages."""
        start = self.lex.start
        if self.lex.kind != "name":
            fix = f"{self.lex.kind} is a reserved word: choose another name" if self.lex.kind in KEYWORDS else None
            self.lex.fail(f"{context} needs a predicate, found {self.current_token()}", fix=fix)
        term = self.term_or_atom()
        if not isinstance(term, syntax.Atom):
            self.lex.fail(f"{context} needs a predicate, not a function", self.span_from(start))
        return term

    def atoms(self) -> tuple[syntax.Atom, ...]:
        """Parse ``[a(), b(X)]``."""
        self.open("[")
        return tuple(self.separated("]", lambda: self.atom("this list")))

    def term(self) -> syntax.Term:
        """Parse a term; an atom is a syntax error."""
        term = self.term_or_atom()
        if isinstance(term, syntax.Atom):
            message = f"{term.predicate}(…) is an atom, a value is needed here"
            fix = "functions are written fn:name(…), and the negation of a premise !p(X)"
            self.lex.fail(message, term.span, fix)
        return term

    def term_or_atom(self) -> syntax.Term | syntax.Atom:
        lex = self.lex
        kind = lex.kind
        if kind == "variable":
            return self.variable()
        if kind == "name":
            return self.application()
        if kind == "[":
            return self.bracketed()
        if kind == "{":
            return self.struct()
        if kind == "dot_type":
            return self.dot_type()
        value: syntax.Constant
        if kind == "constant":
            value = self.constants[lex.text]
        elif kind == "number":
            value = lex.number_value()
        elif kind == "string":
            value = lex.string_value()
        elif kind == "float":
            value = Float(lex.float_value())
        elif kind == "bytes":
            value = Bytes(lex.bytes_value())
        else:
            self._refuse_term()
        lex.advance()
        return value

    def _refuse_term(self) -> NoReturn:
        kind, fix = self.lex.kind, None
        if kind in ("timestamp", "duration"):
            function = "fn:time:parse_rfc3339" if kind == "timestamp" else "fn:duration:parse"
            fix = f'as a value write {function}("…")'
        elif kind in KEYWORDS:
            fix = f"{kind} is a reserved word"
        self.lex.fail(f"a term is needed here, found {self.current_token()}", fix=fix)

    def variable(self) -> syntax.Variable:
        variable = syntax.Variable(self.lex.text, self.lex.span())
        self.lex.advance()
        return variable

    def application(self) -> syntax.Apply | syntax.Atom:
        """Parse ``fn:f(…)`` or ``p(…)``."""
        lex = self.lex
        start, name = lex.start, lex.text
        lex.advance()
        if lex.kind != "(":
            span = Span(self.source, start, start + len(name))
            if name == "not":
                lex.fail("a premise is negated with an exclamation mark", span, "write !p(X) in place of not p(X)")
            fix = f"write {name}(…), or {name}() without arguments"
            if ":" not in name:
                fix += f"; variables begin with an upper-case letter, as {name[0].upper()}{name[1:]}"
                fix += f'; as a value write "{name}" or /{name}'
            lex.fail(f"{name} needs parentheses", span, fix)
        self.open("(")
        args = self.modes() if name == "mode" and lex.kind in ("+", "-", "?") else self.terms(")")
        span = self.span_from(start)
        return syntax.Apply(name, args, span) if name.startswith("fn:") else syntax.Atom(name, args, span)

    def modes(self) -> tuple[syntax.Term, ...]:
        """Parse ``mode(+, -)``, which means ``mode("+", "-")``."""
        modes: list[syntax.Term] = []
        while self.lex.kind in ("+", "-", "?"):
            modes.append(self.lex.kind)
            self.lex.advance()
            if not self.accept(","):
                break
        self.close(")")
        return tuple(modes)

    def separated(self, closing: str, read: Callable[[], _Node]) -> list[_Node]:
        """Parse items up to the closing bracket; a trailing comma is allowed."""
        items: list[_Node] = []
        while self.lex.kind != closing:
            items.append(read())
            self.comma(closing)
        self.close(closing)
        return items

    def comma(self, closing: str) -> None:
        """Consume a comma, unless the closing bracket follows."""
        if self.lex.kind == ",":
            self.lex.advance()
        elif self.lex.kind != closing:
            self.lex.fail(f"'{closing}' or ',' is needed here, found {self.current_token()}")

    def terms(self, closing: str) -> tuple[syntax.Term, ...]:
        return tuple(self.separated(closing, self.term))

    def bracketed(self) -> syntax.Apply:
        """Parse a list, or a map if a colon follows the first element."""
        start = self.lex.start
        self.open("[")
        if self._only_comma("]") or self.lex.kind == "]":
            return syntax.Apply("fn:list", self.terms("]"), self.span_from(start))
        first = self.term()
        if self._at_colon():
            self.colon()
            entry = (first, self.term())
            self.comma("]")
            return syntax.Apply("fn:map", entry + self.entries("]"), self.span_from(start))
        self.comma("]")
        return syntax.Apply("fn:list", (first, *self.terms("]")), self.span_from(start))

    def struct(self) -> syntax.Apply:
        """Parse ``{/a: 1}`` as a function application."""
        start = self.lex.start
        self.open("{")
        self._only_comma("}")
        return syntax.Apply("fn:struct", self.entries("}"), self.span_from(start))

    def _only_comma(self, closing: str) -> bool:
        """Consume the comma of an empty ``[,]`` or ``{,}``; return whether there was a comma."""
        if not self.accept(","):
            return False
        if self.lex.kind != closing:
            self.lex.fail(f"a term is needed before ',', found {self.current_token()}")
        return True

    def entries(self, closing: str) -> tuple[syntax.Term, ...]:
        """Parse keys and values up to the closing bracket; return them flat: key, value, key, value, …"""
        return tuple(chain.from_iterable(self.separated(closing, self.entry)))

    def entry(self) -> tuple[syntax.Term, syntax.Term]:
        key = self.term()
        self.colon()
        return key, self.term()

    def dot_type(self) -> syntax.Apply:
        """Parse ``.Struct</a : /number, opt /b : /string>`` as ``fn:Struct(/a, /number, fn:opt(/b, /string))``."""
        lex = self.lex
        start, name = lex.start, lex.text[1:]
        lex.advance()
        if lex.kind != "<":
            span = Span(self.source, start, start + len(name) + 1)
            message = f".{name} starts a type and needs '<', found {self.current_token()}"
            lex.fail(message, span, "after a full stop leave a space")
        self.open("<")
        args = tuple(chain.from_iterable(self.separated(">", self._type_argument)))
        return syntax.Apply(f"fn:{name}", args, self.span_from(start))

    def _type_argument(self) -> tuple[syntax.Term, ...]:
        """Parse a type, or a label and its type; after ``opt``, label and type become one term."""
        start = self.lex.start
        if self.accept("opt"):
            return (syntax.Apply("fn:opt", self.entry(), self.span_from(start)),)
        first = self.term()
        if not self._at_colon():
            return (first,)
        self.colon()
        return first, self.term()

    def annotation(self) -> syntax.Annotation:
        """Parse ``@[…]``."""
        start = self.lex.start
        self.expect("@")
        return syntax.Annotation(self.time_bounds(), self.span_from(start))

    def operator(self) -> syntax.Operator:
        """Parse ``<-[…]``, ``[-[…]``, ``<+[…]`` or ``[+[…]``."""
        start = self.lex.start
        kind = cast(syntax.OperatorKind, self.lex.kind)
        self.lex.advance()
        return syntax.Operator(kind, self.time_bounds(), self.span_from(start))

    def time_bounds(self) -> tuple[syntax.TimeBound, ...]:
        self.expect("[")
        first = self.time_bound()
        bounds = (first, self.time_bound()) if self.accept(",") else (first,)
        self.expect("]")
        return bounds

    def time_bound(self) -> syntax.TimeBound:
        lex = self.lex
        kind, text, span = lex.kind, lex.text, lex.span()
        value: Time | Duration | syntax.Variable | syntax.Now
        if kind == "timestamp":
            value = self.timestamp(text)
        elif kind == "duration":
            value = self.duration(text)
        elif kind == "now":
            value = syntax.NOW
        elif kind == "variable":
            value = syntax.Variable(text, span)
        else:
            fix = "write a timestamp such as 2026-01-31T12:00:00Z, a duration such as 5m, a variable, now, or _"
            lex.fail(f"{self.current_token()} is not a time", fix=fix)
        lex.advance()
        if kind == "timestamp" and lex.kind in ("+", "-", "number") and lex.start == span.end:
            lex.fail("a timestamp has no zone offset", fix="write it in UTC")
        return syntax.TimeBound(value, text, span)

    def timestamp(self, text: str) -> Time:
        """Parse a timestamp in UTC; raises a syntax error beyond 64 bits of nanoseconds."""
        from manglecp.mangle.builtins.calendar import parse_rfc3339  # late: this loads all built-ins

        date, _, clock = text.rstrip("Z").partition("T")
        ns = parse_rfc3339(f"{date}T{clock or '00:00:00'}Z")
        if ns is None:
            self.lex.fail(f"{text} is not a date")
        if not INT_MIN <= ns <= INT_MAX:
            self.lex.fail(f"{text} is out of range", fix="times lie between 1677-09-21 and 2262-04-11")
        return Time(ns)

    def duration(self, text: str) -> Duration:
        """Parse a number and a unit; raises a syntax error beyond 64 bits of nanoseconds."""
        from manglecp.mangle.builtins.calendar import parse_duration  # late: this loads all built-ins

        has_days = text.endswith("d")  # a unit that parse_duration lacks
        ns = parse_duration(f"{text[:-1]}h" if has_days else text)
        assert ns is not None  # the lexer accepts only valid durations
        ns *= 24 if has_days else 1
        if ns > INT_MAX:
            self.lex.fail("duration does not fit into 64 bits of nanoseconds", fix="durations reach about 292 years")
        return Duration(ns)

    def open(self, bracket: str) -> None:
        """Consume an opening bracket; raises a syntax error if nested too deeply."""
        self.lex.depth += 1
        if self.lex.depth > MAX_NESTING:
            self.lex.fail(f"nested more than {MAX_NESTING} deep")
        self.expect(bracket)

    def close(self, bracket: str) -> None:
        self.lex.depth -= 1
        self.expect(bracket)

    def _at_colon(self) -> bool:
        return self.lex.kind == ":" or (self.lex.kind == "name" and self.lex.text[0] == ":")

    def colon(self) -> None:
        """Consume a colon, even if the lexer has joined it with the following name."""
        if not self._at_colon():
            self.expect(":")
        self.lex.read_at(self.lex.start + 1)

    def accept(self, kind: str) -> bool:
        """Consume the current token if it is of this kind; return whether it was consumed."""
        if self.lex.kind != kind:
            return False
        self.lex.advance()
        return True

    def expect(self, kind: str, what: str | None = None, fix: str | None = None) -> None:
        """Consume a token of this kind. For another token, raises a syntax error that names ``what``."""
        if self.lex.kind != kind:
            self.lex.fail(f"{what or repr(kind)} is needed here, found {self.current_token()}", fix=fix)
        self.lex.advance()

    def current_token(self) -> str:
        """Return the text of the current token for messages, in quotes and at most 40 characters long."""
        if self.lex.kind == "end":
            return "the end of the text"
        text = self.lex.text
        return f"'{text}'" if len(text) <= 40 else f"'{text[:40]}…'"

    def span_from(self, start: int) -> Span:
        """Return the span from ``start`` to the end of the last consumed token."""
        return Span(self.source, start, self.lex.previous_end)


class _TooManyErrors(Exception):
    pass


def argument_span(atom: syntax.Atom, index: int) -> Span | None:
    """Return the span of argument ``index`` of an atom; the span of the atom if the argument cannot be located."""
    argument = atom.args[index]
    if isinstance(argument, syntax.Variable | syntax.Apply) and argument.span is not None:
        return argument.span
    if atom.span is None or not _ATOM_START.match(atom.span.text):
        return atom.span  # a comparison, or an atom without a source
    lex = Lexer(atom.span.source)
    lex.read_at(atom.span.start)
    lex.advance()
    depth = position = 0
    while lex.end < atom.span.end:
        if lex.kind in ("(", "[", "{"):
            depth += 1
        elif lex.kind in (")", "]", "}"):
            depth -= 1
        elif lex.kind == "," and depth == 1:
            position += 1
        lex.depth = depth
        lex.advance()
        if position == index and depth == 1 and lex.kind != ",":
            return lex.span()  # a constant is one token
    return atom.span
