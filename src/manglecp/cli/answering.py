"""Load, evaluate, ask: what ``eval`` and ``query`` have in common."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Literal, TypeVar

import click

from manglecp.base.diagnostic import Diagnostic
from manglecp.cli import inputs
from manglecp.cli.outputs import Progress, refuse
from manglecp.mangle import CompiledProgram, Limits, MangleError, Program, Result, Statistics, evaluate, naive

if TYPE_CHECKING:
    from manglecp.pack.factfiles import FactFile

__all__ = ["Answer", "Bounds", "Engine", "answer"]

_T = TypeVar("_T")
Bounds = Literal["error", "off"]
Engine = Literal["compiled", "naive"]


@dataclass(frozen=True, slots=True)
class Answer(Generic[_T]):
    """What was found in the model, and what it took. ``compiled`` is None where the naive engine answered."""

    found: _T
    compiled: CompiledProgram | None
    warnings: tuple[Diagnostic, ...]
    statistics: Statistics
    load_seconds: float
    evaluation_seconds: float


def answer(
    files: Sequence[str],
    ask: Callable[[Result], _T],
    *,
    now: int,
    limit: int,
    bounds: Bounds,
    facts: Sequence[FactFile] = (),
    engine: Engine = "compiled",
    accept: Callable[[Program], None] = lambda program: None,  # noqa: ARG005
) -> Answer[_T]:
    """What ``ask`` finds in the model of the program and, as facts of a server, those of the fact files.

    ``accept`` may refuse the question before anything is evaluated.
    """
    if facts and engine == "naive":
        raise click.UsageError("--facts needs a base, and the naive engine has none.")
    warnings: tuple[Diagnostic, ...] = ()
    started = time.perf_counter()
    try:
        with Progress("loading") as progress:
            program = Program.load(inputs.read_sources(files), bounds=bounds)
            warnings = program.warnings
            accept(program)
            given = inputs.read_fact_files(facts, program, check=bounds == "error") if facts else None
            loaded = time.perf_counter()
            progress.doing = "evaluating"
            limits = Limits(derived_facts=limit)
            if engine == "naive":
                compiled = None
                result = naive.evaluate(program, now=now, limits=limits)
            elif given is not None:
                base = program.base(given, check=bounds == "error", limits=limits)
                compiled = base.compiled
                result = base.evaluate(now=now, limits=limits)
            else:
                compiled = CompiledProgram(program)
                result = evaluate(program, now=now, limits=limits, compiled=compiled)
            progress.doing = "answering"
            found = ask(result)
    except MangleError as error:
        refuse(error, warnings)
    return Answer(found, compiled, warnings, result.statistics, loaded - started, time.perf_counter() - loaded)
