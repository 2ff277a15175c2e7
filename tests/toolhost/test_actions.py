"""Actions as plain functions, tools as what is known about them, plugins as where they come from."""

import asyncio
import subprocess
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import pytest

import manglecp
from manglecp import Context, Limits, action
from manglecp.toolhost.actions import Declaration, declaration
from manglecp.toolhost.hints import HintError
from manglecp.toolhost.plugin import PluginAction, PluginError, action_id, load
from tests.toolhost.conversation import UNMEASURED


def tool(function: Callable[..., Any]) -> PluginAction:
    said = declaration(function)
    assert said is not None
    return PluginAction("AID.T.F.v1", function, said)


def properties(function: Callable[..., Any]) -> dict[str, Any]:
    found: dict[str, Any] = tool(function).descriptor["inputs_schema"]["properties"]
    return found


# ------------------------------------------------------------------------------------------------ actions


def test_an_action_stays_a_function() -> None:
    @action(effects=["process", "filesystem"], reversible=True, idempotent=True, timeout=2.5, spawn=["/bin/true"])
    def double(number: int) -> int:
        return 2 * number

    assert double(4) == 8
    said = Declaration(("process", "filesystem"), 2, True, True, 2.5, True, ("/bin/true",), 1)
    assert declaration(double) == said
    assert declaration(len) is None


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"effects": ["payments"], "mutates": False}, ValueError),
        ({"effects": "filesystem"}, TypeError),
        ({"effects": [], "spawn": "/bin/sh"}, TypeError),
        ({"effects": ["network"], "spawn": ["sh"]}, ValueError),
        ({"effects": [], "timeout": 0}, ValueError),
        ({"effects": [], "timeout": float("nan")}, ValueError),
        ({"effects": [], "timeout": float("inf")}, ValueError),
        ({"effects": [], "version": 0}, ValueError),
        ({}, TypeError),
    ],
)
def test_a_declaration_that_makes_no_sense(arguments: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        action(**arguments)


def test_names_are_looked_up_when_they_are_asked_for() -> None:
    code = "import sys, manglecp; print(*sorted(m for m in sys.modules if m.startswith('manglecp')))"
    expected = ["manglecp", "manglecp.base", "manglecp.base.lazy"]
    assert subprocess.check_output([sys.executable, "-c", code], env=UNMEASURED, text=True).split() == expected
    with pytest.raises(AttributeError, match="no attribute 'actions'"):
        _ = manglecp.actions  # type: ignore[attr-defined]  # that is the point


def test_a_plain_plugin_needs_no_heavy_import(tmp_path: Path) -> None:
    plugin = tmp_path / "plain.py"
    plugin.write_text("from manglecp import action\n@action(effects=[])\ndef f(a: int) -> int:\n    return a\n")
    code = (
        "import sys\nfrom manglecp.toolhost.host.__main__ import main\n"
        f"main(['--run', {str(plugin)!r}, 'AID.PLAIN.F.v1'])\n"
        "sys.stderr.write(' '.join({'asyncio', 'dataclasses', 'inspect', 'msgspec'} & set(sys.modules)))"
    )
    command, stdin = [sys.executable, "-c", code], b'{"inputs":{"a":1}}'
    done = subprocess.run(command, input=stdin, capture_output=True, env=UNMEASURED, check=True)
    assert b'"output_json":"1"' in done.stdout
    assert done.stderr == b""


# ------------------------------------------------------------------------------------------------ tools


def test_parameters_become_members() -> None:
    @action(effects=["none"])
    def search(context: Context, query: str, *, limit: Annotated[int, Limits(ge=1), "how many"] = 5) -> list[str]:
        """Find what
        matches.

        More about it.

        Args:
            query: words: all of them
            limit: not this text

        Returns: a list
        """
        context.progress(limit)
        return [query] * limit

    found = tool(search)
    described = found.descriptor
    assert described["description"] == "Find what matches.\n\nMore about it."
    assert described["inputs_schema"]["required"] == ["query"]
    assert described["inputs_schema"]["properties"] == {
        "query": {"type": "string", "description": "words: all of them"},
        "limit": {"type": "integer", "minimum": 1, "description": "how many", "default": 5},
    }
    assert described["outputs_schema"]["items"] == {"type": "string"}
    assert found.context == "context"
    assert found.convert({"query": "a", "limit": 2.0}) == {"query": "a", "limit": 2}


def test_a_wrapped_function_keeps_its_parameters() -> None:
    def traced(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        return call

    @action(effects=["none"])
    @traced
    async def greet(name: str) -> str:
        return f"hello {name}"

    assert set(properties(greet)) == {"name"}
    assert asyncio.run(greet(name="you")) == "hello you"


def _variadic(*names: str) -> None: ...
def _nameless(a: int, /) -> None: ...
def _untyped(a) -> None: ...  # type: ignore[no-untyped-def]  # that is the point
def _meaningless(a: bytes) -> None: ...


@pytest.mark.parametrize("function", [_variadic, _nameless, _untyped, _meaningless])
def test_what_cannot_be_called_with_json(function: Callable[..., Any]) -> None:
    with pytest.raises(HintError):
        tool(action(effects=["none"])(function))


# ------------------------------------------------------------------------------------------------ plugins


@pytest.mark.parametrize(
    ("plugin", "function", "version", "aid"),
    [
        ("workspace", "apply_patch", 1, "AID.WORKSPACE.APPLY_PATCH.v1"),
        ("my-pack", "run", 12, "AID.MY_PACK.RUN.v12"),
        ("7zip", "_go", 1, "AID.P7ZIP.P_GO.v1"),
        ("größe", "é", 1, "AID.GR_SSE.P_.v1"),
    ],
)
def test_action_ids(plugin: str, function: str, version: int, aid: str) -> None:
    assert action_id(plugin, function, version) == aid


@pytest.fixture
def own_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading a plugin here puts its folder where this process looks for modules: only until the test is over."""
    monkeypatch.setattr(sys, "path", list(sys.path))


@pytest.mark.usefixtures("own_path")
def test_the_actions_of_a_pack_are_named_after_the_pack(tmp_path: Path) -> None:
    folder = tmp_path / "incident"
    folder.mkdir()
    (folder / "words.py").write_text("GREETING = 'hello'\n")
    source = (
        "from __future__ import annotations\n"
        "from typing import TypedDict\nfrom manglecp import action\nfrom words import GREETING\n"
        "class Who(TypedDict):\n    name: str\n"
        "@action(effects=[])\ndef greet(who: Who) -> str:\n    return GREETING\n"
        "again = greet\n"
    )
    (folder / "actions.py").write_text(source)
    plugin = load(str(folder / "actions.py"))
    assert list(plugin.tools) == ["AID.INCIDENT.GREET.v1"]
    assert not list(folder.glob("**/actions*.pyc"))


@pytest.mark.usefixtures("own_path")
def test_two_actions_cannot_share_an_id(tmp_path: Path) -> None:
    plugin = tmp_path / "twice.py"
    define = "@action(effects=[])\ndef {}() -> None: ...\n"
    plugin.write_text("from manglecp import action\n" + define.format("go_on") + define.format("Go_On"))
    with pytest.raises(PluginError, match=r"two actions are called AID\.TWICE\.GO_ON\.v1"):
        load(str(plugin))


def test_a_folder_is_no_plugin(tmp_path: Path) -> None:
    with pytest.raises(PluginError, match="plugin not found"):
        load(str(tmp_path))
