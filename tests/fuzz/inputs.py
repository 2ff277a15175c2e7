"""Inputs that no one would write, made from a seed: each is meant to be refused, or understood, but never to crash."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from random import Random
from typing import Final

CONFORMANCE: Final = Path(__file__).parents[1] / "conformance" / "mangle"

TOKENS: Final = (
    *("(", ")", "[", "]", "{", "}", "<", ">", ",", ".", ":", ";", "!", "?", "+", "-", "|", "=", "@", "#", "\\", "/"),
    *(":-", "⟸", "!=", "<=", ">=", "|>", "<-", "<+", "[-", "[+", "<-[", "[-[", "@[", "]", ")", ").", ".\n"),
    *(" ", " ", "\n", "\t", "\r\n", "\f", "\v", "\0", "\u00a0", "\ufeff", "\U0001f600", "é", "# c\n"),
    *("temporal", "descr", "inclusion", "now", "opt", "Package", "Use", "Decl", "bound", "let", "do"),
    *("X", "Y", "Z", "_", "X1", "Some_name", "p", "q", "r", "zoo.bird", "mode", "doc", "fundep", "merge", "deferred"),
    *("p(X)", "q(X, Y)", "r(_)", "p(1).", 'q(/a, "b").', "p(X) :- q(X, Y).", "Decl p(X).", "Package zoo!", "Use a!"),
    *("fn:plus(", "fn:list(", "fn:pair(", "fn:group_by(", "fn:count()", "fn:sum(X)", "fn:time:now()", "fn:nothing("),
    *(":lt(", ":match_cons(", ":list:member(X, ", ":filter(", ":time:lt("),
    *("/a", "/a/b", "/a.", "/", "//", "/number", "/string", "/any", "/name", ".List<", ".Struct<", ".Union<", ".X"),
    *("0", "1", "-1", "007", "9223372036854775807", "9223372036854775808", "-9223372036854775808", "1.5", ".5", "1e5"),
    *("1.0e400", "1.0e-400", "1e", "1.", "1.e5", "-", "--1", "2026-01-15", "2026-01-15T12:00:00Z", "2026-99-99"),
    *("0001-01-01", "9999-12-31T23:59:60", "5m", "5ms", "7d", "99999999999999999999h", "1h30m"),
    *('"a"', "'b'", "`c`", '"', "'", "`", 'b"x"', "b'", '"\\n"', '"\\x7f"', '"\\xff"', 'b"\\xff"', '"\\u{1f600}"'),
    *('"\\u{d800}"', '"\\u{110000}"', '"\\q"', '"\\\n"', '"\r"'),
)
_INTERESTING: Final = "()[]{}<>,.:;!?+-|=@#\"'`\\/_ \n\r\t\x00\x7f09azAZ⟸é\U0001f600"


@cache
def corpus() -> tuple[str, ...]:
    """The short conformance programs."""
    texts = [path.read_bytes().decode() for path in sorted(CONFORMANCE.glob("*.mg"))]
    return tuple(text for text in texts if 0 < len(text) < 1_500)


@cache
def _lines() -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(text.splitlines(keepends=True)) for text in corpus())


def text(seed: int) -> bytes:
    """A short text to be parsed: bytes, tokens, or broken lines. The same seed gives the same text."""
    random = Random(seed)
    choice = random.random()
    if choice < 0.08:
        return random.randbytes(random.randrange(40))
    if choice < 0.40:
        return soup(random).encode()
    lines = random.choice(_lines())
    first = random.randrange(len(lines))
    return mutant(random, "".join(lines[first : first + random.randrange(1, 5)])).encode()


def program(seed: int) -> bytes:
    """A program to be loaded and perhaps evaluated: a whole one with little broken, so that some get far."""
    random = Random(seed)
    return mutant(random, random.choice(corpus())).encode()


def soup(random: Random) -> str:
    """Tokens in any order, mostly with nothing between them."""
    glue = random.choice(("", " ", " "))
    return glue.join(random.choices(TOKENS, k=random.randrange(1, 16)))


def mutant(random: Random, text: str) -> str:
    """The text with a few things broken."""
    for _ in range(random.choice((0, 1, 1, 1, 2, 3, 5))):
        text = mutate(random, text)
    return text


def mutate(random: Random, text: str) -> str:
    """Splice, delete, duplicate, flip or insert at a random place."""
    start = random.randrange(len(text) + 1)
    end = min(len(text), start + random.choice((1, 1, 2, 5, 20)))
    how = random.randrange(6)
    if how == 0:
        return text[:start] + text[end:]
    if how == 1:
        return text[:end] + text[start:]
    if how == 2:
        return text[:start] + random.choice(TOKENS) + text[start:]
    if how == 3:
        return text[:start] + random.choice(TOKENS) + text[end:]
    if how == 4:
        return text[:start] + random.choice(_INTERESTING) + text[start + 1 :]
    other = random.choice(random.choice(_lines()))
    cut = random.randrange(len(other) + 1)
    return text[:start] + other[cut:] + text[end:]
