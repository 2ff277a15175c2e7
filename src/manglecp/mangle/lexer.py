"""Text to tokens, one at a time.

The lexer takes the longest token at a position and has no memory but one: how many brackets are open, because a dot
glued to a name ends the clause only outside of them (D25). It works on demand, so the parser can ask for a token to be
read again one character further on; that is how ``{/a:fn:plus(1,2)}`` is understood although ``:fn:plus`` is one token.
"""

from __future__ import annotations

import re
from typing import Final, NoReturn

from manglecp.mangle.errors import Diagnostic, ParseError
from manglecp.mangle.source import Source, Span
from manglecp.mangle.values import INT_MAX, INT_MIN

KEYWORDS: Final = frozenset(
    ["temporal", "descr", "inclusion", "now", "opt", "Package", "Use", "Decl", "bound", "let", "do"],
)

SPACE: Final = r"(?:[ \t\r\n\f]+|#[^\n]*)*+"
NAME_CHARS: Final = r"[A-Za-z0-9.\-_~%]"
CONSTANT: Final = rf"/{NAME_CHARS}+(?:/{NAME_CHARS}+)*+"
_QUOTED: Final = r"""(?:"[^"\\]*+(?:\\.[^"\\]*+)*+"|'[^'\\]*+(?:\\.[^'\\]*+)*+'|`[^`\\]*+(?:\\.[^`\\]*+)*+`)"""
_INNER: Final = r"(?:[A-Za-z0-9:_]|\.[A-Za-z0-9:_])*+"
# An operator is `<-`, `<+`, `[-` or `[+` in front of its window; elsewhere the sign belongs to a number (D25).
_WINDOW: Final = rf"(?={SPACE}\[)"

_TOKEN: Final = re.compile(
    SPACE
    + "(?:"
    + "|".join(
        [
            rf"(?P<string>{_QUOTED})",
            rf"(?P<bytes>b{_QUOTED})",
            rf"(?P<constant>{CONSTANT})",
            r"(?P<timestamp>\d{4}-\d{2}-\d{2}(?:T\d{2}:\d{2}:\d{2}(?:\.\d+)?Z?)?)",
            r"(?P<float>-?(?:\d+\.\d+(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+))",
            r"(?P<duration>\d+(?:ms|d|h|m|s))",
            r"(?P<number>-?\d+)",
            rf"(?P<name>:?[a-z]{_INNER})",
            rf"(?P<dot_type>\.[A-Z]{_INNER})",
            r"(?P<variable>_|[A-Z][A-Za-z0-9_]*+)",
            rf"(?P<operator>[<\[][-+]{_WINDOW})",
            r"(?P<punctuation>:-|⟸|!=|<=|>=|\|>|[()\[\]{}=,!<>@.:?+\-])",
            r"(?P<end>\Z)",
            r"(?P<unknown>.)",
        ]
    )
    + ")",
    re.DOTALL | re.ASCII,
)
_AFTER_DOT: Final = re.compile(r"[ \t\r\n\f#]|\Z")
_CLAUSE_CAN_FOLLOW: Final = re.compile(SPACE + r"(?:[A-Za-z:]|\Z)")
_COMMENT_OR_QUOTED: Final = re.compile(rf"#[^\n]*|{_QUOTED}", re.DOTALL)
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
        """Make the token that starts at or after ``position`` the current one."""
        self.previous_end = position
        match = _TOKEN.match(self.whole, position)
        assert match is not None  # the last alternatives take anything
        kind = match.lastgroup
        assert kind is not None
        text = match[kind]
        self.start, self.end = match.span(kind)
        if kind == "punctuation" or kind == "operator":
            kind = ":-" if text == "⟸" else text
        elif kind == "name" or kind == "variable":
            if text in KEYWORDS:
                kind = text
        elif kind == "constant":
            if text[-1] == "." and self._dot_ends_clause():
                text = text[:-1]
                self.end -= 1
        elif kind == "unknown":
            self._refuse_character(text)
        self.kind = kind
        self.text = text

    def _dot_ends_clause(self) -> bool:
        """``/a.`` is the name ``/a`` and a full stop if a clause can end here and another begin."""
        return (
            self.depth == 0
            and self.whole[self.end - 2] != "/"
            and _AFTER_DOT.match(self.whole, self.end) is not None
            and _CLAUSE_CAN_FOLLOW.match(self.whole, self.end) is not None
        )

    def span(self) -> Span:
        return Span(self.source, self.start, self.end)

    def fail(self, message: str, span: Span | None = None, fix: str | None = None) -> NoReturn:
        raise ParseError([Diagnostic("parse", message, span or self.span(), fix=fix)])

    def _refuse_character(self, character: str) -> NoReturn:
        if character in "\"'`":
            raise UnterminatedString(
                [Diagnostic("parse", "string is never closed", self.span(), fix=f"add the closing {character}")]
            )
        shown = f"'{character}'" if character.isprintable() else f"U+{ord(character):04X}"
        fix = "a name is a slash and at least one character, such as /a" if character == "/" else None
        self.fail(f"unexpected character {shown}", fix=fix)

    def string_value(self) -> str:
        """What a text literal says."""
        body = self.text[1:-1]
        if "\\" not in body and "\r" not in body:
            return body

        def decode(match: re.Match[str]) -> str:
            two, point, other = match.groups()
            if two is not None:
                code = int(two, 16)
                if code > 0x7F:
                    self._bad_escape(match, 1, f"\\x{two} is above 7f", 'write \\u{…}, or a byte string b"…"')
                return chr(code)
            if point is not None:
                code = int(point, 16)
                if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
                    self._bad_escape(match, 1, f"\\u{{{point}}} is not a character")
                return chr(code)
            return "\n" if other is None else self._simple_escape(match, other, 1)

        return _ESCAPE.sub(decode, body)

    def bytes_value(self) -> bytes:
        """What a byte literal says: ``\\xHH`` is that byte, other characters are their UTF-8."""
        body = self.text[2:-1]
        out = bytearray()
        at = 0
        for match in _ESCAPE.finditer(body):
            two, point, other = match.groups()
            out += body[at : match.start()].encode()
            at = match.end()
            if two is not None:
                out.append(int(two, 16))
            elif point is not None:
                code = int(point, 16)
                if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
                    self._bad_escape(match, 2, f"\\u{{{point}}} is not a character")
                out += chr(code).encode()
            elif other is None:
                out += match[0].encode()
            else:
                out += self._simple_escape(match, other, 2).encode()
        out += body[at:].encode()
        return bytes(out)

    def _simple_escape(self, match: re.Match[str], character: str, prefix: int) -> str:
        decoded = _SIMPLE_ESCAPES.get(character)
        if decoded is None:
            shown = character if character.isprintable() else f"U+{ord(character):04X}"
            known = r"known escapes: \n \t \" \' \\ \xHH \u{HHHH}"
            self._bad_escape(match, prefix, f"unknown escape \\{shown}", known)
        return decoded

    def _bad_escape(self, match: re.Match[str], prefix: int, message: str, fix: str | None = None) -> NoReturn:
        start = self.start + prefix + match.start()
        self.fail(message, Span(self.source, start, start + len(match[0])), fix)

    def number_value(self) -> int:
        digits = self.text.lstrip("-").lstrip("0")
        if len(digits) <= 19:
            number = int(self.text)
            if INT_MIN <= number <= INT_MAX:
                return number
        return self.fail("number does not fit into 64 bits", fix=f"numbers lie between {INT_MIN} and {INT_MAX}")


class UnterminatedString(ParseError):
    """Nothing after the opening quote can be trusted to be program text."""


def comments(source: Source) -> list[Span]:
    """Where the comments of a well-formed source stand."""
    return [
        Span(source, match.start(), match.end())
        for match in _COMMENT_OR_QUOTED.finditer(source.text)
        if match[0][0] == "#"
    ]
