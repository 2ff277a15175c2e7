"""Source text of a function: lines, loops, names, and access to relations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from manglecp.mangle.syntax import Key


def tuple_text(parts: Sequence[str]) -> str:
    return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"


class Code:
    """The source of a function. ``layers`` returns per predicate the layers that hold facts, see :class:`View`."""

    def __init__(self, ids: Mapping[Key, int], layers: Callable[[Key], str], loose: bool) -> None:
        self.ids = ids
        self.layers = layers
        self.loose = loose
        self.lines: list[str] = []
        self.prologue: dict[str, str] = {}
        self.namespace: dict[str, Any] = {}
        self.loops = 0
        self.headers: list[tuple[int, int]] = []  # of loops: the line, and how deep it stands
        self.temporaries = 0

    def write(self, line: str) -> None:
        self.lines.append("    " * self.loops + line)

    def loop(self, header: str) -> None:
        self.headers.append((len(self.lines), self.loops))
        self.write(header)
        self.loops += 1

    def unless(self, condition: str) -> None:
        """Skip this row (or return, outside of loops) if the condition holds."""
        self.write(f"if {condition}:")
        self.write(f"    {'continue' if self.loops else 'return'}")

    def given(self, value: Any, prefix: str) -> str:
        for name, known in self.namespace.items():
            if known is value and name.startswith(prefix):
                return name
        name = f"{prefix}{len(self.namespace)}"
        self.namespace[name] = value
        return name

    def temporary(self, prefix: str = "t") -> str:
        self.temporaries += 1
        return f"{prefix}{self.temporaries}"

    def handle(self, name: str, source: str) -> str:
        self.prologue.setdefault(name, f"{name} = {source}")
        return name

    def facts(self, key: Key, layer: str) -> str:
        """Name the facts of one layer: o the overlay, b the base, r what was removed from the base."""
        i = self.ids[key]
        place = {"o": "facts", "b": "base.facts", "r": "removed"}[layer]
        return self.handle(f"{layer}{i}", f"views[{i}].{place}")

    def index(self, key: Key, layer: str, columns: tuple[int, ...]) -> str:
        i = self.ids[key]
        owner = f"views[{i}]" if layer == "o" else f"views[{i}].base"
        return self.handle(f"{layer}{i}_{'_'.join(map(str, columns))}", f"{owner}.index({columns!r})")

    def _together(self, key: Key, read: Callable[[str], str]) -> str:
        found = []
        for layer in self.layers(key):
            if layer == "x" and self.loose:
                found.append(read("b"))
            elif layer == "x":
                found.append(f"live({read('b')}, {self.facts(key, 'r')})")
            else:
                found.append(read(layer))
        return found[0] if len(found) == 1 else f"chain({', '.join(found)})" if found else "E"

    def everything(self, key: Key) -> str:
        return self._together(key, lambda layer: self.facts(key, layer))

    def matching(self, key: Key, columns: tuple[int, ...], wanted: str) -> str:
        return self._together(key, lambda layer: f"{self.index(key, layer, columns)}.get({wanted}, E)")

    def contains(self, key: Key, fact: str) -> str:
        tests = []
        for layer in self.layers(key).replace("x", "b") if self.loose else self.layers(key):
            if layer == "x":
                tests.append(f"{fact} in {self.facts(key, 'b')} and {fact} not in {self.facts(key, 'r')}")
            else:
                tests.append(f"{fact} in {self.facts(key, layer)}")
        return " or ".join(tests) or "False"

    def exists(self, key: Key, columns: tuple[int, ...], wanted: str) -> str:
        """Return an expression that tests for a fact with these values in these columns, or any fact."""
        tests = []
        for layer in self.layers(key).replace("x", "b") if self.loose else self.layers(key):
            if layer == "x":
                bucket = f"{self.index(key, 'b', columns)}.get({wanted}, E)" if columns else self.facts(key, "b")
                tests.append(f"live({bucket}, {self.facts(key, 'r')})")
            elif columns:
                tests.append(f"{wanted} in {self.index(key, layer, columns)}")
            else:
                tests.append(self.facts(key, layer))
        return " or ".join(tests) or "False"
