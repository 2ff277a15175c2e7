"""Programs in tests: load one, evaluate one, or see how it is refused."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import dedent
from typing import Final, Literal

import pytest

from manglecp.base.diagnostic import Diagnostic
from manglecp.base.source import Source, Trust
from manglecp.mangle.errors import MangleError, Stage
from manglecp.mangle.program import Program
from tests.mangle.naive import evaluate

NOW: Final = 1_768_478_400 * 10**9  # 2026-01-15T12:00:00Z


def sources(*texts: str | Source) -> list[Source]:
    """Texts are named a.mg, b.mg, … in order."""
    return [
        text if isinstance(text, Source) else Source(f"{name}.mg", dedent(text))
        for name, text in zip("abcdefgh", texts, strict=False)
    ]


def load(
    *texts: str | Source, bounds: Literal["error", "off"] = "error", owners: Mapping[str, Trust] | None = None
) -> Program:
    return Program.load(sources(*texts), bounds=bounds, owners=owners)


def facts(*texts: str | Source, bounds: Literal["error", "off"] = "error") -> list[str]:
    """The least model."""
    return evaluate(load(*texts, bounds=bounds), now=NOW).facts()


def refusal(
    *texts: str | Source,
    stage: Stage = "analysis",
    bounds: Literal["error", "off"] = "error",
    owners: Mapping[str, Trust] | None = None,
) -> list[Diagnostic]:
    """The diagnostics of a program that is refused; every one of them is fit to be shown."""
    with pytest.raises(MangleError) as caught:
        evaluate(load(*texts, bounds=bounds, owners=owners), now=NOW)
    assert caught.value.stage == stage, caught.value.render()
    for diagnostic in caught.value.diagnostics:
        is_presentable(diagnostic)
        assert diagnostic.code == stage
    return list(caught.value.diagnostics)


def complaints(*texts: str | Source, stage: Stage = "analysis", bounds: Literal["error", "off"] = "error") -> list[str]:
    """The diagnostics as ``line:column message``, with the file in front unless it is the first."""
    return [placed(diagnostic) for diagnostic in refusal(*texts, stage=stage, bounds=bounds)]


def placed(diagnostic: Diagnostic) -> str:
    span = diagnostic.span
    assert span is not None
    file = "" if span.source.name == "a.mg" else f"{span.source.name}:"
    return f"{file}{span.line}:{span.column} {diagnostic.message}"


def is_presentable(diagnostic: Diagnostic) -> None:
    """A stage, a place, the clause, and one sentence of what is wrong (D28)."""
    assert diagnostic.span is not None, diagnostic
    assert diagnostic.span.source.name
    assert diagnostic.span.line >= 1
    assert diagnostic.span.column >= 1
    assert diagnostic.span.text or diagnostic.code == "parse"  # the end of the text is a place too
    assert diagnostic.message == diagnostic.message.strip()
    assert "\n" not in diagnostic.message + (diagnostic.fix or "")
    assert diagnostic.clause is None or diagnostic.clause.endswith(".")
    first, *others = diagnostic.render().split("\n")
    place = f"{diagnostic.span.source.name}:{diagnostic.span.line}:{diagnostic.span.column}"
    assert first.startswith(f"{diagnostic.severity}[{diagnostic.code}]: {place}: ")
    assert all(line.replace("\t", " ").isprintable() for line in (first, *others))
