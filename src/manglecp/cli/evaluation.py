"""Load and evaluate a program, for ``eval`` and ``query``."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from manglecp.base.diagnostic import Diagnostic
from manglecp.cli.files import (
    bounds_option,
    facts_option,
    group,
    limit_option,
    now_option,
    read_fact_files,
    read_sources,
)
from manglecp.cli.output import ProgressLine, json_text, refuse
from manglecp.mangle import CompiledProgram, Limits, MangleError, Program, Result, Source, evaluate, parse_facts

if TYPE_CHECKING:
    from manglecp.pack.factfiles import FactFile


def json_facts(texts: Iterable[str], program: Program) -> Iterator[str]:
    """Encode facts in canonical text as the lines of a ``.jsonl`` fact file."""
    from manglecp.wire import Schemas, write_fact

    schemas = Schemas(program.predicates)
    read = parse_facts(Source("facts", "".join(f"{text}.\n" for text in texts))).facts
    return (json_text(write_fact(fact, schemas)) for fact in read)


class TimedResult(NamedTuple):
    """The result of an evaluation, with its duration."""

    result: Result
    compiled: CompiledProgram
    warnings: tuple[Diagnostic, ...]
    load_seconds: float
    evaluation_seconds: float


class EvaluationOptions(NamedTuple):
    fact_files: tuple[FactFile, ...]
    now: int
    limit: int
    bounds: Literal["error", "off"]

    @contextmanager
    def evaluate(self, files: Sequence[str], accept: Callable[[Program], object]) -> Iterator[TimedResult]:
        """Evaluate the program with the facts of the files; ``accept`` may raise before the evaluation.

        An error of the program, also one raised in the ``with`` block, ends the verb with status 1.
        """
        warnings: tuple[Diagnostic, ...] = ()
        check, limits = self.bounds == "error", Limits(derived_facts=self.limit)
        started = time.perf_counter()
        try:
            with ProgressLine("loading") as progress:
                program = Program.load(read_sources(files), bounds=self.bounds)
                warnings = program.warnings
                accept(program)
                facts = read_fact_files(self.fact_files, program, check=check) if self.fact_files else None
                loaded = time.perf_counter()
                progress.doing = "evaluating"
                if facts is not None:
                    base = program.base(facts, check=check, limits=limits)
                    compiled = base.compiled
                    result = base.evaluate(now=self.now, limits=limits)
                else:
                    compiled = CompiledProgram(program)
                    result = evaluate(program, now=self.now, limits=limits, compiled=compiled)
                ended = time.perf_counter()
                progress.doing = "printing"
                yield TimedResult(result, compiled, warnings, loaded - started, ended - loaded)
        except MangleError as error:
            refuse(error, warnings)


evaluation_options: Final = group("options", EvaluationOptions, facts_option, now_option, limit_option, bounds_option)
