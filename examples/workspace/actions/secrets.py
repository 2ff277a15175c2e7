"""What looks like a credential, and the text without it.

Everything that leaves an action as text of the repository, of git or of tests passes here. A secret is replaced where
it stands; the line breaks in it stay, so that lines keep their numbers. Searching happens in the text that is left, or
somebody could ask for a secret one letter at a time.

Patterns find what has a form. What is called a password and looks like a word in prose is left alone: code that talks
about passwords has to stay readable.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from typing import Final, NamedTuple

__all__ = ["MARK", "Found", "found", "is_redacted", "redacted", "redacted_diff", "secret_lines"]

MARK: Final = "[redacted: {}]"
_CODED: Final = re.compile(r"[A-Za-z0-9+/]{60,80}={0,2}")
_MARKED: Final = re.compile(r"\[redacted: [a-z ]+\]")


class Found(NamedTuple):
    start: int
    end: int
    kind: str


# What each of them cannot do without comes first: to look for that is what makes this quick.
_PATTERNS: Final = tuple(
    (kind, needed.split(), re.compile(pattern))
    for kind, needed, pattern in (
        (
            "private key",
            "PRIVATE",
            r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY[A-Z ]{0,10}-----"
            r"(?:(?!-----)[\s\S]){0,20000}(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY[A-Z ]{0,10}-----)?",
        ),
        ("access key", "AKIA ASIA AGPA AIDA AROA", r"\b(?:AKIA|ASIA|AGPA|AIDA|AROA)[0-9A-Z]{16}\b"),
        ("token", "ghp_ gho_ ghu_ ghs_ ghr_ github_pat_", r"\b(?:gh[pousr]_[A-Za-z0-9]{20,255}|github_pat_\w{20,255})"),
        ("token", "glpat-", r"\bglpat-[\w-]{16,255}"),
        ("token", "xox", r"\bxox[abeoprs]-[\w-]{10,255}"),
        ("token", "sk_ pk_ rk_ sk- pk- rk-", r"\b[spr]k[-_](?:live|test|proj|ant|svcacct)[-_][\w-]{12,255}"),
        ("token", "sk-", r"\bsk-[\w-]{32,255}"),
        ("token", "AIza", r"\bAIza[\w-]{30,60}"),
        ("token", "npm_ pypi- hf_ dop_v1_ glsa_ shpat_", r"\b(?:npm|pypi|hf|dop_v1|glsa|shpat)[-_][\w-]{20,255}"),
        ("token", "eyJ", r"\beyJ[\w-]{8,2000}\.eyJ[\w-]{8,4000}\.[\w-]{8,2000}"),
        ("password", "://", r"\b[a-z][a-z0-9+.-]{1,20}://[^\s/:@'\"<>{}$]{0,200}:(?P<secret>[^\s/@'\"<>{}$]{3,200})@"),
        (
            "token",
            "uthorization UTHORIZATION",
            r"(?i)\bauthorization['\"]?\s{0,3}[:=]\s{0,3}['\"]?(?:bearer|basic|token)\s+"
            r"(?P<secret>[\w.~+/=-]{12,2000})",
        ),
    )
)
_WORDS: Final = ("pass", "pwd", "secret", "credential", "token", "key")
_NAMED: Final = (
    r"(?:pass(?:wo?r?d|phrase)|pwd|secret|credential|token"
    r"|(?:api|access|private|secret|auth|signing|encryption)[_-]?key)"
)
_QUOTED: Final = re.compile(
    rf"(?i){_NAMED}s?['\"]?\s{{0,8}}(?::\s{{0,3}}[\w\[\]. |]{{1,40}}=|:=|[:=]>?)\s{{0,8}}[rbuf]{{0,2}}"
    r"(?P<quote>['\"])(?P<secret>[^'\"\s]{8,500})(?P=quote)"
)
_PLAIN: Final = re.compile(
    rf"(?m)^[ \t]*(?:export[ \t]+)?\w{{0,60}}{_NAMED.upper()}\w{{0,60}}[ \t]*=[ \t]*"
    r"(?P<secret>[^\s'\"#$<{(][^\s'\"#]{5,500})[ \t]*(?:#.*)?$"
)
_PLACEHOLDER: Final = re.compile(
    r"(?i)^(?:.*(?:example|changeme|change_me|placeholder|dummy|redacted|your[-_]).*|[x*.\-_]+|none|null|true|false)$"
)
_RANDOM: Final = 2.5
"""Bits per character from which on a text is no word."""


def found(text: str) -> list[Found]:
    """What looks like a credential, in its order; no two of them overlap."""
    spans: list[Found] = []
    for kind, needed, pattern in _PATTERNS:
        if any(part in text for part in needed):
            group = "secret" if "secret" in pattern.groupindex else 0
            spans += [Found(*match.span(group), kind) for match in pattern.finditer(text)]
    lowered = text.lower()
    if any(word in lowered for word in _WORDS):
        assigned = [match for match in _QUOTED.finditer(text) if _is_random(match["secret"])]
        assigned += [match for match in _PLAIN.finditer(text) if not _PLACEHOLDER.match(match["secret"])]
        spans += [Found(*match.span("secret"), "secret") for match in assigned]
    return _apart(spans)


def redacted(text: str) -> str:
    """The text with a mark in the place of each of them."""
    pieces, at = [], 0
    for start, end, kind in found(text):
        pieces += [text[at:start], MARK.format(kind), "\n" * text.count("\n", start, end)]
        at = end
    return "".join([*pieces, text[at:]]) if pieces else text


def secret_lines(text: str) -> frozenset[str]:
    """The lines, without their ends, that have some of it in them; such as would not show it by themselves, too."""
    pairs = zip(text.split("\n"), redacted(text).split("\n"), strict=True)
    return frozenset(line for line, seen in pairs if line != seen)


def redacted_diff(diff: str) -> str:
    """A diff without them. It may show the middle of a key only, so what is nothing but coded bytes goes as well."""
    lines = diff.split("\n")
    seen = redacted("\n".join(line[1:] for line in lines)).split("\n")
    return "\n".join(
        line[:1] + (MARK.format("coded bytes") if _CODED.fullmatch(rest) else rest)
        for line, rest in zip(lines, seen, strict=True)
    )


def is_redacted(text: str) -> bool:
    """Whether a secret was taken out of it: such a text must not be written back."""
    return _MARKED.search(text) is not None


def _apart(spans: list[Found]) -> list[Found]:
    kept: list[Found] = []
    for span in sorted(spans):
        if kept and span.start < kept[-1].end:
            kept[-1] = kept[-1]._replace(end=max(kept[-1].end, span.end))
        else:
            kept.append(span)
    return kept


def _is_random(value: str) -> bool:
    """Not a word, a name or a placeholder."""
    if _PLACEHOLDER.match(value) or not (any(map(str.isdigit, value)) and any(map(str.isalpha, value))):
        return False
    counts = Counter(value)
    return -sum(n / len(value) * math.log2(n / len(value)) for n in counts.values()) >= _RANDOM
