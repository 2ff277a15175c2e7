r"""Patterns of JSON Schema, translated to :mod:`re`.

JSON Schema has the regular expressions of ECMAScript, which differ from Python's in details: what ``$`` matches, which
characters are white space, which ones a character class may contain unescaped. Constructs that cannot be translated
(word boundaries, back references, flags, possessive repeats, ``\p``) are refused with their position.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

_SPACE: Final = r"\t-\r \xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
_NOT_SPACE: Final = (
    r"\x00-\x08\x0e-\x1f!-\x9f\xa1-\u167f\u1681-\u1fff\u200b-\u2027\u202a-\u202e\u2030-\u205e"
    r"\u2060-\u2fff\u3001-\ufefe\uff00-\U0010ffff"
)
# By escape: the characters that it matches in ECMAScript, as members of a class. With re.ASCII, \d and \w match them.
_SETS: Final = {r"\s": _SPACE, r"\S": _NOT_SPACE, r"\d": r"\d", r"\D": r"\D", r"\w": r"\w", r"\W": r"\W"}
# These do not match: an escaped surrogate (character), an empty group or class (group, open), a possessive repeat.
_TOKEN: Final = re.compile(  # outside a character class
    r"""(?P<set>\\[sSdDwW])
    | (?P<character>\\(?:[tnrfv]|x[0-9a-fA-F]{2}|u(?![dD][89a-fA-F])[0-9a-fA-F]{4}|[!-/:;=?@\[-`{-~\ ]))
    | (?P<group>\((?:\?(?::|=|!|<=|<!|<(?=[A-Za-z_]))|(?!\?))(?!\)))
    | (?P<repeat>(?:[*+?]|\{[0-9]+(?:,[0-9]*)?\})\??(?!\+))
    | (?P<open>\[(?:\^(?!\])|(?![\]^])))
    | (?P<plain>[^\\(\[*+?{])""",
    re.VERBOSE | re.DOTALL,
)
_MEMBER: Final = re.compile(  # inside a character class
    r"""(?P<set>\\[sSdDwW](?!-[^\]]))
    | (?P<character>\\(?:[tnrfv]|x[0-9a-fA-F]{2}|u(?![dD][89a-fA-F])[0-9a-fA-F]{4}|[!-/:;=?@\[-`{-~\ ]))
    | (?P<close>\])
    | (?P<range>-(?!-|\\[sSdDwW]))
    | (?P<plain>[^\\\]-])""",
    re.VERBOSE | re.DOTALL,
)

_LOOKAROUNDS: Final = frozenset({"(?=", "(?!", "(?<=", "(?<!"})


def matcher(pattern: str) -> Callable[[str], object]:
    """Return a function that searches for the pattern in a text. Raises ValueError if it cannot be translated."""
    try:
        return re.compile(_translate(pattern), re.ASCII).search
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(str(error)) from error


def _translate(pattern: str) -> str:
    parts: list[str] = []
    open_groups: list[str] = []
    position, in_class = 0, False
    closed_group = ""  # the opening of the group that the last token has closed
    has_sets = has_lookarounds = False
    while position < len(pattern):
        token = (_MEMBER if in_class else _TOKEN).match(pattern, position)
        if token is None or (token.lastgroup == "repeat" and closed_group in _LOOKAROUNDS):
            raise ValueError(f"what stands at position {position} does not mean the same everywhere")
        text, kind = token[0], token.lastgroup
        closed_group = open_groups.pop() if text == ")" and kind == "plain" and open_groups and not in_class else ""
        if kind == "set":
            has_sets = True
            parts.append(_SETS[text] if in_class else f"[{_SETS[text]}]")
        elif kind == "group":
            has_lookarounds |= text in _LOOKAROUNDS
            open_groups.append(text)
            parts.append("(?P<" if text == "(?<" else text)
        elif kind == "plain":
            parts.append(re.escape(text) if in_class else r"\Z" if text == "$" else text)
        else:
            in_class = kind == "open" or (in_class and kind != "close")
            parts.append(text)
        position = token.end()
    if has_sets and has_lookarounds:  # some validators then match letters and digits of all alphabets
        raise ValueError(r"\d, \s and \w do not mean the same everywhere in a pattern that looks around")
    return "".join(parts)
