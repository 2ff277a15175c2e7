"""Validation of policy documents against ``documents.json``, and the collection of their problems.

Before the validation, texts are trimmed, and words are spelt as in their vocabulary. After the validation, lists that
are sets are sorted and deduplicated, so that equivalent documents have the same digest. Defaults are not added.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Final, TypeAlias, cast

import msgspec

from manglecp.base.diagnostic import Diagnostic, DiagnosticError, FileLocation
from manglecp.base.json import Uncanonical, check_canonical
from manglecp.base.text import normalize_word, trim
from manglecp.harness.classes import BACKOFFS, ESCALATIONS, RETRY_KINDS
from manglecp.harness.constraints import PATTERNS, STAGES, TIERS, TRACE_MODES, GovernanceProfile
from manglecp.harness.evidence import Handoff
from manglecp.wire import compile_schema

Schema: TypeAlias = Mapping[str, Any]

_VOCABULARIES: Final[Mapping[str, Iterable[str]]] = {
    "pattern": PATTERNS,
    "stage": STAGES,
    "mode": TRACE_MODES,
    "tier": TIERS,
    "control": [
        name
        for name in GovernanceProfile.__struct_encode_fields__
        if name not in ("claimId", "claimed", "processorRef")
    ],
    "packetField": Handoff.__struct_encode_fields__,
    "failureClass": RETRY_KINDS,
    "backoff": BACKOFFS,
    "escalation": ESCALATIONS,
}


class PolicyError(DiagnosticError, ValueError):
    """Invalid policy documents."""


class Problems:
    """The diagnostics of documents, sorted by file and place."""

    def __init__(self) -> None:
        self._diagnostics: list[Diagnostic] = []

    def __iter__(self) -> Iterator[Diagnostic]:
        return iter(sorted(self._diagnostics, key=lambda d: (d.file, d.pointer, d.message)))

    def __len__(self) -> int:
        return len(self._diagnostics)

    def add(self, place: FileLocation, message: str) -> None:
        self._diagnostics.append(Diagnostic("policy", message, place))

    def add_unknown(self, place: FileLocation, what: str, name: str, known: Iterable[str]) -> None:
        """Add the problem that ``name``, the name of a ``what``, is not in ``known``; suggest the closest name."""
        from manglecp.base.suggestions import did_you_mean  # imported only for an error

        self.add(place, f"{what} {name!r} is unknown; {did_you_mean(name, known)}")

    def raise_if_any(self) -> None:
        """Raise :class:`PolicyError` if a problem was added."""
        if self._diagnostics:
            raise PolicyError(tuple(self))


Complete: TypeAlias = Callable[[dict[str, Any], FileLocation, Problems], None]
"""Adds computed members to a valid document."""


def read_document(
    kind: str, value: Any, place: FileLocation, problems: Problems, complete: Complete = lambda *_: None
) -> Any:
    """Return the normalised document of a kind in ``documents.json``. It is invalid if a problem is added."""
    try:
        check_canonical(value)
    except Uncanonical as uncanonical:
        problems.add(FileLocation(place.file, pointer=place.pointer + uncanonical.path), uncanonical.reason)
        return value
    schema = _schema(kind)
    document, count = _spell(value, schema), len(problems)
    for error in compile_schema(msgspec.json.encode(schema)).iter_errors(document):
        _report(error, schema, place, problems)
    if len(problems) > count:
        return document
    complete(document, place, problems)
    return _arrange(document, schema, place, problems)


@cache
def _schema(kind: str) -> dict[str, Any]:
    """Return the schema of a kind, with definitions in place of references to them."""
    schemas = msgspec.json.decode(files(__package__).joinpath("documents.json").read_bytes())
    vocabularies = {name: {"type": "string", "enum": list(words)} for name, words in _VOCABULARIES.items()}
    definitions = schemas["$defs"] | vocabularies

    def inline(node: Any) -> Any:
        if isinstance(node, list):
            return [inline(part) for part in node]
        if not isinstance(node, dict):
            return node
        members = {name: inline(part) for name, part in node.items() if name != "$ref"}
        return members if "$ref" not in node else inline(definitions[node["$ref"].rpartition("/")[2]]) | members

    return cast(dict[str, Any], inline(definitions[kind]))


def _member_schema(schema: Schema, name: str) -> Schema:
    return cast(Schema, schema.get("properties", {}).get(name) or schema.get("additionalProperties") or {})


def _spell(value: Any, schema: Schema) -> Any:
    """Return the value with trimmed texts and with the words of the vocabularies."""
    if isinstance(value, Mapping):
        return {name: _spell(part, _member_schema(schema, name)) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_spell(part, schema.get("items", {})) for part in value]
    if isinstance(value, float) and schema.get("type") == "integer" and value.is_integer():
        return int(value)
    if not isinstance(value, str) or "string" not in schema.get("type", ()):
        return value
    text, word = trim(value), normalize_word(trim(value))
    spellings = (each for each in schema.get("enum", ()) if normalize_word(each) == word)
    return next(spellings, word if "word" in schema else text)


def _arrange(value: Any, schema: Schema, place: FileLocation, problems: Problems) -> Any:
    """Return the valid document with sorted sets; add a problem for two entries with the same key."""
    if isinstance(value, dict):
        parts = ((name, part, _member_schema(schema, name)) for name, part in value.items())
        return {name: _arrange(part, inner, place / name, problems) for name, part, inner in parts}
    if not isinstance(value, list):
        return value
    items = [_arrange(part, schema.get("items", {}), place / index, problems) for index, part in enumerate(value)]
    if (key := schema.get("key")) is not None:
        names = [item[key] for item in items]
        for name in sorted({name for name in names if names.count(name) > 1}):
            problems.add(place, f"{key} {name!r} is present twice")
        return sorted(items, key=lambda item: str(item[key]))
    if "set" not in schema:
        return items
    return sorted(set(items), key=schema["items"]["enum"].index if schema["set"] == "in order" else None)


_TYPE_NAMES: Final = {
    "boolean": "true or false",
    "integer": "a whole number",
    "number": "a number",
    "string": "a text",
    "array": "a list",
    "object": "a table",
}
_VALUE_NAMES: Final = {
    bool: "true or false",
    int: "a number",
    float: "a number",
    str: "a text",
    type(None): "null",
    list: "a list",
    dict: "a table",
}


def _report(error: Any, schema: Schema, place: FileLocation, problems: Problems) -> None:
    """Add the problem of an error of the schema validator."""
    for step in error.instance_path:
        place /= step
    value, kind = error.instance, error.kind
    if kind.name == "required":
        problems.add(place, f"{kind.property} is missing")
    elif kind.name == "additionalProperties":
        table: Any = schema
        for step in error.schema_path[:-1]:
            table = table[step]
        for name in kind.unexpected:
            problems.add_unknown(place / name, "the key", name, table["properties"])
    elif kind.name == "type":
        name = (
            "a list" if isinstance(value, list) else "a table" if isinstance(value, dict) else _VALUE_NAMES[type(value)]
        )
        problems.add(place, f"{_TYPE_NAMES[kind.types[0]]} belongs here, not {name}")
    elif kind.name == "enum":
        if isinstance(value, str):  # for another type, the error of the keyword type is reported
            problems.add_unknown(place, "the word", value, kind.options)
    elif kind.name == "propertyNames":
        problems.add(place, "a name consists of ASCII characters and is not blank")
    else:
        problems.add(
            place, {"pattern": "the text is blank", "minItems": "the list is empty"}.get(kind.name, error.message)
        )
