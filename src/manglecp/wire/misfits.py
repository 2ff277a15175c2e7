"""Everything that keeps a JSON object from being a message.

The struct library stops at the first thing that is wrong, which is right as long as nothing is. Only when it has
refused is the object walked along its struct, member by member, and each refusal told in our words: where, what was
expected, and what came.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final, NamedTuple

import msgspec

from manglecp.base.text import quote, truncate
from manglecp.wire.absence import entry_of, fields_of, item_of, struct_of
from manglecp.wire.conditions import broken
from manglecp.wire.errors import WireError, did_you_mean, malformed
from manglecp.wire.messages import Message, ServerMessage

__all__ = ["misfit", "unmet"]

MOST: Final = 50
"""Where looking for more ends."""

_FAULT: Final = re.compile(r"(?P<what>.*?)(?: - at `(?P<path>\$[^`]*)`)?", re.DOTALL)
_MISSING: Final = re.compile(r"Object missing required field `(?P<name>[^`]+)`")
_CHOICE: Final = re.compile(r"Invalid enum value |Expected `str` matching regex ")
_BLANK: Final = re.compile(r"[\s\ufeff]+")
_WORDS: Final = {
    "str": "a string",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "an array",
    "object": "an object",
    "null": "null",
}


class _Misfit(NamedTuple):
    path: str
    message: str
    suggestion: str | None = None


def misfit(envelope: dict[str, Any], message: type[Message], refusal: str) -> WireError:
    """The error for an object that is not that message; ``refusal`` is what the struct library says."""
    found = list(islice(_walk(envelope, message, message, "$"), MOST))
    return _told(found or [_explained(refusal, message, "$", None)])


def unmet(message: ServerMessage) -> WireError | None:
    """The error for a message in which something does not hold that has to, if there is such a thing."""
    found = [_Misfit(path, f"{_spoken(path)}: {what}") for path, what in islice(broken(message), MOST)]
    return _told(found) if found else None


def _told(found: list[_Misfit]) -> WireError:
    first = found[0]
    error = malformed(first.message, first.path, first.suggestion)
    if len(found) > 1 and error.details is not None:
        error.details["x-violations"] = [
            {name: said for name, said in one._asdict().items() if said is not None} for one in found
        ]
    return error


def _walk(value: Any, type_: Any, message: type[Message], path: str) -> Iterator[_Misfit]:
    """What is wrong with a value and the parts of it."""
    if isinstance(value, dict) and (struct := struct_of(type_)) is not None:
        for field in fields_of(struct):
            inside = f"{path}.{field.encode_name}"
            if field.encode_name in value:
                yield from _walk(value[field.encode_name], field.type, message, inside)
            elif field.required:
                yield _Misfit(inside, f"{_spoken(inside)} is missing")
        return
    if isinstance(value, list) and (item := item_of(type_)) is not None:
        for position, part in enumerate(value):
            yield from _walk(part, item, message, f"{path}[{position}]")
        return
    if isinstance(value, dict) and (entry := entry_of(type_)) is not None:
        for key, part in value.items():
            yield from _walk(key, entry[0], message, f"{path}.{truncate(key)}")
            yield from _walk(part, entry[1], message, f"{path}.{truncate(key)}")
        return
    try:
        msgspec.convert(value, type_)
    except msgspec.ValidationError as error:
        yield _explained(str(error), message, path, value)


def _explained(text: str, message: type[Message], base: str, value: Any) -> _Misfit:
    """The struct library's sentence about the value at ``base`` in ours."""
    found = _FAULT.fullmatch(text)
    assert found is not None
    what, path = found["what"], base + (found["path"] or "$")[1:]
    if missing := _MISSING.fullmatch(what):
        path = f"{path}.{missing['name']}"
        return _Misfit(path, f"{_spoken(path)} is missing")
    if _CHOICE.match(what):
        said = value if isinstance(value, str) else str(value)
        options = _choices(message, path)
        if not options and _BLANK.fullmatch(said):
            return _Misfit(path, f"{_spoken(path)} is blank")
        suggestion = did_you_mean(said, options) or f"One of: {', '.join(options)}."
        return _Misfit(path, f"{_spoken(path)} has an unknown value {quote(said)}", suggestion if options else None)
    return _Misfit(path, f"{_spoken(path)}: {_in_words(what)}")


def _spoken(path: str) -> str:
    return path.removeprefix("$.")


def _in_words(what: str) -> str:
    """``Expected `int | null`, got `str``` as ``expected a whole number or null, got a string``."""
    words = re.sub(r"`([^`]*)`", lambda m: " or ".join(_WORDS.get(w, w) for w in m[1].split(" | ")), what)
    return words[:1].lower() + words[1:]


def _choices(message: type[Message], path: str) -> list[str]:
    """The texts that may stand at a path, as the struct declares them."""
    from manglecp.wire.json_schemas import choices  # which takes a while, and is needed for this alone

    return choices(message, path)
