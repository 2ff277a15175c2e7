"""Lines that look as if they held a secret: the line and the kind, never the secret.

Keys that are made to be recognised are looked for by their form. Otherwise a line counts that gives a text to a name
such as ``password``, if the text looks random enough. Both kinds can be wrong; the first seldom is. The texts that each
pattern cannot do without are looked for first, which is what makes this quick.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from typing import Final

__all__ = ["secrets_in"]

_KINDS: Final[tuple[tuple[str, tuple[str, ...], re.Pattern[str]], ...]] = (
    ("private key", ("PRIVATE KEY",), re.compile(r"-----BEGIN (?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----")),
    ("aws access key", ("AKIA", "ASIA"), re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b")),
    (
        "github token",
        ("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
        re.compile(r"\b(?:gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{60,})"),
    ),
    ("gitlab token", ("glpat-",), re.compile(r"\bglpat-[\w-]{20,}")),
    ("slack token", ("xox",), re.compile(r"\bxox[abeoprs]-[A-Za-z0-9-]{10,}")),
    ("stripe key", ("_live_",), re.compile(r"\b[rs]k_live_[A-Za-z0-9]{16,}")),
    ("google api key", ("AIza",), re.compile(r"\bAIza[\w-]{35}")),
    ("npm token", ("npm_",), re.compile(r"\bnpm_[A-Za-z0-9]{36}\b")),
    ("pypi token", ("pypi-",), re.compile(r"\bpypi-[\w-]{50,}")),
    ("model api key", ("sk-",), re.compile(r"\bsk-(?:ant-|proj-)?[\w-]{32,}")),
    ("json web token", ("eyJ",), re.compile(r"\beyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]{8,}")),
    (
        "password in an address",
        ("://",),
        re.compile(r"\b[a-z][a-z0-9+.-]{1,20}://[^\s/:@'\"<>{}$]{0,80}:([^\s/:@'\"<>{}$*]{3,200})@[\w\[]"),
    ),
)
_ASSIGNED: Final = re.compile(
    r"(?:passw(?:or)?d|secret|token|(?:api|access|private|secret|auth)[_-]?key|credential)s?"
    r"[\"']?(?:\s{0,3}:\s{0,3}[A-Za-z_][\w\[\]., |]{0,40})?\s{0,8}(?::=|[:=]|=>)\s{0,8}"
    r"[rbuf]{0,2}[\"']([^\"'\s]{8,200})[\"']",
    re.IGNORECASE,
)
_BARE: Final = re.compile(
    r"(?:export )?\w{0,60}(?:PASSWO?R?D|SECRET|TOKEN|(?:API|ACCESS|PRIVATE|AUTH)_?KEY)\w{0,20}=([^\"'\s$#]{8,200})\s*"
)
_NAMES: Final = (
    "passw",
    "secret",
    "token",
    "apikey",
    "_key",
    "-key",
    "accesskey",
    "privatekey",
    "authkey",
    "credential",
)
_PLACEHOLDER: Final = re.compile(
    r"[<>{}$%()]|example|change|your|dummy|placeholder|xxxx|\*\*\*|test|fake|sample", re.IGNORECASE
)
_USUAL: Final = frozenset({"password", "passwd", "pass", "secret", "pw", "pwd", "token", "key", "...", "postgres"})
_RANDOM: Final = 2.8
"""Bits per character from which on a text is no word."""


def secrets_in(text: str) -> tuple[tuple[int, str], ...]:
    """Line and kind of each, in order."""
    found: set[tuple[int, str]] = set()
    for kind, needed, pattern in _KINDS:
        if any(part in text for part in needed):
            found |= {(_line(text, match.start()), kind) for match in pattern.finditer(text) if not _is_made_up(match)}
    known = {line for line, _ in found}
    lines: list[str] = []
    for number in sorted(_lines_with_names(text.lower()) - known):
        lines = lines or text.split("\n")
        match = _ASSIGNED.search(lines[number - 1]) or _BARE.fullmatch(lines[number - 1])
        if match is not None and _looks_random(match[1]):
            found.add((number, "assigned secret"))
    return tuple(sorted(found))


def _is_made_up(match: re.Match[str]) -> bool:
    """Whether a password is one that documentation uses."""
    return match.re.groups == 1 and (_PLACEHOLDER.search(match[1]) is not None or match[1].lower() in _USUAL)


def _line(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1


def _lines_with_names(lowered: str) -> set[int]:
    lines: set[int] = set()
    for name in _NAMES:
        at = lowered.find(name)
        line, counted = 1, 0
        while at >= 0:
            line += lowered.count("\n", counted, at)
            lines.add(line)
            counted = lowered.find("\n", at)
            at = lowered.find(name, counted) if counted >= 0 else -1
    return lines


def _looks_random(value: str) -> bool:
    if _PLACEHOLDER.search(value) or not any(sign.isdigit() for sign in value) or not any(map(str.isalpha, value)):
        return False
    size = len(value)
    return -sum(n / size * math.log2(n / size) for n in Counter(value).values()) >= _RANDOM
