"""Fact files in text formats: JSON lines, Mangle facts, simplecolumn."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import islice, repeat
from typing import Final, NoReturn
from urllib.parse import unquote

from manglecp.base.source import Source
from manglecp.base.text import quote
from manglecp.mangle import Fact, FactText, Float, Value, parse_facts
from manglecp.pack.factfiles.files import SPLIT_FIX, FileErrors, FileLimits, lines
from manglecp.pack.factfiles.tables import CellCache, parse_literal
from manglecp.wire import Fault, Schema, Schemas, checked_interval, decode, read_fact, read_name


def read_jsonl(source: Source, schemas: Schemas, limits: FileLimits, check_bounds: bool) -> list[Fact]:
    """Return the facts; each line is a JSON fact as in messages. Raises :class:`ParseError` with all diagnostics."""
    problems = FileErrors(source, limits.errors)
    facts: list[Fact] = []
    for number, line in enumerate(lines(source.text), 1):
        try:
            if len(line) > limits.line:
                raise Fault(f"a line of more than {limits.line:,} characters", SPLIT_FIX)
            if not line.isspace():
                facts.append(read_fact(decode(line.encode()), schemas, check=check_bounds))
        except Fault as fault:
            location = f"{fault.path}: " if fault.steps else ""
            problems.add_line(f"{location}{fault.message}", number, fault.fix)
        if len(facts) > limits.facts:
            problems.add_line(f"more than {limits.facts:,} facts", number, SPLIT_FIX)
            problems.raise_all()
    problems.raise_if_any()
    return facts


def read_mangle(source: Source, schemas: Schemas, limits: FileLimits, check_bounds: bool) -> list[Fact]:
    """Return the facts. Raises :class:`ParseError` with all diagnostics."""
    text = parse_facts(source)
    problems = FileErrors(source, limits.errors)
    if len(text.facts) > limits.facts:
        _report(problems, text, limits.facts, Fault(f"more than {limits.facts:,} facts", SPLIT_FIX))
    _check_facts(text, schemas, problems, check_bounds=check_bounds)
    problems.raise_if_any()
    return text.facts


def _check_facts(text: FactText, schemas: Schemas, problems: FileErrors, *, check_bounds: bool) -> None:
    # Signatures (predicate, types of arguments) whose facts are all valid: further facts need no check.
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
            # Facts with this signature are valid if bounds are not checked, or if these types cannot be out of bounds.
            if not check_bounds or all(shape.admits_whole_kinds for shape in schema.shapes):
                valid.add(signature)


def _report(problems: FileErrors, text: FactText, index: int, fault: Fault) -> None:
    """Report a fault at the first line of a fact."""
    start = text.starts[index]
    end = text.starts[index + 1] if index + 1 < len(text.starts) else len(problems.source.text)
    line = problems.source.text[start:end].partition("\n")[0].rstrip()
    problems.add(fault.message, start, start + len(line), fault.fix)


# Limits of a simplecolumn file.
MAX_PREDICATES: Final = 1 << 16
MAX_ARGUMENTS: Final = 1 << 10

_COUNT: Final = re.compile(r"[0-9]{1,10}")
_ENTRY: Final = re.compile(r"(?P<name>\S{1,1000}) (?P<arity>[0-9]{1,10}) (?P<count>[0-9]{1,10})")
_PLAIN_STRING: Final = re.compile(r'"[^"\\\r]*"')
_PLAIN_NUMBER: Final = re.compile(r"-?[0-9]{1,18}", re.ASCII)
_BAD_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")


def read_simplecolumn(source: Source, schemas: Schemas, limits: FileLimits, check_bounds: bool) -> list[Fact]:
    """Return the facts. Raises :class:`ParseError` with all diagnostics."""
    return _SimpleColumnReader(source, limits, check_bounds).read(schemas)


class _SimpleColumnReader:
    """A reader of simplecolumn, a format of other Mangle implementations (language reference, section 10.4).

    The first line is the number of predicates. A line ``name arity count`` for each predicate follows, and then the
    arguments: predicate by predicate, column by column, one Mangle constant per line. A name may be percent-encoded.
    Floats without a fraction are written like integers, so an integer is read as a float where ``/float64`` is
    declared.
    """

    def __init__(self, source: Source, limits: FileLimits, check_bounds: bool) -> None:
        self.limits = limits
        self.check_bounds = check_bounds
        self.problems = FileErrors(source, limits.errors)
        self.lines: Iterator[str] = (line.rstrip("\r\n") for line in lines(source.text))
        self.lines_read = 0

    def read(self, schemas: Schemas) -> list[Fact]:
        facts: list[Fact] = []
        for schema, count in self._read_header(schemas):
            facts += self._facts(schema, count)
        if next(self.lines, "") != "":
            self._refuse("more lines than the header announces", "the file is damaged: write it again")
        self.problems.raise_if_any()
        return facts

    def _read_header(self, schemas: Schemas) -> list[tuple[Schema, int]]:
        (predicate_count,) = self._take(1)
        if _COUNT.fullmatch(predicate_count) is None or int(predicate_count) > MAX_PREDICATES:
            message = f"{quote(predicate_count)} is not a number of predicates"
            self._refuse(message, "a simplecolumn file starts with this number")
        entries = [self._entry(self._take(1)[0], schemas) for _ in range(int(predicate_count))]
        self.problems.raise_if_any()
        if sum(count for _, count in entries) > self.limits.facts:
            self._refuse(f"more than {self.limits.facts:,} facts", SPLIT_FIX)
        return entries

    def _entry(self, line: str, schemas: Schemas) -> tuple[Schema, int]:
        entry = _ENTRY.fullmatch(line)
        if entry is None or int(entry["arity"]) > MAX_ARGUMENTS:
            self._refuse(f"{quote(line)} does not announce a predicate", "write: name arity count")
        name, arity, count = entry["name"], int(entry["arity"]), int(entry["count"])
        try:
            return schemas.find(name, arity), count
        except Fault as fault:
            self.problems.add_line(fault.message, self.lines_read, fault.fix)
            return Schema(name, ()), count

    def _facts(self, schema: Schema, count: int) -> list[Fact]:
        if schema.arity == 0:
            return [Fact(schema.predicate, ())] if count else []
        columns = [self._column(schema, position, count) for position in range(schema.arity)]
        rows = zip(*columns, strict=True)
        # tuple.__new__ instead of Fact saves a slow call for each row.
        return list(map(tuple.__new__, repeat(Fact), zip(repeat(schema.predicate), rows, repeat(None))))

    def _column(self, schema: Schema, position: int, count: int) -> list[Value]:
        first_line = self.lines_read + 1
        texts = self._take(count)
        cells = CellCache(self._reader(schema, position))
        try:
            return [cells[text] for text in texts]
        except Fault:
            for number, text in enumerate(texts, first_line):
                try:
                    cells[text]
                except Fault as fault:
                    self.problems.add_line(f"{schema.argument(position)}: {fault.message}", number, fault.fix)
            self.problems.raise_all()

    def _reader(self, schema: Schema, position: int) -> Callable[[str], Value]:
        is_float = schema.shapes[position].kinds == {"float64"}

        def read(text: str) -> Value:
            value = _read_constant(text)
            if is_float and type(value) is int:
                value = Float(float(value))
            return schema.check(position, value) if self.check_bounds else value

        return read

    def _take(self, count: int) -> list[str]:
        """Return the next ``count`` lines. Raises :class:`ParseError` for missing lines, and for a line too long."""
        texts = list(islice(self.lines, count))
        self.lines_read += len(texts)
        if len(texts) < count:
            self._refuse(f"the file ends {count - len(texts):,} lines too early", "the file is damaged: write it again")
        if texts and max(map(len, texts)) > self.limits.line:
            self._refuse(f"a line of more than {self.limits.line:,} characters", SPLIT_FIX)
        return texts

    def _refuse(self, message: str, fix: str) -> NoReturn:
        self.problems.add_line(message, max(1, self.lines_read), fix)
        self.problems.raise_all()


def _read_constant(text: str) -> Value:
    if _PLAIN_STRING.fullmatch(text):
        return text[1:-1]
    if _PLAIN_NUMBER.fullmatch(text):
        return int(text)
    if text.startswith("/"):
        return read_name(_percent_decode(text))
    return parse_literal(text)


def _percent_decode(name: str) -> str:
    if "%" not in name:
        return name
    try:
        if _BAD_ESCAPE.search(name):
            raise ValueError
        return unquote(name, errors="strict")
    except ValueError:
        raise Fault(f"{quote(name)} is not percent-encoded", "write a percent sign as %25") from None
