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
from collections.abc import Callable
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


def run_suite(url: str, version: str, folder: Path, difference: Callable[[list[Check]], list[str]]) -> list[str]:
    """Run all scenarios of a protocol version, and return the difference from what is expected: empty if there is none.

    A difference has to be found twice: some checks wait for half a second, which is short on a busy machine.
    """
    found = difference(_run_once(url, version, folder / "first"))
    return found and difference(_run_once(url, version, folder / "second"))


def _run_once(url: str, version: str, folder: Path) -> list[Check]:
    assert _SUITE.exists(), "run `make interop`, which installs the suite"
    limit = str(round(patience(30) * 1_000))
    command = [str(_SUITE), "server", "--url", url, "--suite", "all", "--spec-version", version, "--timeout", limit]
    environment = {**os.environ, "PATH": node_path(), "NO_PROXY": "127.0.0.1"}
    subprocess.run(
        [*command, "-o", str(folder)], env=environment, capture_output=True, check=False, timeout=patience(900)
    )
    checks = []
    for results in sorted(folder.glob("server-*/checks.json")):
        scenario = _FOLDER.sub("", results.parent.name)
        document: list[dict[str, Any]] = json.loads(results.read_text())
        checks += [Check(f"{scenario}:{check['id']}", check["status"]) for check in document]
    assert len(checks) > 50, "the suite did not run"
    return checks


def unexpected(checks: list[Check], server: str, version: str) -> list[str]:
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
    failures = [f"{name} fails, and is no exception" for name in sorted(failed - excepted)]
    return failures + [f"{name} passes, and is an exception" for name in sorted(passed & excepted)]


@pytest.mark.parametrize("version", VERSIONS)
def test_the_guard_changes_no_verdict(version: str, tmp_path: Path) -> None:
    setup = Setup(tmp_path)
    setup.write_config({"fixture": {"command": sys.executable, "args": [str(_HERE / "server.py")]}})
    direct = setup.command("fixture")
    expected: Counter[Check] = Counter()

    def compare_exceptions(checks: list[Check]) -> list[str]:
        expected.clear()
        expected.update(checks)
        return unexpected(checks, "fixture", version)

    def compare_verdicts(checks: list[Check]) -> list[str]:
        found = Counter(checks)
        return [f"{name}: {status}" for name, status in sorted((found - expected) + (expected - found))]

    for name in ("direct", "shadow", "enforce"):
        if name != "direct":
            shown = setup.cli("guard", str(setup.config), "--yes", *(["--enforce"] if name == "enforce" else []))
            assert "not guarded" not in shown, shown
        command = setup.command("fixture")
        assert (command == direct) == (name == "direct")
        compare = compare_exceptions if name == "direct" else compare_verdicts
        with serving(adapted(command), tmp_path / f"{name}.log") as url:
            assert run_suite(url, version, tmp_path / name, compare) == [], name
    assert setup.report(), "the guard was not in the path"


@pytest.mark.parametrize("transport", ["http", "stdio"])
@pytest.mark.parametrize("version", VERSIONS)
def test_a_pack_in_direct_mode(version: str, transport: str, tmp_path: Path) -> None:
    command = mcp_serve(_HERE / "pack", tmp_path, "--direct", "conformance")
    command = adapted(command) if transport == "stdio" else [*command, "--http", "127.0.0.1:0"]
    with serving(command, tmp_path / "server.log") as url:
        assert run_suite(url, version, tmp_path, lambda checks: unexpected(checks, transport, version)) == []
