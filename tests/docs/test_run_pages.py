"""The pages about invocations name what there is: predicates, settings, reasons, codes."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from manglecp.intent import Domain
from manglecp.intent.kernel import kernel_sources
from manglecp.invoke import InvokeSettings
from manglecp.invoke.executor import StopReason
from manglecp.pack import Invocation
from manglecp.wire import CODES
from tests.docs.test_pages import ROOT, fences
from tests.intent.packs import pack
from tests.invoke.turns import action

RULES = "reference/run-rules.md"
PAGE = "reference/invocation.md"
ABOUT_RUNS = [
    *("run_of", "ran", "run_arg", "step_status", "step_value", "extract", "skip_step", "on_error"),
    *("undo_step", "undo_value", "undo_in", "undo_out"),
    *("asserts", "asserts_during", "retracts", "suggests", "continues_with", "summary"),
    *("bulk_asserted", "bulk_retracted"),
]


def text_of(page: str) -> str:
    return (ROOT / "docs" / page).read_text("utf-8")


@pytest.mark.parametrize("predicate", ABOUT_RUNS)
def test_each_predicate_is_shown_with_its_arguments(predicate: str) -> None:
    (declared,) = (
        found[1].split(", ")
        for source in kernel_sources()
        if (found := re.search(rf"^Decl {predicate}\(([^)]*)\)", source.text, re.MULTILINE))
    )
    shown = re.findall(rf"`{predicate}\(([^)\[\"]*)\)`", text_of(RULES))
    assert shown, "the page does not have it"
    for arguments in shown:
        assert len(arguments.split(", ")) == len(declared)


def loaded(snippet: str, schema: dict[str, int], chains: dict[str, dict[str, str]], *more: str) -> Domain:
    """A pack with these rules. ``chains`` are its tools, each with its actions and the parameter that each takes."""
    declared = "".join(
        f"Decl {name}({', '.join('ABC'[:arity])})"
        f' descr [doc("One."), direction("both")] bound [{", ".join(["/string"] * arity)}].\n'
        for name, arity in schema.items()
    )
    tools = "".join(
        f'macro("{tool}", "One.").\n'
        + "".join(
            f'macro_step("{tool}", {number}, "{name}").\n' for number, name in enumerate(steps, 1) if name not in more
        )
        for tool, steps in chains.items()
    )
    actions = [
        replace(action(name, 1), input_schema={"type": "object", "properties": {param: {"type": "string"}}})
        for steps in chains.values()
        for name, param in steps.items()
    ]
    return Domain.load(pack(tools + snippet, schema=declared, actions=actions, intents=("compare",)))


def test_the_rules_of_the_page_load() -> None:
    about_runs, about_calls, about_keeping = fences(RULES)
    refund = 'macro("refund", "One."). macro_step("refund", 1, "pay").'
    pay = replace(action("pay", 1), input_schema={"type": "object", "properties": {"amount": {"type": "integer"}}})
    permissions = ("refund_large", "treasurer")
    assert Domain.load(pack(refund, policy=about_calls, actions=[pay], permissions=permissions)).run_rules.judges_calls
    steps = {"count_rows": "table", "copy": "target", "compare": "table", "drop_table": "table"}
    assert loaded(about_runs, {"copied": 1, "missing": 1}, {"copy_table": steps}, "drop_table").program.rules
    chains = {"edit": {"apply_patch": "path"}, "take_back": {"put_back": "backup"}}
    assert loaded(about_keeping, {"changed": 2}, chains).program.rules


def rows(page: str, heading: str) -> list[list[str]]:
    section = text_of(page).partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return [
        [cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line.startswith("| `")
    ]


def test_the_settings_of_a_pack_have_the_defaults_that_are_shown() -> None:
    shown = {cells[0].strip("`"): cells[2] for cells in rows(PAGE, "Settings of a pack") if cells[0] != "`digest`"}
    default = Invocation()
    assert shown == {name: f"{getattr(default, name):,}" for name in Invocation.__dataclass_fields__}


def test_the_settings_of_whoever_runs_it_have_the_defaults_that_are_shown() -> None:
    shown = {
        cells[0].strip("`").partition(".")[2]: cells[2]
        for cells in rows(PAGE, "Settings of whoever runs it")
        if cells[0].startswith("`InvokeSettings.")
    }
    default = InvokeSettings()
    defaults = {name: getattr(default, name) for name in InvokeSettings.__dataclass_fields__}
    assert shown == {name: f"{value:,}" if type(value) is int else f"`{value}`" for name, value in defaults.items()}


def test_every_reason_is_there() -> None:
    shown = {cells[0].strip("`") for cells in rows(PAGE, "Details of execution_failed and cancelled")}
    assert shown >= set(get_args(StopReason))


def test_every_code_in_the_table_of_errors_is_one() -> None:
    section = text_of(PAGE).partition("\n## Errors before the first effect\n")[2].partition("\n## ")[0]
    codes = {code for line in section.splitlines() if line.startswith("| ") for code in re.findall("`([^`.]+)`", line)}
    assert codes - {"retry_after_ms"} <= set(CODES)
    assert len(codes) > 8


def test_the_program_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("MANGLECP_STATE_DIR", str(tmp_path / "state"))
    (code,) = fences(PAGE)
    *lines, last = code.strip().splitlines()
    known: dict[str, object] = {}
    exec("\n".join(lines), known)  # our own page
    call, _, expected = last.partition("  # ")
    assert str(eval(call, known)) == expected
