"""The three kinds of entries, and the table that holds them.

Types are Mangle type text: ``fn:List(X)``, where a capital letter stands for any type, the same one
throughout the entry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol, TypeVar

from manglecp.mangle.values import Value


@dataclass(frozen=True, slots=True)
class Function:
    """``fn:…``: one value from some values and the evaluation time."""

    name: str
    params: tuple[str, ...]
    result: str
    call: Callable[[tuple[Value, ...], int], Value]
    doc: str
    rest: str | None = None  # type of any further arguments
    even: bool = False  # only an even number of arguments: keys and values

    @property
    def min_args(self) -> int:
        """How many it takes at least; with ``rest`` there may be more."""
        return len(self.params)

    def accepts(self, count: int) -> bool:
        """Whether it can be called with this many arguments."""
        return _accepts(self.params, self.rest, count) and not (self.even and count % 2)


@dataclass(frozen=True, slots=True)
class Predicate:
    """``:…``: from the values at ``+``, in order, every solution for the positions at ``-``, in order.

    A test has no ``-``: it gives the empty solution once, or none.
    """

    name: str
    modes: str
    params: tuple[str, ...]
    solve: Callable[[tuple[Value, ...]], Iterable[tuple[Value, ...]]]
    doc: str


@dataclass(frozen=True, slots=True)
class Reducer:
    """``fn:…`` after ``do fn:group_by``: one value from the rows of a group, whose order means nothing.

    A row holds the values of the arguments; for a reducer without arguments, the whole binding of the row.
    """

    name: str
    params: tuple[str, ...]
    rest: str | None
    result: str
    doc: str
    reduce: Callable[[Sequence[tuple[Value, ...]]], Value]
    skips_failing_rows: bool = False  # a row whose arguments cannot be evaluated is left out

    @property
    def min_args(self) -> int:
        """How many it takes at least; with ``rest`` there may be more."""
        return len(self.params)

    def accepts(self, count: int) -> bool:
        """Whether it can be written with this many arguments."""
        return _accepts(self.params, self.rest, count)


def _accepts(params: tuple[str, ...], rest: str | None, count: int) -> bool:
    return count == len(params) or (rest is not None and count > len(params))


def pure(
    name: str,
    params: tuple[str, ...],
    result: str,
    body: Callable[..., Value],
    doc: str,
    *,
    rest: str | None = None,
    even: bool = False,
) -> Function:
    """A function that does not look at the clock; ``body`` gets the name, for messages, and the arguments."""
    return Function(name, params, result, lambda args, _now: body(name, *args), doc, rest, even)


class _Named(Protocol):
    @property
    def name(self) -> str: ...


Entry = TypeVar("Entry", bound=_Named)


def by_name(*groups: Iterable[Entry]) -> Mapping[str, Entry]:
    """One read-only table; a name that is given twice is a mistake in this package."""
    table: dict[str, Entry] = {}
    for group in groups:
        for entry in group:
            if entry.name in table:
                raise ValueError(f"{entry.name} is registered twice")
            table[entry.name] = entry
    return MappingProxyType(table)
