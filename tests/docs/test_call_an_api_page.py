"""The page call-an-api.md, followed with its local server and the command line."""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from manglecp.pack import Problems
from manglecp.server.config import parse_server_settings
from tests.deadlines import patience
from tests.docs.snippets import blocks
from tests.toolhost.sandbox.confined import require
from tests.toolhost.test_egress import wait_until

PAGE = "docs/how-to/call-an-api.md"
pytestmark = pytest.mark.no_cover
ACTIONS, SERVER, LIFESPAN = [block.body for block in blocks(PAGE) if block.language == "python"]
SETTINGS, OPERATOR = [block.body for block in blocks(PAGE) if block.language == "toml"]
(TYPED,) = [block.body for block in blocks(PAGE) if block.language == "sh"]


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    """The port of the local server of the page."""
    require("strict")
    with socket.create_server(("127.0.0.1", 0)) as found:
        number: int = found.getsockname()[1]
    (tmp_path / "server.py").write_text(SERVER.replace("8765", str(number)))
    with subprocess.Popen([sys.executable, "server.py"], cwd=tmp_path, stderr=subprocess.DEVNULL) as server:
        wait_until(lambda: listens(number))
        yield number
        server.kill()


def listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def run(folder: Path, line: str, port: int, **environ: str) -> subprocess.CompletedProcess[str]:
    words = shlex.split(line.replace("8765", str(port)))
    return subprocess.run(
        [sys.executable, "-m", *words],
        cwd=folder,
        env={**os.environ, "MANGLECP_STATE_DIR": str(folder / "state"), **environ},
        capture_output=True,
        text=True,
        timeout=patience(60),
        check=False,
    )


def test_the_guide(tmp_path: Path, port: int) -> None:
    (tmp_path / "tracker").mkdir()
    (tmp_path / "tracker" / "pack.toml").write_text(SETTINGS)
    (tmp_path / "tracker" / "actions.py").write_text(ACTIONS)
    export, check, call = TYPED.strip().splitlines()
    name, value = export.removeprefix("export ").split("=")
    checked = run(tmp_path, check, port, **{name: value})
    assert checked.returncode == 0, checked.stderr
    assert f"127.0.0.1:{port}" in checked.stdout
    assert name in checked.stdout
    called = run(tmp_path, call, port, **{name: value})
    assert called.returncode == 0, called.stderr
    assert "It crashes" in called.stdout
    # the table of errors
    refused = run(tmp_path, call, port, **{name: "another-test-token"})
    assert "the tracker responded with 401" in refused.stdout + refused.stderr
    no_secret = run(tmp_path, call, port)
    assert f"the secret {name} has no value" in no_secret.stdout + no_secret.stderr
    (tmp_path / "tracker" / "actions.py").write_text(ACTIONS.replace("['api']", "['other']"))
    (tmp_path / "tracker" / "pack.toml").write_text(SETTINGS + '[params.other]\ndefault = "example.com:80"\n')
    elsewhere = run(tmp_path, call, port, **{name: value})
    declare = r'to connect to example\.com:80, declare @action\(effects=\["network"\], egress=\["example\.com:80", '
    assert re.search(declare, elsewhere.stdout + elsewhere.stderr)
    (tmp_path / "tracker" / "actions.py").write_text(ACTIONS)
    closed = run(tmp_path, call.replace("8765", "9"), port, **{name: value})
    assert "no connection to 127.0.0.1:9: Connection refused" in closed.stdout + closed.stderr
    (tmp_path / "tracker" / "actions.py").write_text(ACTIONS.replace(', egress=["{api}"]', ""))
    assert "has the effect 'network', and no egress" in run(tmp_path, check, port).stderr


def test_a_connection_of_a_lifespan(tmp_path: Path, port: int) -> None:
    (tmp_path / "tracker").mkdir()
    (tmp_path / "tracker" / "pack.toml").write_text(SETTINGS)
    (tmp_path / "tracker" / "actions.py").write_text(LIFESPAN)
    call = TYPED.strip().splitlines()[2].replace("read_issue", "tracker_host").replace("--arg number=7 ", "")
    called = run(tmp_path, call, port, TRACKER_TOKEN="local-test-token")
    assert "127.0.0.1" in called.stdout, called.stderr
    refused = run(tmp_path, call, port, TRACKER_TOKEN="another-test-token")
    assert "the lifespan tracker cannot start: PermissionError: the tracker rejects the token" in refused.stderr


def test_the_settings_of_the_operator() -> None:
    problems = Problems()
    settings = parse_server_settings("server.toml", OPERATOR, problems)
    assert not problems.any_error
    assert settings.egress == ("api.tracker.example:443",)
    assert str(settings.secrets["TRACKER_TOKEN"]) == "the file /run/secrets/tracker"
