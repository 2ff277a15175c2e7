"""Load and evaluate a program, for ``eval`` and ``query``."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import click

from manglecp import mangle, wire
from manglecp.base.diagnostic import Diagnostic
from manglecp.cli.files import option, option_group, read_sources
from manglecp.cli.output import ProgressLine, json_text, refuse

if TYPE_CHECKING:
    from manglecp.pack.factfiles import FactFile


def json_facts(texts: Iterable[str], program: mangle.Program) -> Iterator[str]:
    """Encode facts in canonical text as the lines of a ``.jsonl`` fact file."""
    schemas = wire.Schemas(program.predicates)
    facts = mangle.parse_facts(mangle.Source("facts", "".join(f"{text}.\n" for text in texts))).facts
    return (json_text(wire.write_fact(fact, schemas)) for fact in facts)


class TimedResult(NamedTuple):
    """The result of an evaluation with its warnings, and the durations of loading and evaluation."""

    result: mangle.Result
    compiled: mangle.CompiledProgram
    warnings: tuple[Diagnostic, ...]
    load_seconds: float
    evaluation_seconds: float


class EvaluationOptions(NamedTuple):
    """The options of an evaluation; ``limit`` is the maximum of derived facts, ``bounds`` the check of type bounds."""

    fact_files: tuple[FactFile, ...]
    now: int  # nanoseconds since the epoch
    limit: int
    bounds: Literal["error", "off"]

    @contextmanager
    def evaluate(
        self, files: Sequence[str], check: Callable[[mangle.Program], object], profile: mangle.RuleProfile | None = None
    ) -> Iterator[TimedResult]:
        """Evaluate the program in ``files`` with the facts of the fact files; ``check(program)`` runs first.

        An error of the program, even one raised in the ``with`` block, ends the process with status 1.
        """
        warnings: tuple[Diagnostic, ...] = ()
        check_bounds, limits = self.bounds == "error", mangle.Limits(derived_facts=self.limit)
        started_at = time.perf_counter()
        try:
            with ProgressLine("loading") as progress:
                program = mangle.Program.load(read_sources(files), bounds=self.bounds)
                warnings = program.warnings
                check(program)
                facts = self._read_facts(program, check_bounds=check_bounds)
                loaded_at = time.perf_counter()
                progress.doing = "evaluating"
                base = program.base(facts, check=check_bounds, limits=limits, profile=profile)
                result = base.evaluate(now=self.now, limits=limits)
                ended_at = time.perf_counter()
                progress.doing = "printing"
                yield TimedResult(result, base.compiled, warnings, loaded_at - started_at, ended_at - loaded_at)
        except mangle.MangleError as error:
            refuse(error, warnings)

    def _read_facts(self, program: mangle.Program, *, check_bounds: bool) -> list[mangle.Fact]:
        if not self.fact_files:
            return []
        from manglecp.pack.factfiles import read_facts

        try:
            return read_facts(self.fact_files, program, check=check_bounds)
        except OSError as error:
            name = click.format_filename(error.filename) if error.filename else "a fact file"
            raise click.UsageError(f"cannot read {name}: {error.strerror or error}") from None


def _evaluation_time(context: click.Context, parameter: click.Parameter, text: str | None) -> int:
    """Return nanoseconds since the epoch."""
    if text is None:
        return time.time_ns()
    ns = mangle.parse_rfc3339(text.strip().upper())
    if ns is None:
        example = "2026-01-31T12:00:00Z or 2026-01-31T13:00:00+01:00"
        raise click.BadParameter(f"{text!r} is not a time such as {example}.", context, parameter)
    if not mangle.INT_MIN < ns < mangle.INT_MAX:  # the two limits stand for infinity
        message = f"{text!r} is out of range: use a time between 1677-09-21 and 2262-04-11."
        raise click.BadParameter(message, context, parameter)
    return ns


def _fact_files(context: click.Context, parameter: click.Parameter, texts: tuple[str, ...]) -> tuple[FactFile, ...]:
    """Convert ``FILE``, or ``NAME=FILE`` for a file that is not named after its predicate."""
    if not texts:
        return ()
    from manglecp.pack.factfiles import FactFile

    fact_files = []
    for text in texts:
        name, equals, file = text.partition("=")
        has_name = bool(equals) and not Path(text).exists()  # the name of a file may contain =
        path = Path(file if has_name else text)
        if not path.is_file():
            raise click.BadParameter(f"there is no file {click.format_filename(path)!r}.", context, parameter)
        fact_files.append(FactFile(path, name if has_name else None))
    return tuple(fact_files)


evaluation_options: Final = option_group(
    "options",
    EvaluationOptions,
    option(
        "--facts [NAME=]FILE",
        "fact_files",
        multiple=True,
        callback=_fact_files,
        help="A file of facts: .mg, .jsonl, .csv or .sc, also with .gz. May be given several times.",
    ),
    option(
        "--now TIME", callback=_evaluation_time, help="The evaluation time in RFC 3339; by default the current time."
    ),
    option(
        "--limit N",
        type=click.IntRange(min=0),
        default=10_000_000,
        help="Maximum of derived facts; by default 10,000,000.",
    ),
    option(
        "--bounds",
        type=click.Choice(["error", "off"]),
        default="error",
        help="Whether type bounds are checked, and a violation is an error (error), or not checked (off).",
    ),
)
