"""Tokens on demand.

The lexer takes the longest token at a position. Its only state is the number of open brackets, because a dot after a
name ends the clause only outside of them (D25). The parser can have a token read again one character further on, as for
``{/a:fn:plus(1,2)}``, where ``:fn:plus`` is one token.
"""

from __future__ import annotations

import math
import re
from typing import Final, NoReturn

from manglecp.base.diagnostic import Diagnostic
from manglecp.base.source import Source, Span
from manglecp.mangle.errors import ParseError
from manglecp.mangle.values import INT_MAX, INT_MIN

KEYWORDS: Final = frozenset(
    ["temporal", "descr", "inclusion", "now", "opt", "Package", "Use", "Decl", "bound", "let", "do"],
)

# No possessive or atomic groups: they match wrongly in Python 3.11 before 3.11.5. Every pattern below can match in one
# way only, so nothing backtracks over it.
GAP: Final = r"[ \t\r\n\f]*"
CONSTANT: Final = r"(?:/[A-Za-z0-9.\-_~%]+)+"
_INNER: Final = r"[A-Za-z0-9:_]*(?:\.[A-Za-z0-9:_]+)*"
_PLAIN: Final = r"""(?:"[^"\\]*"|'[^'\\]*'|`[^`\\]*`)"""

_TOKEN: Final = re.compile(
    GAP
    + "(?:"
    + "|".join(
        [
            rf"(?P<string>{_PLAIN})",
            rf"(?P<bytes>b{_PLAIN})",
            r"(?P<quote>b?[\"'`])",  # a string with escapes
            rf"(?P<constant>{CONSTANT})",
            r"(?P<timestamp>\d{4}-\d{2}-\d{2}(?:T\d{2}:\d{2}:\d{2}(?:\.\d+)?Z?)?)",
            r"(?P<float>-?(?:\d+\.\d+(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+))",
            r"(?P<duration>\d+(?:ms|d|h|m|s))",
            r"(?P<number>-?\d+)",
            rf"(?P<name>:?[a-z]{_INNER})",
            rf"(?P<dot_type>\.[A-Z]{_INNER})",
            r"(?P<variable>_|[A-Z][A-Za-z0-9_]*)",
            r"(?P<operator>[<\[][-+])",
            r"(?P<punctuation>:-|⟸|!=|<=|>=|\|>|[()\[\]{}=,!<>@.:?+\-])",
            r"(?P<comment>#[^\n]*)",
            r"(?P<end>\Z)",
            r"(?P<unknown>.)",
        ]
    )
    + ")",
    re.DOTALL | re.ASCII,
)
_GAP_ONLY: Final = re.compile(GAP)
_COMMENT_OR_QUOTE: Final = re.compile("#[^\\n]*|[\"'`]")
_STOPS: Final = {quote: re.compile(rf"[{quote}\\]") for quote in "\"'`"}
_ESCAPE: Final = re.compile(r"\\(?:x([0-9A-Fa-f]{2})|u\{([0-9A-Fa-f]{4,6})\}|(\r\n|.))|\r\n?", re.DOTALL)
_SIMPLE_ESCAPES: Final = {"n": "\n", "t": "\t", '"': '"', "'": "'", "\\": "\\"} | dict.fromkeys(
    ("\n", "\r", "\r\n"), "\n"
)


class Lexer:
    """A cursor over one source. ``kind``, ``text``, ``start`` and ``end`` describe the current token.

    Punctuation, operators and keywords are their own kind: ``kind == ","``, ``kind == "Decl"``.
    """

    __slots__ = ("depth", "end", "kind", "previous_end", "source", "start", "text", "whole")

    def __init__(self, source: Source) -> None:
        self.source = source
        self.whole = source.text
        self.depth = 0
        self.kind = ""
        self.text = ""
        self.start = self.end = self.previous_end = 0

    def advance(self) -> None:
        self.read_at(self.end)

    def read_at(self, position: int) -> None:
        """Move to the token that starts at or after ``position``."""
        self.previous_end = position
        kind = "comment"
        while kind == "comment":
            match = _TOKEN.match(self.whole, position)
            assert match is not None  # the last alternatives take anything
            kind = match.lastgroup or "end"
            self.start, self.end = match.span(kind)
            position = self.end
        text = self.whole[self.start : self.end]
        if kind == "punctuation":
            kind = ":-" if text == "⟸" else text
        elif kind == "name" or kind == "variable":
            if text in KEYWORDS:
                kind = text
        elif kind == "constant":
            if text[-1] == "." and self._dot_ends_clause():
                text = text[:-1]
                self.end -= 1
        elif kind == "operator":
            # `<-`, `<+`, `[-` and `[+` stand in front of a window; elsewhere the sign belongs to a number (D25).
            if self._next_character(self.end) != "[":
                text = text[0]
                self.end -= 1
            kind = text
        elif kind == "quote":
            kind = "bytes" if text[0] == "b" else "string"
            self.end = self._end_of_string(text[-1])
            text = self.whole[self.start : self.end]
        elif kind == "unknown":
            shown = f"'{text}'" if text.isprintable() else f"U+{ord(text):04X}"
            fix = "a name is a slash and at least one character, such as /a" if text == "/" else None
            self.fail(f"unexpected character {shown}", fix=fix)
        self.kind = kind
        self.text = text

    def _next_character(self, position: int) -> str:
        at = skip_space(self.whole, position)
        return self.whole[at : at + 1]

    def _dot_ends_clause(self) -> bool:
        """Split ``/a.`` into the name ``/a`` and a full stop if a clause can end here and another begin."""
        if self.depth or self.whole[self.end - 2] == "/":
            return False
        behind = self.whole[self.end : self.end + 1]
        following = self._next_character(self.end)
        return behind in ("", " ", "\t", "\r", "\n", "\f", "#") and (
            following in ("", ":") or (following.isascii() and following.isalpha())
        )

    def _end_of_string(self, quote: str) -> int:
        position = self.end
        while (stop := _STOPS[quote].search(self.whole, position)) is not None:
            if stop[0] == quote:
                return stop.end()
            position = stop.end() + 1
        fix = f"add the closing {quote}"
        raise UnterminatedString([Diagnostic("parse", "string is never closed", self.span(), fix=fix)])

    def span(self) -> Span:
        return Span(self.source, self.start, self.end)

    def fail(self, message: str, span: Span | None = None, fix: str | None = None) -> NoReturn:
        """Raise a syntax error, by default at the current token."""
        raise ParseError([Diagnostic("parse", message, span or self.span(), fix=fix)])

    def string_value(self) -> str:
        body = self.text[1:-1]
        if "\\" not in body and "\r" not in body:
            return body
        return _ESCAPE.sub(lambda match: self._unescaped(match, 1), body)

    def bytes_value(self) -> bytes:
        r"""Decode a byte literal: ``\xHH`` is that byte, other characters are their UTF-8."""
        text = _ESCAPE.sub(lambda match: self._unescaped(match, 2), self.text[2:-1])
        return text.encode(errors="surrogateescape")

    def _unescaped(self, match: re.Match[str], prefix: int) -> str:
        """Decode one escape. ``prefix`` is 2 in a byte literal, whose bytes above 7f become surrogates."""
        two, point, other = match.groups()
        if two is not None:
            code = int(two, 16)
            if code <= 0x7F:
                return chr(code)
            if prefix == 1:
                self._bad_escape(match, 1, f"\\x{two} is above 7f", 'write \\u{…}, or a byte string b"…"')
            return chr(0xDC00 + code)
        if point is not None:
            code = int(point, 16)
            if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
                self._bad_escape(match, prefix, f"\\u{{{point}}} is not a character")
            return chr(code)
        if other is None:  # the end of a line
            return "\n" if prefix == 1 else match[0]
        decoded = _SIMPLE_ESCAPES.get(other)
        if decoded is None:
            shown = other if other.isprintable() else f"U+{ord(other):04X}"
            fix = r"known escapes: \n \t \" \' \\ \xHH \u{HHHH}"
            self._bad_escape(match, prefix, f"unknown escape \\{shown}", fix)
        return decoded

    def _bad_escape(self, match: re.Match[str], prefix: int, message: str, fix: str | None = None) -> NoReturn:
        start = self.start + prefix + match.start()
        self.fail(message, Span(self.source, start, start + len(match[0])), fix)

    def number_value(self) -> int:
        """Return the value; raises a syntax error beyond 64 bits."""
        digits = self.text.lstrip("-").lstrip("0") or "0"
        if len(digits) <= 19:
            number = -int(digits) if self.text[0] == "-" else int(digits)
            if INT_MIN <= number <= INT_MAX:
                return number
        return self.fail("number does not fit into 64 bits", fix=f"numbers lie between {INT_MIN} and {INT_MAX}")

    def float_value(self) -> float:
        """Return the value; raises a syntax error if it is not finite."""
        value = float(self.text)
        if math.isinf(value):
            self.fail("number does not fit into a 64-bit float")
        return value


class UnterminatedString(ParseError):
    """Text after the opening quote cannot be trusted to be program text."""


def skip_space(text: str, position: int) -> int:
    """Return the position after spaces and comments."""
    while True:
        gap = _GAP_ONLY.match(text, position)
        assert gap is not None  # it may be empty
        position = gap.end()
        if not text.startswith("#", position):
            return position
        line_end = text.find("\n", position)
        position = len(text) if line_end < 0 else line_end


def find_comments(source: Source) -> list[Span]:
    """Return the positions of the comments of a well-formed source."""
    comments: list[Span] = []
    lex = Lexer(source)
    position = 0
    while (match := _COMMENT_OR_QUOTE.search(source.text, position)) is not None:
        position = match.end()
        if match[0][0] == "#":
            comments.append(Span(source, match.start(), match.end()))
        else:
            lex.start, lex.end = match.span()
            position = lex._end_of_string(match[0])
    return comments
