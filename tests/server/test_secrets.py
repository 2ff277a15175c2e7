"""Secrets of a pack behind a server: sources of ``server.toml``, and what a server does without a value."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from manglecp import Client, Server
from manglecp.client import ServerError
from manglecp.server import ServerSettings, load_server_settings

CANARY = "canary-0123456789"
ACTIONS = """
from typing import Annotated
from manglecp import Secret, action

@action(effects=["none"])
def length(token: Annotated[str, Secret("TOKEN")]) -> int:
    \"\"\"Return the length.\"\"\"
    return len(token)

@action(effects=["none"])
def other() -> str:
    \"\"\"Take no secret.\"\"\"
    return "fine"
"""


@pytest.fixture
def settings(tmp_path: Path) -> ServerSettings:
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "pack.toml").write_text("[secrets.TOKEN]\n")
    (tmp_path / "pack" / "actions.py").write_text(ACTIONS)
    config = tmp_path / "server.toml"
    config.write_text(f'[secrets.TOKEN]\nfile = "{tmp_path}/token"\n')
    return load_server_settings(config)


async def test_a_server_without_a_value_serves_all_other_tools(
    tmp_path: Path, settings: ServerSettings, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        async with Server(tmp_path / "pack", settings=settings) as server, Client(server) as client:
            assert f"the secret TOKEN has no value: the file {tmp_path}/token is missing" in caplog.text
            found = await client.evaluate("any")
            assert (found["length"].input_schema or {})["properties"] == {}
            assert (await client.invoke(found["other"])).result == {"value": "fine"}
            with pytest.raises(ServerError, match="The server lacks a secret of the action length; see its log"):
                await client.invoke(found["length"])
            assert caplog.text.count("the secret TOKEN has no value") == 2, "the second says why the call failed"
            (tmp_path / "token").write_text(f"{CANARY}\n")  # without a restart
            assert (await client.invoke(found["length"])).result == {"value": len(CANARY)}
    assert CANARY not in caplog.text
    assert "token" not in repr(settings)
