"""The conversations with our host, or with the one that the environment names (see the page on checking a toolhost)."""

import os
import shlex
import sys
from pathlib import Path

import pytest

from manglecp.conformance import Toolhost, check_toolhost, toolhost_conversations
from manglecp.conformance.patterns import fill
from tests.deadlines import patience
from tests.toolhost.conversation import CASTS, HOST, WORKSPACE

pytestmark = pytest.mark.no_cover

OUR_CAST = CASTS / "workspace.toml"


def _host() -> Toolhost:
    foreign = shlex.split(os.environ.get("MANGLECP_TOOLHOST", ""))
    if not foreign:
        return Toolhost(argv=tuple(HOST), plugin=WORKSPACE, patience=patience(30.0)).with_cast(OUR_CAST)
    cast = os.environ.get("MANGLECP_TOOLHOST_CAST")
    host = Toolhost(argv=tuple(foreign), plugin=os.environ["MANGLECP_TOOLHOST_PLUGIN"], patience=patience(30.0))
    return host.with_cast(Path(cast)) if cast else host


TESTED = _host()
OURS = tuple(HOST) == TESTED.argv or os.environ.get("MANGLECP_TOOLHOST_OURS") == "1"
ALL = toolhost_conversations()


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.req(*each.rows)] if each.rows else [])
        for name, each in ALL.items()
        if not TESTED.missing_roles(each) and (OURS or not each.ours)
    ],
)
def test_the_host_keeps_to_the_script(name: str) -> None:
    assert check_toolhost(ALL[name], TESTED) == []


def test_our_plugin_has_every_role() -> None:
    ours = Toolhost(argv=(), plugin="").with_cast(OUR_CAST)
    assert [name for name, each in ALL.items() if ours.missing_roles(each)] == []
    assert len(ALL) > 70


def test_the_command_line_is_the_same_host() -> None:
    host = Toolhost(argv=(sys.executable, "-m", "manglecp", "toolhost"), plugin=WORKSPACE).with_cast(OUR_CAST)
    names = ("2-run: a call that succeeds", "1-command-line: no arguments")
    for name in (*names, "1-command-line: an unknown mode, once the plugin is loaded"):
        assert check_toolhost(ALL[name], host) == []


def test_names_are_replaced() -> None:
    names = {"a.b": "x", "c": [1]}
    assert fill({"<a.b>": ["<a.b>-<a.b>", "<c>", 3]}, names) == {"x": ["x-x", [1], 3]}
    with pytest.raises(AssertionError, match="unknown name other"):
        fill("<other>", names)
