"""Facts of a finished evaluation by what they have at some positions, as explanations read them.

A request lies as a thin layer over a base that many requests share. So nothing is gathered anew: a question goes to the
index of the base, which stays for the next request, and to that of the layer above it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import overload

from manglecp.mangle.engine.views import Columns, FactTuple, View
from manglecp.mangle.matching import Args, Timed


class LookUp:
    """The facts of one view, by the values at some positions of their arguments."""

    def __init__(self, view: View, positions: Columns, arity: int, temporal: bool) -> None:
        self._view = view
        self._positions = positions
        self._temporal = temporal
        self._whole = not temporal and len(positions) == arity
        self._known: dict[Args, Sequence[Timed]] = {}

    def get(self, wanted: Args, default: Sequence[Timed], /) -> Sequence[Timed]:
        """The facts with these values at the positions, found once. ``default`` if there are none."""
        found = self._known.get(wanted)
        if found is None:
            found = self._known[wanted] = self._find(wanted)
        return found or default

    def _find(self, wanted: Args) -> Sequence[Timed]:
        view = self._view
        if self._whole:
            return ((wanted, None),) if wanted in view else ()
        if not self._positions:
            return Found([view], len(view), self._temporal)
        value = wanted if len(wanted) > 1 else wanted[0]  # the key of one column is the value itself
        layers: list[list[FactTuple]] = []
        if view.base.facts:
            below = view.base.index(self._positions).get(value, [])
            layers.append([fact for fact in below if fact not in view.removed] if view.removed else below)
        if view.added():
            layers.append(view.index(self._positions).get(value, []))
        return Found(layers, sum(map(len, layers)), self._temporal)


class Found(Sequence[Timed]):
    """Facts of one or two layers. How many there are is known before they are looked at; often that is enough."""

    def __init__(self, layers: Sequence[Iterable[FactTuple]], count: int, temporal: bool) -> None:
        self._layers = layers
        self._count = count
        self._temporal = temporal

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Timed]:
        if self._temporal:
            return ((fact[:-2], (fact[-2], fact[-1])) for layer in self._layers for fact in layer)
        return ((fact, None) for layer in self._layers for fact in layer)

    @overload
    def __getitem__(self, place: int) -> Timed: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Timed]: ...
    def __getitem__(self, place: int | slice) -> Timed | Sequence[Timed]:
        return list(self)[place]
