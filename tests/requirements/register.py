"""Reads the register strictly: whatever is not exactly a row is an error that names it."""

import re
import tomllib
from collections import Counter
from collections.abc import Set
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

__all__ = [
    "AREAS",
    "Area",
    "Level",
    "Register",
    "RegisterError",
    "Requirement",
    "Status",
    "load",
    "read_area",
]

AREAS = (
    *("WIRE", "TRANS", "DATA", "MANI", "EVAL", "TOOL", "SKILL", "INVK", "DELTA", "OBS", "NEXT", "PROG"),
    *("SEC", "ERR", "PROOF", "COV", "CONF", "CLI"),
    *("IPC", "HARN", "FAIL", "SLICE"),
)
"""Every area, in the order in which the register is read and printed. Each has one file under `areas/`."""

_FOLDER = Path(__file__).parent / "areas"
_AREA_KEYS = {"area", "covers", "requirement"}
_ROW_KEYS = {"id", "level", "source", "statement", "status"}


class RegisterError(ValueError):
    """A row or file of the register that cannot be accepted."""


class Level(StrEnum):
    """How binding the source is; `design` is text that states a default or a shape without a keyword."""

    MUST = "MUST"
    SHOULD = "SHOULD"
    MAY = "MAY"
    DESIGN = "design"


class Status(StrEnum):
    """Where the project stands with a row."""

    PLANNED = "planned"
    DONE = "done"
    DEVIATES = "deviates"


@dataclass(frozen=True)
class Requirement:
    """One row. `reason` is there exactly when the status is `deviates`."""

    id: str
    level: Level
    source: str
    statement: str
    status: Status
    reason: str | None = None


@dataclass(frozen=True)
class Area:
    """The rows that share an id prefix."""

    name: str
    covers: str
    rows: tuple[Requirement, ...]

    def count(self, key: Level | Status) -> int:
        """How many rows have this level or this status."""
        return sum(key is row.level or key is row.status for row in self.rows)


@dataclass(frozen=True)
class Register:
    """All areas in order."""

    areas: tuple[Area, ...]

    @cached_property
    def by_id(self) -> dict[str, Requirement]:
        """Every row under its id, in the order of the register."""
        return {row.id: row for area in self.areas for row in area.rows}


def load(folder: Path = _FOLDER) -> Register:
    """Read every area file; a missing or an extra one is an error."""
    expected = {f"{name.lower()}.toml" for name in AREAS}
    present = {path.name for path in folder.iterdir()}
    if expected != present:
        raise RegisterError(
            f"{folder}: missing {sorted(expected - present)}, not expected {sorted(present - expected)}"
        )
    return Register(tuple(read_area(name, (folder / f"{name.lower()}.toml").read_text("utf-8")) for name in AREAS))


def read_area(name: str, text: str) -> Area:
    """Read the text of one area file."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise RegisterError(f"{name}: not TOML: {error}") from error
    _expect_keys(name, table, required=_AREA_KEYS)
    if table["area"] != name:
        raise RegisterError(f"{name}: the file says it is area {table['area']!r}")
    entries = table["requirement"]
    if not isinstance(entries, list):
        raise RegisterError(f"{name}: rows are written as [[requirement]]")
    rows = tuple(_read_row(name, place, entry) for place, entry in enumerate(entries, start=1))
    _expect_ascending(rows)
    return Area(name, _text(name, table, "covers"), rows)


def _read_row(area: str, place: int, entry: Any) -> Requirement:
    if not isinstance(entry, dict):
        raise RegisterError(f"{area}: row {place} is not a table")
    where = str(entry.get("id", f"{area}, row {place}"))
    _expect_keys(where, entry, required=_ROW_KEYS, optional={"reason"})
    if not re.fullmatch(rf"{area}-[0-9]{{2}}", _text(where, entry, "id")):
        raise RegisterError(f"{where}: an id of this file looks like {area}-01")
    try:
        level = Level(_text(where, entry, "level"))
        status = Status(_text(where, entry, "status"))
    except ValueError as error:
        raise RegisterError(f"{where}: {error}") from error
    reason = _text(where, entry, "reason") if "reason" in entry else None
    if (status is Status.DEVIATES) != (reason is not None):
        raise RegisterError(f"{where}: status {status} {'needs a' if reason is None else 'takes no'} reason")
    return Requirement(where, level, _text(where, entry, "source"), _text(where, entry, "statement"), status, reason)


def _expect_keys(where: str, table: dict[str, Any], required: Set[str], optional: Set[str] = frozenset()) -> None:
    if missing := sorted(required - table.keys()):
        raise RegisterError(f"{where}: missing {', '.join(missing)}")
    if unknown := sorted(table.keys() - required - optional):
        raise RegisterError(f"{where}: unknown key {', '.join(unknown)}")


def _expect_ascending(rows: tuple[Requirement, ...]) -> None:
    ids = [row.id for row in rows]
    if twice := [name for name, times in Counter(ids).items() if times > 1]:
        raise RegisterError(f"{', '.join(twice)}: the id stands there more than once")
    for before, after in pairwise(ids):
        if before > after:
            raise RegisterError(f"{after}: stands after {before}; rows are kept in order")


def _text(where: str, table: dict[str, Any], key: str) -> str:
    value = table[key]
    if not isinstance(value, str) or not value.strip():
        raise RegisterError(f"{where}: {key} must be text that is not empty")
    return value
