"""The conversations with our host, or with the one that the environment names (see the page on checking a toolhost)."""

import os
import shlex
import sys
from pathlib import Path

import pytest

from tests.toolhost.conversation import HOST, WORKSPACE
from tests.toolhost.conversations.playing import Host, play
from tests.toolhost.conversations.script import SCRIPTS, Cast, Conversation, conversations, filled, read_cast

pytestmark = pytest.mark.no_cover

CASTS = SCRIPTS.parent / "casts"


def _host() -> Host:
    foreign = shlex.split(os.environ.get("MANGLECP_TOOLHOST", ""))
    if not foreign:
        return Host(tuple(HOST), WORKSPACE, read_cast(CASTS / "workspace.toml"))
    cast = os.environ.get("MANGLECP_TOOLHOST_CAST")
    plugin = os.environ["MANGLECP_TOOLHOST_PLUGIN"]
    return Host(tuple(foreign), plugin, read_cast(Path(cast)) if cast else Cast())


TESTED = _host()
OURS = tuple(HOST) == TESTED.argv or os.environ.get("MANGLECP_TOOLHOST_OURS") == "1"


def _playable() -> list[object]:
    return [
        pytest.param(each, id=f"{each.script}: {each.name}", marks=[pytest.mark.req(*each.rows)] if each.rows else [])
        for each in conversations()
        if TESTED.cast.plays(each) and (OURS or not each.ours)
    ]


@pytest.mark.parametrize("conversation", _playable())
def test_the_host_keeps_to_the_script(conversation: Conversation) -> None:
    assert play(conversation, TESTED) == []


def test_our_plugin_plays_every_role() -> None:
    ours = read_cast(CASTS / "workspace.toml")
    assert [each.name for each in conversations() if not ours.plays(each)] == []


def test_every_name_is_used_once() -> None:
    names = [f"{each.script}: {each.name}" for each in conversations()]
    assert len(names) == len(set(names)) > 70


def test_the_command_line_plays_the_same() -> None:
    host = Host((sys.executable, "-m", "manglecp", "toolhost"), WORKSPACE, read_cast(CASTS / "workspace.toml"))
    wanted = {"a call that succeeds", "no arguments", "an unknown mode, once the plugin is loaded"}
    for conversation in conversations():
        if conversation.name in wanted:
            assert play(conversation, host) == []


def test_names_are_filled_in() -> None:
    names = {"a.b": "x", "c": [1]}
    assert filled({"<a.b>": ["<a.b>-<a.b>", "<c>", 3]}, names) == {"x": ["x-x", [1], 3]}
    with pytest.raises(KeyError):
        filled("<nobody>", names)
