"""Mangle text that holds facts and nothing else."""

from __future__ import annotations

from manglecp.mangle import Fact, FactText, Source, parse_facts
from manglecp.pack.factfiles.limits import FileLimits
from manglecp.pack.factfiles.problems import Problems
from manglecp.wire import Fault, Schemas, checked_interval


def read_mangle(source: Source, schemas: Schemas, limits: FileLimits, check: bool) -> list[Fact]:
    """The facts, or an error with everything that is wrong in the file."""
    text = parse_facts(source)
    problems = Problems(source, limits.errors)
    if len(text.facts) > limits.facts:
        _complain(
            problems,
            text,
            limits.facts,
            Fault(f"more than {limits.facts:,} facts", "split the file, or give larger FileLimits"),
        )
    _check(text, schemas, problems, check)
    problems.settle()
    return text.facts


def _check(text: FactText, schemas: Schemas, problems: Problems, check: bool) -> None:
    sound: set[tuple[str, tuple[type, ...]]] = set()  # combinations of kinds that fit whatever the values are
    for i, (predicate, args, interval) in enumerate(text.facts):
        kinds = (predicate, tuple(map(type, args)))
        if kinds in sound and interval is None:
            continue
        try:
            schema = schemas.find(predicate, len(args))
            if check:
                for position, arg in enumerate(args):
                    schema.check(position, arg)
            if interval is not None:
                checked_interval(*interval, schema)
        except Fault as fault:
            _complain(problems, text, i, fault)
        else:
            if not check or all(shape.by_kind for shape in schema.shapes):
                sound.add(kinds)


def _complain(problems: Problems, text: FactText, index: int, fault: Fault) -> None:
    start = text.starts[index]
    end = text.starts[index + 1] if index + 1 < len(text.starts) else len(problems.source.text)
    written = problems.source.text[start:end].partition("\n")[0].rstrip()
    problems.add(fault.message, start, start + len(written), fault.fix)
