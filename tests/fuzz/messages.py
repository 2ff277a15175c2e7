"""Messages made from the schemas that the server hands out, by a seed: some that fit, and some with one defect.

What stands in them is often what a pack knows, so that they get far, and otherwise what nobody would write. Whether a
message fits is for the schema to say, not for whoever made it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from functools import cache
from random import Random
from typing import Any, Final

import jsonschema_rs

from manglecp.wire import schema

__all__ = ["TYPES", "WORDS", "anything", "broken", "fits", "fitting", "fitting_answer"]

TYPES: Final = ("intent_request", "invoke_request", "cancel", "authenticate")
WORDS: Final = (
    *(
        "review",
        "draft",
        "A",
        "open",
        "final",
        "private",
        "measure_text",
        "plain_style",
        "x-why_not",
        "m-0000000000000000",
    ),
    *("2026-03-02T09:20:00Z", "now", "_", "bearer", "disclosure_upgrade", "_manglecp_trust", "permitted", "intent"),
    *(
        "",
        " ",
        "\0",
        "\u202e",
        "\u00e9",
        "e\u0301",
        "\U0001f600",
        "\uffff",
        "\ufeff",
        "a" * 5_000,
        "1" * 400,
        "../../x",
    ),
    *("%s%n{0}", "'; --", '"). q(X', "\\u0000", "fn:plus(1)", "/name", "9999-99-99T99:99:99Z", "0001-01-01T00:00:00Z"),
)
KEYS: Final = ("text", "title", "_type", "value", "Title", "Status", "__proto__", "", "x", "é")
NUMBERS: Final = (0, 1, -1, 5, 1_000, 2**31, 2**53 + 1, 2**63 - 1, -(2**63), 2**64, 10**30, 0.5, -0.0, 1e300, 5e-324)
WRAPPERS: Final = ("map", "name", "time", "duration", "bytes", "pair", "struct", "list", "nothing")
DEEPEST: Final = 4
Json = Any


@cache
def _validator(type_: str) -> jsonschema_rs.Draft202012Validator:
    return jsonschema_rs.Draft202012Validator(schema(type_))


def fits(type_: str, message: Json) -> bool:
    return _validator(type_).is_valid(message)


def fitting_answer(message: Json) -> str | None:
    """Why this is no message of a server; None if it is one."""
    type_ = message.get("type") if isinstance(message, dict) else None
    if type_ not in ("manifest", "intent_response", "invoke_response", "authenticate_response", "progress", "error"):
        return f"{type_} is not sent by servers"
    wrong = next(_validator(type_).iter_errors(message), None)
    return None if wrong is None else f"{wrong.message} at {wrong.instance_path}"


def fitting(random: Random, type_: str, request: str) -> dict[str, Json]:
    """A message that the schema takes."""
    whole = schema(type_)
    while True:
        made: dict[str, Json] = _made(random, whole, whole, 0)
        if type_ != "cancel":
            made["id"] = request
        if type_ == "intent_request" and random.random() < 0.7:
            made["payload"]["intent"]["name"] = "review"
        if fits(type_, made):
            return made


def broken(random: Random, type_: str, request: str) -> dict[str, Json]:
    """A message with one defect, on account of which the schema does not take it."""
    while True:
        made = fitting(random, type_, request)
        place = random.choice(list(_places(made)))
        damaged = copy.deepcopy(made)
        _damage(random, damaged, place)
        if not fits(type_, damaged):
            return damaged


# --- what a schema takes ---------------------------------------------------------------------------------------------


def _made(random: Random, said: Json, whole: Json, depth: int) -> Json:
    """Most of what a schema asks for; what it takes is asked afterwards."""
    if "$ref" in said:
        return _made(random, whole["$defs"][said["$ref"].rpartition("/")[2]], whole, depth)
    if "enum" in said:
        return random.choice(said["enum"])
    choices = said.get("anyOf") or said.get("oneOf")
    if choices and "properties" not in said and "type" not in said:
        return _made(random, random.choice(choices), whole, depth)
    types = said.get("type")
    type_ = random.choice(types) if isinstance(types, list) else types
    make: dict[str, Callable[[], Json]] = {
        "object": lambda: _object(random, said, whole, depth),
        "array": lambda: [
            _made(random, said.get("items", {}), whole, depth + 1) for _ in range(random.choice((0, 1, 1, 2, 5)))
        ],
        "string": lambda: random.choice(("x-", "")) + random.choice(WORDS),
        "integer": lambda: random.choice([one for one in NUMBERS if isinstance(one, int)]),
        "number": lambda: random.choice(NUMBERS),
        "boolean": lambda: random.random() < 0.5,
        "null": lambda: None,
    }
    return make[type_]() if type_ is not None else anything(random, depth)


def _object(random: Random, said: Json, whole: Json, depth: int) -> dict[str, Json]:
    properties = said.get("properties", {})
    required = set(said.get("required", ()))
    for choice in random.sample(said.get("oneOf", ()), k=min(1, len(said.get("oneOf", ())))):
        required |= set(choice.get("required", ()))
    made = {
        name: _made(random, part, whole, depth + 1)
        for name, part in properties.items()
        if name in required or random.random() < 0.3
    }
    if not properties or random.random() < 0.1:
        made[random.choice(KEYS)] = anything(random, depth + 1)
    return made


def anything(random: Random, depth: int = 0) -> Json:
    """A JSON value, now and then one that says what it is."""
    kind = random.randrange(10 if depth < DEEPEST else 7)
    if kind < 4:
        return random.choice(WORDS)
    if kind < 6:
        return random.choice(NUMBERS)
    if kind == 6:
        return random.choice((None, True, False))
    if kind == 7:
        return [anything(random, depth + 1) for _ in range(random.randrange(4))]
    if kind == 8:
        return {random.choice(KEYS): anything(random, depth + 1) for _ in range(random.randrange(4))}
    return {"_type": random.choice(WRAPPERS), "value": anything(random, depth + 1)}


# --- defects ---------------------------------------------------------------------------------------------------------

Place = tuple[Any, ...]


def _places(value: Json, at: Place = ()) -> Iterator[Place]:
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, part in inside:
        yield (*at, step)
        yield from _places(part, (*at, step))


def _damage(random: Random, message: Json, place: Place) -> None:
    holder = message
    for step in place[:-1]:
        holder = holder[step]
    if random.random() < 0.3:
        del holder[place[-1]]
    else:
        holder[place[-1]] = anything(random)
