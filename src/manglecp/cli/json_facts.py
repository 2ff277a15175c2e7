"""Facts as JSON, one a line: the form of a ``.jsonl`` fact file, so that what one command prints another can read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from manglecp.cli.outputs import json_text
from manglecp.mangle import Program, Source, parse_facts

__all__ = ["json_facts"]


def json_facts(texts: Iterable[str], program: Program) -> Iterator[str]:
    """Canonical text says everything about a fact, so it is all that is needed."""
    from manglecp.wire import Schemas, write_fact

    schemas = Schemas(program.predicates)
    read = parse_facts(Source("facts", "".join(f"{text}.\n" for text in texts))).facts
    return (json_text(write_fact(fact, schemas)) for fact in read)
