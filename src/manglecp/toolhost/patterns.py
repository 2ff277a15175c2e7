r"""Patterns of JSON Schema, translated to :mod:`re`.

JSON Schema has the regular expressions of ECMAScript, which differ from Python's in details: the end of a text, what
white space is, what may stand unescaped in a class. Portable constructs are translated; others (word boundaries, back
references, flags, possessive repeats, ``\p``) are refused with their position.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

_BLANK: Final = r"\t-\r \xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
_NOT_BLANK: Final = (
    r"\x00-\x08\x0e-\x1f!-\x9f\xa1-\u167f\u1681-\u1fff\u200b-\u2027\u202a-\u202e\u2030-\u205e"
    r"\u2060-\u2fff\u3001-\ufefe\uff00-\U0010ffff"
)
_SETS: Final = {r"\s": _BLANK, r"\S": _NOT_BLANK, r"\d": r"\d", r"\D": r"\D", r"\w": r"\w", r"\W": r"\W"}
_TOKEN: Final = re.compile(
    r"""(?P<set>\\[sSdDwW])
    | (?P<character>\\(?:[tnrfv]|x[0-9a-fA-F]{2}|u(?![dD][89a-fA-F])[0-9a-fA-F]{4}|[!-/:;=?@\[-`{-~\ ]))
    | (?P<group>\((?:\?(?::|=|!|<=|<!|<(?=[A-Za-z_]))|(?!\?))(?!\)))
    | (?P<repeat>(?:[*+?]|\{[0-9]+(?:,[0-9]*)?\})\??(?!\+))
    | (?P<open>\[(?:\^(?!\])|(?![\]^])))
    | (?P<plain>[^\\(\[*+?{])""",
    re.VERBOSE | re.DOTALL,
)
_MEMBER: Final = re.compile(
    r"""(?P<set>\\[sSdDwW](?!-[^\]]))
    | (?P<character>\\(?:[tnrfv]|x[0-9a-fA-F]{2}|u(?![dD][89a-fA-F])[0-9a-fA-F]{4}|[!-/:;=?@\[-`{-~\ ]))
    | (?P<close>\])
    | (?P<range>-(?!-|\\[sSdDwW]))
    | (?P<plain>[^\\\]-])""",
    re.VERBOSE | re.DOTALL,
)

_LOOKS: Final = frozenset({"(?=", "(?!", "(?<=", "(?<!"})


def matcher(pattern: str) -> Callable[[str], object]:
    """Return a function that searches for the pattern. Raises ValueError if it is not portable."""
    try:
        return re.compile(_translated(pattern), re.ASCII).search
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(str(error)) from error


def _translated(pattern: str) -> str:
    parts: list[str] = []
    groups: list[str] = []
    at, inside, closed = 0, False, ""
    sets = looks = False
    while at < len(pattern):
        found = (_MEMBER if inside else _TOKEN).match(pattern, at)
        if found is None or (found.lastgroup == "repeat" and closed in _LOOKS):
            raise ValueError(f"what stands at position {at} does not mean the same everywhere")
        text, kind = found[0], found.lastgroup
        closed = groups.pop() if kind == "plain" and text == ")" and groups and not inside else ""
        if kind == "set":
            sets = True
            parts.append(_SETS[text] if inside else f"[{_SETS[text]}]")
        elif kind == "group":
            looks |= text in _LOOKS
            groups.append(text)
            parts.append("(?P<" if text == "(?<" else text)
        elif kind == "plain":
            parts.append(re.escape(text) if inside else r"\Z" if text == "$" else text)
        else:
            inside = kind == "open" or (inside and kind != "close")
            parts.append(text)
        at = found.end()
    if sets and looks:  # where a pattern looks around, some take letters and digits of all alphabets
        raise ValueError(r"\d, \s and \w do not mean the same everywhere in a pattern that looks around")
    return "".join(parts)
