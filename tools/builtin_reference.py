"""Write docs/reference/builtins.md from the tables of built-ins: `python tools/builtin_reference.py`."""

from collections.abc import Iterable
from itertools import groupby
from pathlib import Path

from manglecp.mangle.builtins import FUNCTIONS, PREDICATES, REDUCERS

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "builtins.md"

INTRODUCTION = """\
# Built-ins

Made from the tables in `src/manglecp/mangle/builtins` by `tools/builtin_reference.py`. Types are those of
[the language](mangle.md#types); a capital letter stands for any type, the same one throughout the line. An argument
of the wrong kind is an error at run time, unless the line says otherwise.
"""


def page() -> str:
    """The whole page."""
    functions = [(f.name, signature(f.params, f.rest), f.result, f.doc) for f in FUNCTIONS.values()]
    reducers = [(r.name, signature(r.params, r.rest), r.result, r.doc) for r in REDUCERS.values()]
    predicates = [(p.name, signature(p.params, None), p.modes, p.doc) for p in PREDICATES.values()]
    parts = [INTRODUCTION, "## Functions\n"]
    functions.sort(key=lambda row: (family(row[0]), row[0]))
    for group, rows in groupby(functions, key=lambda row: family(row[0])):
        parts += [f"### {group}\n", table(("function", "takes", "gives", "meaning"), rows)]
    parts += [
        "## Predicates\n",
        "Modes say per argument: `+` needs a value, `-` takes a variable, which gets one or is compared.\n",
        table(("predicate", "takes", "modes", "meaning"), sorted(predicates)),
        "## Reducers\n",
        "For the `let` of a `do fn:group_by(…)`. They see the rows of one group.\n",
        table(("reducer", "takes", "gives", "meaning"), sorted(reducers)),
    ]
    return "\n".join(parts)


def family(name: str) -> str:
    """`fn:time:add` belongs to `fn:time`."""
    parts = name.split(":")
    return "General" if len(parts) == 2 else ":".join(parts[:2])


def signature(params: tuple[str, ...], rest: str | None) -> str:
    return ", ".join([*params, *([f"{rest} …"] if rest else [])]) or "nothing"


def table(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [f"| {' | '.join(header)} |", "|---" * len(header) + "|"]
    lines += [f"| `{name}` | `{takes}` | `{gives}` | {meaning} |" for name, takes, gives, meaning in rows]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
