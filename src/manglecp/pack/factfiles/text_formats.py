"""Fact files in JSON lines and in Mangle text."""

from __future__ import annotations

from manglecp.base.source import Source
from manglecp.mangle import Fact, FactText, parse_facts
from manglecp.pack.factfiles.files import SPLIT_FIX, FileErrors, FileLimits, lines
from manglecp.wire import Fault, Schemas, checked_interval, decode, read_fact


def read_jsonl(source: Source, schemas: Schemas, limits: FileLimits, check: bool) -> list[Fact]:
    """Return the facts; each line is a JSON fact as in messages. Raises :class:`ParseError` with all diagnostics."""
    problems = FileErrors(source, limits.errors)
    facts: list[Fact] = []
    for number, line in enumerate(lines(source.text), 1):
        try:
            if len(line) > limits.line:
                raise Fault(f"a line of more than {limits.line:,} characters", SPLIT_FIX)
            if not line.isspace():
                facts.append(read_fact(decode(line.encode()), schemas, check=check))
        except Fault as fault:
            where = f"{fault.path}: " if fault.steps else ""
            problems.add_line(f"{where}{fault.message}", number, fault.fix)
        if len(facts) > limits.facts:
            problems.add_line(f"more than {limits.facts:,} facts", number, SPLIT_FIX)
            problems.raise_all()
    problems.raise_if_any()
    return facts


def read_mangle(source: Source, schemas: Schemas, limits: FileLimits, check: bool) -> list[Fact]:
    """Return the facts. Raises :class:`ParseError` with all diagnostics."""
    text = parse_facts(source)
    problems = FileErrors(source, limits.errors)
    if len(text.facts) > limits.facts:
        _report(problems, text, limits.facts, Fault(f"more than {limits.facts:,} facts", SPLIT_FIX))
    _check_facts(text, schemas, problems, check_bounds=check)
    problems.raise_if_any()
    return text.facts


def _check_facts(text: FactText, schemas: Schemas, problems: FileErrors, *, check_bounds: bool) -> None:
    # Signatures (predicate, types of arguments) all of whose facts are valid: the next such fact needs no check.
    valid: set[tuple[str, tuple[type, ...]]] = set()
    for index, (predicate, args, interval) in enumerate(text.facts):
        signature = (predicate, tuple(map(type, args)))
        if signature in valid and interval is None:
            continue
        try:
            schema = schemas.find(predicate, len(args))
            if check_bounds:
                for position, arg in enumerate(args):
                    schema.check(position, arg)
            if interval is not None:
                checked_interval(*interval, schema)
        except Fault as fault:
            _report(problems, text, index, fault)
        else:
            if not check_bounds or all(shape.admits_whole_kinds for shape in schema.shapes):
                valid.add(signature)


def _report(problems: FileErrors, text: FactText, index: int, fault: Fault) -> None:
    """Report a fault at the first line of a fact."""
    start = text.starts[index]
    end = text.starts[index + 1] if index + 1 < len(text.starts) else len(problems.source.text)
    line = problems.source.text[start:end].partition("\n")[0].rstrip()
    problems.add(fault.message, start, start + len(line), fault.fix)
