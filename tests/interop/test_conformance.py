"""The official conformance suite, for both eras of MCP. `make interop`.

It runs before a fixture server, direct and behind the guard, and before a fixture pack in direct mode. A check that
fails has to be in ``conformance/exceptions.toml`` with a reason, and a check that passes must not be.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from tests.deadlines import patience
from tests.guard.hosts import Setup
from tests.interop.install import NODE_BIN, node_path
from tests.interop.servers import adapted, mcp_serve, serving

pytestmark = pytest.mark.soak

VERSIONS: Final = ("2026-07-28", "2025-11-25")
_HERE: Final = Path(__file__).parent / "conformance"
_SUITE: Final = NODE_BIN / "conformance"
_FOLDER: Final = re.compile(r"^server-|-\d{4}-\d{2}-\d{2}T[\dZ-]+$")
"""What the suite adds to the name of a scenario: a prefix and a time."""
_FAILED: Final = ("FAILURE", "WARNING")


class Check(NamedTuple):
    name: str
    """The scenario and the id of the check."""
    status: str


def run_suite(url: str, version: str, folder: Path) -> list[Check]:
    """Return the checks of all scenarios of a protocol version, in order."""
    assert _SUITE.exists(), "run `make interop`, which installs the suite"
    command = [str(_SUITE), "server", "--url", url, "--suite", "all", "--spec-version", version, "-o", str(folder)]
    environment = {**os.environ, "PATH": node_path(), "NO_PROXY": "127.0.0.1"}
    subprocess.run(command, env=environment, capture_output=True, check=False, timeout=patience(900))
    checks = []
    for results in sorted(folder.glob("server-*/checks.json")):
        scenario = _FOLDER.sub("", results.parent.name)
        document: list[dict[str, Any]] = json.loads(results.read_text())
        checks += [Check(f"{scenario}:{check['id']}", check["status"]) for check in document]
    assert len(checks) > 50, "the suite did not run"
    return checks


def unexpected(checks: list[Check], server: str, version: str) -> dict[str, str]:
    """Return the checks that fail without an exception, and those that pass with one."""
    document = tomllib.loads((_HERE / "exceptions.toml").read_text("utf-8"))
    excepted = {
        name
        for exception in document["exception"]
        if server in exception.get("servers", [server]) and version in exception.get("versions", [version])
        for name in exception["checks"]
    }
    failed = {check.name for check in checks if check.status in _FAILED}
    passed = {check.name for check in checks if check.status == "SUCCESS"} - failed
    new_failures = dict.fromkeys(sorted(failed - excepted), "fails, and is no exception")
    return new_failures | dict.fromkeys(sorted(passed & excepted), "passes, and is an exception")


@pytest.mark.parametrize("version", VERSIONS)
def test_the_guard_changes_no_verdict(version: str, tmp_path: Path) -> None:
    setup = Setup(tmp_path)
    setup.write_config({"fixture": {"command": sys.executable, "args": [str(_HERE / "server.py")]}})
    direct = setup.command("fixture")
    verdicts = {}
    for name in ("direct", "shadow", "enforce"):
        if name != "direct":
            shown = setup.cli("guard", str(setup.config), "--yes", *(["--enforce"] if name == "enforce" else []))
            assert "not guarded" not in shown, shown
        command = setup.command("fixture")
        assert (command == direct) == (name == "direct")
        with serving(adapted(command), tmp_path / f"{name}.log") as url:
            verdicts[name] = run_suite(url, version, tmp_path / name)
    assert unexpected(verdicts["direct"], "fixture", version) == {}
    for name in ("shadow", "enforce"):
        assert Counter(verdicts[name]) == Counter(verdicts["direct"]), name
    assert setup.report(), "the guard was not in the path"


@pytest.mark.parametrize("transport", ["http", "stdio"])
@pytest.mark.parametrize("version", VERSIONS)
def test_a_pack_in_direct_mode(version: str, transport: str, tmp_path: Path) -> None:
    command = mcp_serve(_HERE / "pack", tmp_path, "--direct", "conformance")
    command = adapted(command) if transport == "stdio" else [*command, "--http", "127.0.0.1:0"]
    with serving(command, tmp_path / "server.log") as url:
        checks = run_suite(url, version, tmp_path / "results")
    assert unexpected(checks, transport, version) == {}
