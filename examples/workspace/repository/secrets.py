"""Detect and redact credentials in text.

The scan reports the lines with secrets, and actions redact all text of the repository, of git and of tests that they
return. Redaction keeps line breaks, so that line numbers do not change.

Tokens with a known format are found by a pattern. Otherwise a random-looking value that is assigned to a name such as
``password`` counts as a secret. Both can be wrong: code and prose about passwords must stay readable. Each pattern runs
only on texts that contain one of its literal parts, which keeps the search fast.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple

__all__ = [
    "MARK",
    "SecretMatch",
    "find_secrets",
    "is_redacted",
    "redact",
    "redact_diff",
    "secret_lines",
    "secret_locations",
]

MARK: Final = "[redacted: {}]"
_ASSIGNED: Final = "assigned secret"
_CODED: Final = re.compile(r"[A-Za-z0-9+/]{60,80}={0,2}")
_MARKED: Final = re.compile(r"\[redacted: [a-z ]+\]")


class SecretMatch(NamedTuple):
    start: int
    end: int
    kind: str


# The kind, the literal parts of which a text must contain one, and the pattern; its group ``secret`` if it has one.
_FORMATS: Final = tuple(
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
# Shell syntax has no spaces around ``=``, so this is not code, and an ordinary word can be a password too.
_EXPORTED: Final = re.compile(
    rf"[ \t]*(?:export[ \t]+|[-+][ \t]*)?\w{{0,60}}{_NAME.upper()}\w{{0,60}}="
    r"(?P<secret>[^\s'\"#$<{(][^\s'\"#(]{5,500})[ \t\r]*(?:#.*)?"
)
# Configuration file syntax. It could also be code, so the value must look very random.
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
"""The entropy, in bits per character, above which a text is not a word."""
_VERY_RANDOM: Final = 3.0
_RUNS: Final = 3
"""The least number of digit runs in a random value: ``Ed25519Key`` is a name."""


def find_secrets(text: str) -> list[SecretMatch]:
    """Return the secrets in order of position, without overlaps."""
    spans: list[SecretMatch] = []
    for kind, needed, pattern in _FORMATS:
        if any(part in text for part in needed):
            named = "secret" in pattern.groupindex
            for match in pattern.finditer(text):
                if not named:
                    spans.append(SecretMatch(*match.span(), kind))
                elif not _is_placeholder(match["secret"]):
                    spans.append(SecretMatch(*match.span("secret"), kind))
    for start, line in _lines_with_names(text):
        spans += [SecretMatch(start + first, start + last, _ASSIGNED) for first, last in _assigned(line)]
    return _merge(spans)


def secret_locations(text: str) -> tuple[tuple[int, str], ...]:
    """Return the line and the kind of each secret, in order."""
    line, counted, lines = 1, 0, []
    for start, _, kind in find_secrets(text):
        line += text.count("\n", counted, start)
        counted = start
        lines.append((line, kind))
    return tuple(dict.fromkeys(lines))


def redact(text: str) -> str:
    """Return the text with a mark in place of each secret."""
    pieces, at = [], 0
    for start, end, kind in find_secrets(text):
        pieces += [text[at:start], MARK.format(kind), "\n" * text.count("\n", start, end)]
        at = end
    return "".join([*pieces, text[at:]]) if pieces else text


def secret_lines(text: str) -> frozenset[str]:
    """Return the lines, without line breaks, that contain a part of a secret."""
    pairs = zip(text.split("\n"), redact(text).split("\n"), strict=True)
    return frozenset(line for line, seen in pairs if line != seen)


def redact_diff(diff: str) -> str:
    """Redact a diff. It can contain the middle of a key only, so lines of base64 are redacted as well."""
    lines = diff.split("\n")
    seen = redact("\n".join(line[1:] for line in lines)).split("\n")
    return "\n".join(
        line[:1] + (MARK.format("coded bytes") if _CODED.fullmatch(rest) else rest)
        for line, rest in zip(lines, seen, strict=True)
    )


def is_redacted(text: str) -> bool:
    """Return whether the text has a redaction mark. Such a text must not be written to a file."""
    return _MARKED.search(text) is not None


def _assigned(line: str) -> Iterator[tuple[int, int]]:
    """Yield the spans of secret values that a line assigns."""
    for match in _QUOTED.finditer(line):
        if _looks_random(match["secret"], _RANDOM):
            yield match.span("secret")
    exported = _EXPORTED.fullmatch(line)
    if exported is not None and not _is_placeholder(exported["secret"]):
        yield exported.span("secret")
    setting = _SET.fullmatch(line)
    if setting is None:
        return
    if _looks_random(setting["secret"], _VERY_RANDOM) and _digit_runs(setting["secret"]) >= _RUNS:
        yield setting.span("secret")


def _lines_with_names(text: str) -> Iterator[tuple[int, str]]:
    """Yield position and text of each line that contains a name of a secret."""
    lowered = text.lower()
    if len(lowered) != len(text):  # a letter with a longer lower case would shift all later positions
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


def _merge(spans: list[SecretMatch]) -> list[SecretMatch]:
    kept: list[SecretMatch] = []
    # Of two matches at one position, the kind of the known format is more specific.
    for span in sorted(spans, key=lambda one: (one.start, one.kind == _ASSIGNED, one)):
        if kept and span.start < kept[-1].end:
            kept[-1] = kept[-1]._replace(end=max(kept[-1].end, span.end))
        else:
            kept.append(span)
    return kept


def _is_placeholder(value: str) -> bool:
    """Return whether the value is one that documentation uses."""
    return _PLACEHOLDER.search(value) is not None or value.lower() in _USUAL


def _looks_random(value: str, bits: float) -> bool:
    """Return whether the value is not a word, a name or a placeholder."""
    if _is_placeholder(value) or not (any(map(str.isdigit, value)) and any(map(str.isalpha, value))):
        return False
    size = len(value)
    return -sum(n / size * math.log2(n / size) for n in Counter(value).values()) >= bits


def _digit_runs(value: str) -> int:
    return len(re.findall(r"[0-9]+", value))
