"""Schemas that reach out, never end, or explode: refused when the pack is loaded, in little time, without any I/O."""

from __future__ import annotations

import time

import pytest

from manglecp.intent import Domain
from manglecp.pack import PackError
from tests.adversarial.reaching_out import asked
from tests.intent.packs import action, pack

__all__ = ["asked"]  # a fixture

TOOL = 'macro("see", "See.").\nmacro_step("see", 1, "look").\n'
LONG = 30.0
"""Seconds, on a busy machine; what explodes would take ages."""


def refused(schema: str) -> str:
    """What is said about a tool that has this schema for a parameter."""
    started = time.monotonic()
    with pytest.raises(PackError) as caught:
        Domain.load(pack(TOOL + f'macro_param("see", "p", {schema}).'))
    assert time.monotonic() - started < LONG
    (problem,) = caught.value.diagnostics
    assert problem.place.startswith("rules/domain/domain.mg:3:")
    return problem.message


@pytest.mark.parametrize("keyword", ["$ref", "$dynamicRef", "$id"])
def test_nothing_is_fetched(asked: tuple[str, list[str]], keyword: str) -> None:
    address, notes = asked
    assert refused(f'{{"{keyword}": "{address}/schema.json"}}')
    assert notes == []


def test_a_dialect_is_a_name_and_no_address(asked: tuple[str, list[str]]) -> None:
    address, notes = asked
    Domain.load(pack(TOOL + f'macro_param("see", "p", {{"$schema": "{address}/schema.json"}}).'))
    assert notes == []


def test_no_file_is_read() -> None:
    assert "file:///etc/hostname" in refused('{"$ref": "file:///etc/hostname"}')
    assert refused('{"items": {"$ref": "../../secret.json"}}')


@pytest.mark.parametrize(
    "schema",
    [
        '{"$ref": "#"}',
        '{"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}',
        '{"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "allOf": [{"$ref": "#/$defs/a"}]}',
    ],
)
def test_cycles(schema: str) -> None:
    assert "refers to" in refused(schema)


def test_branches_cannot_be_multiplied_by_reference() -> None:
    """Thirty lines that say 2^30 schemas need references, and there are none."""
    levels = ", ".join(
        f'"l{n}": {{"oneOf": [{{"$ref": "#/$defs/l{n + 1}"}}, {{"$ref": "#/$defs/l{n + 1}"}}]}}' for n in range(30)
    )
    assert "refers to" in refused(f'{{"$defs": {{{levels}, "l30": {{}}}}, "$ref": "#/$defs/l0"}}')


@pytest.mark.parametrize("pattern", ["(a{1000}){1000}", "((a{100}){100}){100}", "(?=a)b(", "("])
def test_patterns_that_cannot_be_run_in_bounded_time(pattern: str) -> None:
    assert refused(f'{{"pattern": "{pattern}"}}')


def test_depth() -> None:
    deep = '{"type": "string"}'
    for _ in range(3_000):
        deep = f'{{"items": {deep}}}'
    with pytest.raises(PackError):
        Domain.load(pack(TOOL + f'macro_param("see", "p", {deep}).'))


def test_an_action_whose_schema_refers_elsewhere_makes_no_tool(asked: tuple[str, list[str]]) -> None:
    address, notes = asked
    look = action("look", params={"path": {"$ref": f"{address}/schema.json"}})
    with pytest.raises(PackError, match="is never offered"):
        Domain.load(pack(TOOL, actions=[look]))
    assert notes == []
