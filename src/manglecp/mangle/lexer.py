"""The lexer: it reads one token at a time, on demand.

The token at a position is the first matching alternative of ``_TOKEN``. Besides the position, the only state is the
number of open brackets, because the dot after ``/a`` ends the clause only outside of brackets. The parser can read a
token again from the second character: in ``{/a:fn:plus(1,2)}`` the lexer reads ``:fn:plus`` as one token, but the colon
is separate.
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
    ["temporal", "descr", "inclusion", "now", "opt", "Package", "Use", "Decl", "bound", "let", "do"]
)

# Possessive and atomic groups match wrongly in Python 3.11 before 3.11.5, so none are used. Every pattern below can
# match a text in one way only, so a failed match does not backtrack into the pattern.
GAP: Final = r"[ \t\r\n\f]*"
CONSTANT: Final = r"(?:/[A-Za-z0-9.\-_~%]+)+"  # a name such as /a/b
_IDENTIFIER_REST: Final = r"[A-Za-z0-9:_]*(?:\.[A-Za-z0-9:_]+)*"  # what follows the first letter
_PLAIN_STRING: Final = r"""(?:"[^"\\]*"|'[^'\\]*'|`[^`\\]*`)"""  # without escapes

_TOKEN: Final = re.compile(
    GAP
    + "(?:"
    + "|".join(
        [
            rf"(?P<string>{_PLAIN_STRING})",
            rf"(?P<bytes>b{_PLAIN_STRING})",
            r"(?P<quote>b?[\"'`])",  # a string with escapes
            rf"(?P<constant>{CONSTANT})",
            r"(?P<timestamp>\d{4}-\d{2}-\d{2}(?:T\d{2}:\d{2}:\d{2}(?:\.\d+)?Z?)?)",
            r"(?P<float>-?(?:\d+\.\d+(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+))",
            r"(?P<duration>\d+(?:ms|d|h|m|s))",
            r"(?P<number>-?\d+)",
            rf"(?P<name>:?[a-z]{_IDENTIFIER_REST})",
            rf"(?P<dot_type>\.[A-Z]{_IDENTIFIER_REST})",
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
_WHITE_SPACE: Final = re.compile(GAP)
_COMMENT_OR_QUOTE: Final = re.compile("#[^\\n]*|[\"'`]")
_QUOTE_OR_BACKSLASH: Final = {quote: re.compile(rf"[{quote}\\]") for quote in "\"'`"}
# Groups: the digits of \xHH, the digits of \u{H…}, another escaped character; without a group, a line end with CR.
_ESCAPE: Final = re.compile(r"\\(?:x([0-9A-Fa-f]{2})|u\{([0-9A-Fa-f]{4,6})\}|(\r\n|.))|\r\n?", re.DOTALL)
_SIMPLE_ESCAPES: Final = {"n": "\n", "t": "\t", '"': '"', "'": "'", "\\": "\\", "\n": "\n", "\r": "\n", "\r\n": "\n"}


_FOREIGN_COMMENTS: Final = ("//", "/*", "%", ";")


class Lexer:
    """A cursor over one source. ``kind``, ``text``, ``start`` and ``end`` describe the current token.

    The kind of punctuation, operators and keywords is their text: ``kind == ","``, ``kind == "Decl"``. The parser
    maintains ``depth``, the number of open brackets. ``previous_end`` is the end of the token before the current one.
    """

    __slots__ = ("depth", "end", "kind", "previous_end", "source", "source_text", "start", "text")

    def __init__(self, source: Source) -> None:
        self.source = source
        self.source_text = source.text
        self.depth = 0
        self.kind = ""
        self.text = ""
        self.start = self.end = self.previous_end = 0

    def advance(self) -> None:
        self.read_at(self.end)

    def read_at(self, position: int) -> None:
        """Make the first token at or after ``position`` the current one."""
        self.previous_end = position
        kind = "comment"
        while kind == "comment":
            match = _TOKEN.match(self.source_text, position)
            assert match is not None  # "end" or "unknown" matches everywhere
            kind = match.lastgroup or "end"
            self.start, self.end = match.span(kind)
            position = self.end
        text = self.source_text[self.start : self.end]
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
            # `<-`, `<+`, `[-` and `[+` are operators in front of a window; elsewhere the sign belongs to a number.
            if self._next_character(self.end) != "[":
                text = text[0]
                self.end -= 1
            kind = text
        elif kind == "quote":
            kind = "bytes" if text[0] == "b" else "string"
            self.end = self._end_of_string(text[-1])
            text = self.source_text[self.start : self.end]
        elif kind == "unknown":
            character_text = f"'{text}'" if text.isprintable() else f"U+{ord(text):04X}"
            fix = "a name is a slash and at least one character, such as /a" if text == "/" else None
            if self.source_text.startswith(_FOREIGN_COMMENTS, self.start):
                fix = "a comment begins with #"
            self.fail(f"unexpected character {character_text}", fix=fix)
        self.kind = kind
        self.text = text

    def _next_character(self, position: int) -> str:
        """Return the first character after spaces and comments; empty at the end."""
        start = skip_space(self.source_text, position)
        return self.source_text[start : start + 1]

    def _dot_ends_clause(self) -> bool:
        """Return whether the dot of ``/a.`` is a full stop: a clause can end there, and another begin after it."""
        if self.depth or self.source_text[self.end - 2] == "/":  # in ``/.`` the dot belongs to the name
            return False
        after_dot = self.source_text[self.end : self.end + 1]
        next_character = self._next_character(self.end)
        return after_dot in ("", " ", "\t", "\r", "\n", "\f", "#") and (
            next_character in ("", ":") or (next_character.isascii() and next_character.isalpha())
        )

    def _end_of_string(self, quote: str) -> int:
        position = self.end
        while (stop := _QUOTE_OR_BACKSLASH[quote].search(self.source_text, position)) is not None:
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
        r"""Decode a byte literal: ``\xHH`` is one byte, other characters are encoded as UTF-8."""
        text = _ESCAPE.sub(lambda match: self._unescaped(match, 2), self.text[2:-1])
        return text.encode(errors="surrogateescape")

    def _unescaped(self, match: re.Match[str], opening_length: int) -> str:
        r"""Decode an escape of a string (``opening_length`` 1) or of bytes (2); bytes above 7f become surrogates."""
        hex_byte, code_point, character = match.groups()
        if hex_byte is not None:
            code = int(hex_byte, 16)
            if code <= 0x7F:
                return chr(code)
            if opening_length == 1:
                self._bad_escape(match, 1, f"\\x{hex_byte} is above 7f", 'write \\u{…}, or a byte string b"…"')
            return chr(0xDC00 + code)
        if code_point is not None:
            code = int(code_point, 16)
            if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
                self._bad_escape(match, opening_length, f"\\u{{{code_point}}} is not a character")
            return chr(code)
        if character is None:  # a line end with CR
            return "\n" if opening_length == 1 else match[0]
        decoded = _SIMPLE_ESCAPES.get(character)
        if decoded is None:
            character_text = character if character.isprintable() else f"U+{ord(character):04X}"
            fix = r"known escapes: \n \t \" \' \\ \xHH \u{HHHH}"
            self._bad_escape(match, opening_length, f"unknown escape \\{character_text}", fix)
        return decoded

    def _bad_escape(self, match: re.Match[str], opening_length: int, message: str, fix: str | None = None) -> NoReturn:
        start = self.start + opening_length + match.start()
        self.fail(message, Span(self.source, start, start + len(match[0])), fix)

    def number_value(self) -> int:
        """Return the value; raises a syntax error beyond 64 bits."""
        digits = self.text.lstrip("-").lstrip("0") or "0"
        if len(digits) <= 19:  # int64 has at most 19; int() refuses thousands of digits
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
    """A string has no closing quote, so nothing after its opening quote can be parsed."""


def skip_space(text: str, position: int) -> int:
    """Return the position after the white space and comments at ``position``."""
    while True:
        gap = _WHITE_SPACE.match(text, position)
        assert gap is not None  # the pattern matches the empty text too
        position = gap.end()
        if not text.startswith("#", position):
            return position
        line_end = text.find("\n", position)
        position = len(text) if line_end < 0 else line_end


def find_comments(source: Source) -> list[Span]:
    """Return the spans of the comments of a source that parses."""
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
