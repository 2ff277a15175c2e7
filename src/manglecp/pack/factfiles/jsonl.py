"""JSON lines: each line is a fact object, as on the wire."""

from __future__ import annotations

from manglecp.mangle import Fact, Source
from manglecp.pack.factfiles.limits import FileLimits
from manglecp.pack.factfiles.opening import lines
from manglecp.pack.factfiles.problems import Problems
from manglecp.wire import Fault, Schemas, decode, read_fact


def read_jsonl(source: Source, schemas: Schemas, limits: FileLimits, check: bool) -> list[Fact]:
    """The facts, or an error with everything that is wrong in the file."""
    problems = Problems(source, limits.errors)
    facts: list[Fact] = []
    for number, line in enumerate(lines(source.text), 1):
        try:
            if len(line) > limits.line:
                raise Fault(
                    f"a line of more than {limits.line:,} characters", "split the file, or give larger FileLimits"
                )
            if not line.isspace():
                facts.append(read_fact(decode(line.encode()), schemas, check=check))
        except Fault as fault:
            where = f"{fault.path}: " if fault.steps else ""
            problems.add_line(f"{where}{fault.message}", number, fault.fix)
        if len(facts) > limits.facts:
            problems.add_line(f"more than {limits.facts:,} facts", number, "split the file, or give larger FileLimits")
            problems.refuse()
    problems.settle()
    return facts
