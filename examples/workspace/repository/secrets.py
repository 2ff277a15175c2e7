"""What looks like a credential: where it stands, of which kind it is, and the text without it.

The scan says which lines have one, and actions take it out of everything that leaves them as text of the repository, of
git or of tests. Both ask here, so what one finds the other finds. A secret is replaced where it stands; the line breaks
in it stay, so that lines keep their numbers. Searching happens in the text that is left, or somebody could ask for a
secret one letter at a time.

Keys that are made to be recognised are looked for by their form. Otherwise a line counts that gives a text to a name
such as ``password``, if the text looks random. Code and prose that speak about passwords have to stay readable, so both
kinds can be wrong; the first seldom is. The texts that each pattern cannot do without are looked for first, which is
what makes this quick.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple

__all__ = ["MARK", "Found", "found", "is_redacted", "redacted", "redacted_diff", "secret_lines", "secrets_in"]

MARK: Final = "[redacted: {}]"
_ASSIGNED: Final = "assigned secret"
_CODED: Final = re.compile(r"[A-Za-z0-9+/]{60,80}={0,2}")
_MARKED: Final = re.compile(r"\[redacted: [a-z ]+\]")


class Found(NamedTuple):
    start: int
    end: int
    kind: str


# The kind, what the pattern cannot do without, and the pattern; of it the group ``secret``, if it has one.
_FORMS: Final = tuple(
    (kind, needed.split(), re.compile(pattern))
    for kind, needed, pattern in (
        (
            "private key",
            "PRIVATE",
            r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY[A-Z ]{0,10}-----"
            r"(?:(?!-----)[\s\S]){0,20000}(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY[A-Z ]{0,10}-----)?",
        ),
        ("aws access key", "AKIA ASIA AGPA AIDA AROA", r"\b(?:AKIA|ASIA|AGPA|AIDA|AROA)[0-9A-Z]{16}\b"),
        (
            "github token",
            "ghp_ gho_ ghu_ ghs_ ghr_ github_pat_",
            r"\b(?:gh[pousr]_[A-Za-z0-9]{20,255}|github_pat_\w{20,255})",
        ),
        ("gitlab token", "glpat-", r"\bglpat-[\w-]{16,255}"),
        ("slack token", "xox xapp-", r"\b(?:xox[abeoprs]|xapp)-[\w-]{10,255}"),
        (
            "slack webhook",
            "hooks.slack.com/",
            r"\bhooks\.slack\.com/services/(?P<secret>[A-Z0-9]{6,20}/[A-Z0-9]{6,20}/\w{16,40})",
        ),
        ("stripe key", "k_live_ k_test_", r"\b[spr]k_(?:live|test)_[A-Za-z0-9]{12,255}"),
        ("google api key", "AIza", r"\bAIza[\w-]{30,60}"),
        ("google token", "ya29. GOCSPX-", r"\b(?:ya29\.[\w-]{20,500}|GOCSPX-[\w-]{20,60})"),
        ("sendgrid key", "SG.", r"\bSG\.[\w-]{16,40}\.[\w-]{32,80}"),
        (
            "azure key",
            "AccountKey= AccessKey=",
            r"\b(?:Account|SharedAccess)Key=(?P<secret>[A-Za-z0-9+/]{40,100}={0,2})",
        ),
        ("npm token", "npm_", r"\bnpm_[A-Za-z0-9]{20,255}"),
        ("pypi token", "pypi-", r"\bpypi-[\w-]{40,255}"),
        ("access token", "hf_ dop_v1_ glsa_ shpat_", r"\b(?:hf|dop_v1|glsa|shpat)_[A-Za-z0-9]{20,255}"),
        ("model api key", "sk-", r"\bsk-(?:(?:live|proj|ant|svcacct)-[\w-]{12,255}|[\w-]{32,255})"),
        ("json web token", "eyJ", r"\beyJ[\w-]{8,2000}\.eyJ[\w-]{8,4000}\.[\w-]{8,2000}"),
        (
            "password in an address",
            "://",
            r"\b[a-z][a-z0-9+.-]{1,20}://[^\s/:@'\"<>{}$]{0,200}:(?P<secret>[^\s/@'\"<>{}$]{3,200})@[\w\[]",
        ),
        (
            "token in a header",
            "uthorization UTHORIZATION",
            r"(?i)\bauthorization['\"]?\s{0,3}[:=]\s{0,3}['\"]?(?:bearer|basic|token)\s+"
            r"(?P<secret>[\w.~+/=-]{12,2000})",
        ),
    )
)

_NEEDED: Final = ("passw", "passphrase", "_pass", "_pw", "pwd", "secret", "credential", "token", "key")
_NAME: Final = (
    r"(?:pass(?:wo?r?d|phrase)|_pass(?![a-z])|_pw(?![a-z])|pwd|secret|credential|token"
    r"|(?:api|access|private|secret|auth|signing|encryption)[_-]?key)"
)
_QUOTED: Final = re.compile(
    rf"(?i){_NAME}s?['\"]?\s{{0,8}}(?::\s{{0,3}}[A-Za-z_][\w\[\]., |]{{0,40}}=|:=|[:=]>?)\s{{0,8}}[rbuf]{{0,2}}"
    r"(?P<quote>['\"])(?P<secret>[^'\"\s]{8,500})(?P=quote)"
)
# As a shell takes it: nothing stands around the sign, so it is no code, and a word may be a password too.
_EXPORTED: Final = re.compile(
    rf"[ \t]*(?:export[ \t]+|[-+][ \t]*)?\w{{0,60}}{_NAME.upper()}\w{{0,60}}="
    r"(?P<secret>[^\s'\"#$<{(][^\s'\"#(]{5,500})[ \t\r]*(?:#.*)?"
)
# As files for settings have it. It could be code, so it has to look very random.
_SET: Final = re.compile(
    rf"(?i)[ \t]*(?:-[ \t]+)?[\w.-]{{0,60}}{_NAME}s?[ \t]*[:=][ \t]*"
    r"(?P<secret>[^\s'\"#<{(\[,;]{10,500})[ \t\r]*(?:#.*)?"
)

_PLACEHOLDER: Final = re.compile(
    r"(?i)<[^>]*>|\{[^}]*\}|\$[({]|^\$\w+$|%[(sdr]|xxxx|\*\*\*|change.?me"
    r"|(?<![a-z])(?:example|change|your|my|dummy|placeholder|redacted|test|fake|sample|none|null|true|false)(?![a-z])"
)
_USUAL: Final = frozenset({"password", "passwd", "pass", "secret", "pw", "pwd", "token", "key", "...", "postgres"})
_RANDOM: Final = 2.5
"""Bits per character from which on a text is no word."""
_VERY_RANDOM: Final = 3.0
_RUNS: Final = 3
"""How often letters and digits have to change: ``Ed25519Key`` is a name."""


def found(text: str) -> list[Found]:
    """What looks like a credential, in its order; no two of them overlap."""
    spans: list[Found] = []
    for kind, needed, pattern in _FORMS:
        if any(part in text for part in needed):
            named = "secret" in pattern.groupindex
            for match in pattern.finditer(text):
                if not named:
                    spans.append(Found(*match.span(), kind))
                elif not _is_made_up(match["secret"]):
                    spans.append(Found(*match.span("secret"), kind))
    for start, line in _lines_with_names(text):
        spans += [Found(start + first, start + last, _ASSIGNED) for first, last in _assigned(line)]
    return _apart(spans)


def secrets_in(text: str) -> tuple[tuple[int, str], ...]:
    """Line and kind of each, in order."""
    line, counted, lines = 1, 0, []
    for start, _, kind in found(text):
        line += text.count("\n", counted, start)
        counted = start
        lines.append((line, kind))
    return tuple(dict.fromkeys(lines))


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


def _assigned(line: str) -> Iterator[tuple[int, int]]:
    """What a line gives to names that tell."""
    for match in _QUOTED.finditer(line):
        if _looks_random(match["secret"], _RANDOM):
            yield match.span("secret")
    exported = _EXPORTED.fullmatch(line)
    if exported is not None and not _is_made_up(exported["secret"]):
        yield exported.span("secret")
    told = _SET.fullmatch(line)
    if told is not None and _looks_random(told["secret"], _VERY_RANDOM) and _changes(told["secret"]) >= _RUNS:
        yield told.span("secret")


def _lines_with_names(text: str) -> Iterator[tuple[int, str]]:
    """Where lines begin that name something secret, and what they hold."""
    lowered = text.lower()
    if len(lowered) != len(text):  # a letter that grows would move all that come after it
        lowered = "".join(sign if len(sign.lower()) != 1 else sign.lower() for sign in text)
    starts: set[int] = set()
    for name in _NEEDED:
        at = lowered.find(name)
        while at >= 0:
            starts.add(lowered.rfind("\n", 0, at) + 1)
            after = lowered.find("\n", at)
            at = lowered.find(name, after) if after >= 0 else -1
    for start in sorted(starts):
        end = text.find("\n", start)
        end = len(text) if end < 0 else end
        yield start, text[start:end]


def _apart(spans: list[Found]) -> list[Found]:
    kept: list[Found] = []
    # Of two in one place the one with a form of its own says more.
    for span in sorted(spans, key=lambda one: (one.start, one.kind == _ASSIGNED, one)):
        if kept and span.start < kept[-1].end:
            kept[-1] = kept[-1]._replace(end=max(kept[-1].end, span.end))
        else:
            kept.append(span)
    return kept


def _is_made_up(value: str) -> bool:
    """Whether it is one that documentation uses."""
    return _PLACEHOLDER.search(value) is not None or value.lower() in _USUAL


def _looks_random(value: str, bits: float) -> bool:
    """Not a word, a name or a placeholder."""
    if _is_made_up(value) or not (any(map(str.isdigit, value)) and any(map(str.isalpha, value))):
        return False
    size = len(value)
    return -sum(n / size * math.log2(n / size) for n in Counter(value).values()) >= bits


def _changes(value: str) -> int:
    """How many times digits begin."""
    return len(re.findall(r"[0-9]+", value))
