"""``manglecp check``: diagnostics, for people or as JSON."""

from __future__ import annotations

import json
from typing import Any

import click

from manglecp.cli import inputs
from manglecp.cli.outputs import Progress, count, report, write_lines
from manglecp.mangle.errors import Diagnostic, MangleError
from manglecp.mangle.program import Program

__all__ = ["command"]


@click.command("check")
@inputs.files
@click.option("--json", "as_json", is_flag=True, help="Print the diagnostics as one JSON document.")
def command(files: tuple[str, ...], as_json: bool) -> None:
    """Parse, analyse and stratify the program in FILEs, and evaluate nothing.

    Reports everything that is wrong at the first stage where something is, and warnings. The exit status is 1 if there
    is an error.
    """
    checked = count(len(files), "file")
    diagnostics: tuple[Diagnostic, ...]
    try:
        with Progress("checking"):
            program = Program.load(inputs.read_sources(files))
        diagnostics = program.warnings
        checked += f", {count(len(program.rules), 'rule')}, {count(len(program.facts), 'fact')}"
    except MangleError as error:
        diagnostics = error.diagnostics
    errors = sum(d.severity == "error" for d in diagnostics)
    if as_json:
        document = {"ok": not errors, "diagnostics": [_as_json(d) for d in diagnostics]}
        write_lines([json.dumps(document, indent=2)])
    else:
        report(diagnostics)
        write_lines([f"{checked}: {_verdict(errors, len(diagnostics) - errors)}"])
    if errors:
        raise click.exceptions.Exit(1)


def _verdict(errors: int, warnings: int) -> str:
    parts = [count(errors, "error") if errors else "ok"]
    if warnings:
        parts.append(count(warnings, "warning"))
    return ", ".join(parts)


def _as_json(diagnostic: Diagnostic) -> dict[str, Any]:
    """Lines and columns count from 1; the end is behind the last character."""
    file = line = column = end_line = end_column = None
    if (span := diagnostic.span) is not None:
        file = span.source.name
        line, column = span.source.position(span.start)
        end_line, end_column = span.source.position(span.end)
    return {
        "severity": diagnostic.severity,
        "stage": diagnostic.stage,
        "message": diagnostic.message,
        "file": file,
        "line": line,
        "column": column,
        "end_line": end_line,
        "end_column": end_column,
        "clause": diagnostic.clause,
        "fix": diagnostic.fix,
    }
