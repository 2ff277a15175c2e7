"""Members of a listing, taken only if they have the right shape.

A listing is what a file says about itself by way of its host. A hostile file can forge it, so nothing in it is
believed to be well-formed: schemas refer to nothing, are small and compile; texts hold no character that nobody sees.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from manglecp.base.json import Uncanonical, canonical
from manglecp.base.text import find_invisible, find_invisible_in
from manglecp.pack.diagnostics import Problems

__all__ = ["Listed", "tools_of"]

_AID: Final = re.compile(r"AID\.[A-Z0-9_]+\.[A-Z0-9_]+\.v[1-9][0-9]{0,8}")
_NAME: Final = re.compile(r"[^\W\d]\w{0,127}")
_LARGEST_SCHEMA: Final = 262_144
_MOST_TOOLS: Final = 10_000
_LONGEST: Final = 10_000
_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")


def tools_of(document: dict[str, Any], file: str, problems: Problems) -> Iterator[Listed]:
    """The tools of a listing, each under a name of its own."""
    tools = document.get("tools")
    if not isinstance(tools, list) or len(tools) > _MOST_TOOLS:
        problems.add(file, "its listing names no tools")
        return
    seen: set[str] = set()
    for tool in tools:
        listed = Listed(tool if isinstance(tool, dict) else {}, file, problems)
        if not listed.sound:
            continue
        if listed.name in seen:
            problems.add(file, f"{listed.name}: two functions have that name", fix="rename one of them")
            continue
        seen.add(listed.name)
        yield listed


class Listed:
    """One tool. What is wrong with it is among the problems, and ``sound`` is false then."""

    def __init__(self, tool: dict[str, Any], file: str, problems: Problems) -> None:
        self._tool = tool
        self._file = file
        self._problems = problems
        self.sound = True
        name, aid = tool.get("name"), tool.get("aid")
        self.name: Final = name if isinstance(name, str) and _NAME.fullmatch(name) and not find_invisible(name) else ""
        self.aid: Final = aid if isinstance(aid, str) and _AID.fullmatch(aid) else ""
        if not self.name or not self.aid:
            self.complain("a listed function has no name and id")

    def complain(self, message: str, fix: str | None = None) -> None:
        """Note a problem with this tool, which is not sound from then on."""
        self.sound = False
        self._problems.add(self._file, f"{self.name}: {message}" if self.name else message, fix=fix)

    def member(self, key: str) -> Any:
        """Whatever stands under this key, unchecked; None if nothing does."""
        return self._tool.get(key)

    def description(self) -> str:
        """The text, empty after a complaint: too long, no text, or with characters that nobody sees."""
        text = self._tool.get("description")
        if not isinstance(text, str) or len(text) > _LONGEST:
            self.complain(f"its description is no text of at most {_LONGEST:,} characters")
            return ""
        if (hidden := find_invisible(text, running=True)) is not None:
            self.complain(f"its description holds the invisible character {hidden[1]}", "remove it")
        return text

    def texts(self, value: object, what: str) -> tuple[str, ...]:
        """The words of a list, none after a complaint. ``what`` names them in it."""
        if isinstance(value, list) and all(
            isinstance(item, str) and item and find_invisible(item) is None for item in value
        ):
            return tuple(value)
        self.complain(f"its {what} are no list of words")
        return ()

    def flag(self, key: str, careful: bool) -> bool:
        """What is not said is the careful thing."""
        value = self._tool.get(key)
        return value if isinstance(value, bool) else careful

    def schema(self, key: str) -> dict[str, Any]:
        """The JSON Schema under this key, empty after a complaint."""
        schema = self._tool.get(key)
        reason = _refused(schema)
        if reason is None:
            assert isinstance(schema, dict)
            return schema
        self.complain(f"its {key} {reason}")
        return {}


def _refused(schema: object) -> str | None:
    """Why nobody should validate with this schema."""
    if not isinstance(schema, dict):
        return "is no object"
    try:
        encoded = canonical(schema)
    except (Uncanonical, RecursionError):
        return "is no plain JSON"
    if len(encoded) > _LARGEST_SCHEMA:
        return f"has more than {_LARGEST_SCHEMA:,} bytes"
    if _refers(schema):
        return "refers to another schema"
    if (hidden := find_invisible_in(schema)) is not None:
        return f"holds the invisible character {hidden[1]} at {hidden[0]}"
    import jsonschema_rs  # only a pack with actions pays for it

    try:
        options = jsonschema_rs.RegexOptions(size_limit=1 << 20, dfa_size_limit=1 << 20)
        jsonschema_rs.validator_for(encoded.decode(), offline=True, pattern_options=options)
    except ValueError:
        return "is no JSON Schema"
    return None


def _refers(schema: object) -> bool:
    """Hints become schemas that stand for themselves. A property may be called like a keyword, and is no string."""
    waiting = [schema]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            if any(isinstance(part.get(key), str) for key in _REFERENCES):
                return True
            waiting += part.values()
        elif isinstance(part, list):
            waiting += part
    return False
