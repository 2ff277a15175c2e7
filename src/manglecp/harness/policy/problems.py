"""What is wrong with the documents of a package: all of it at once, each thing with its file and place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

__all__ = ["Place", "PolicyError", "Problem", "Problems"]


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A file and the way to a value in it, as a JSON pointer."""

    file: str
    pointer: str = ""

    def __truediv__(self, step: str | int) -> Place:
        escaped = str(step).replace("~", "~0").replace("/", "~1")
        return Place(self.file, f"{self.pointer}/{escaped}")

    def __str__(self) -> str:
        return f"{self.file}: {self.pointer or '/'}"


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """One thing that is wrong. They sort by file and place."""

    place: Place
    message: str

    def __str__(self) -> str:
        return f"{self.place}: {self.message}"


class PolicyError(ValueError):
    """Documents that are no policy."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = tuple(problems)


class Problems:
    """Collects them while documents are read."""

    def __init__(self) -> None:
        self._found: list[Problem] = []

    def __iter__(self) -> Iterator[Problem]:
        return iter(sorted(self._found))

    def add(self, place: Place, message: str) -> None:
        """One more thing that is wrong, at this place."""
        self._found.append(Problem(place, message))

    def unknown(self, place: Place, what: str, name: str, known: Iterable[str]) -> None:
        """Something that has no such name, with the name that was probably meant."""
        from manglecp.base.suggestions import closest_match  # only needed when something is wrong

        names = sorted(known)
        meant = closest_match(name, names)
        hint = f"did you mean {meant}?" if meant else f"known are {', '.join(names)}"
        self.add(place, f"{what} {name!r} is unknown; {hint}")

    def refuse(self) -> None:
        """Raise if there are any."""
        if self._found:
            raise PolicyError(tuple(self))
