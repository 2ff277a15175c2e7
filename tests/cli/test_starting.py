"""The modules that a process has loaded before its first output, for which its parent process waits.

These tests look at modules and never at clocks: ``benchmarks/starting.py`` measures.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

pytestmark = pytest.mark.no_cover  # coverage loads much of what is looked for here
INCIDENT: Final = Path(__file__).parents[2] / "examples" / "incident"
SERVE: Final = (sys.executable, "-m", "manglecp", "serve", str(INCIDENT), "--stdio", "--store", ":memory:")
LATE: Final = (
    "asyncio",
    "concurrent.futures",
    "jsonschema",
    "logging",
    "socket",
    "sqlite3",
    "subprocess",
    "tempfile",
    "uvloop",
)
"""Modules that a server needs and the first manifest does not."""
PACKAGES: Final = {f"manglecp.{name}" for name in ("base", "cli", "pack", "server", "wire")}
_PROBE: Final = """
import sys
before = set(sys.modules)  # modules of every Python process on this machine

import json, os
from manglecp.server.streams import Streams

def write(streams, data):
    os.write(2, json.dumps([data.decode(), sorted(sys.modules.keys() - before)]).encode())
    os._exit(0)

Streams.write = write
from manglecp.cli import main
main()
"""


class FirstOutput(NamedTuple):
    message: dict[str, Any]
    modules: frozenset[str]


@pytest.fixture(scope="module")
def first() -> FirstOutput:
    return first_output()


def first_output(*options: str) -> FirstOutput:
    """Return the first output of ``serve --stdio``, and the modules that were loaded before it."""
    command = [sys.executable, "-c", _PROBE, *SERVE[3:], *options]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=True)
    line, modules = json.loads(done.stderr)
    return FirstOutput(json.loads(line), frozenset(modules))


@pytest.mark.req("TRANS-25")
def test_the_first_output_is_a_manifest_that_names_the_intents(first: FirstOutput) -> None:
    assert first.message["type"] == "manifest"
    payload = first.message["payload"]
    assert payload["status"] == "booting"
    assert payload["server_name"] == "incident"
    assert "diagnose_error" in {intent["name"] for intent in payload["intents"]}


def test_it_is_written_before_the_engine_and_the_harness_are_loaded(first: FirstOutput) -> None:
    ours = {name for name in first.modules if name.startswith("manglecp.") and name.count(".") > 1}  # not a bare facade
    assert {".".join(name.split(".")[:2]) for name in ours} == PACKAGES


def test_it_is_written_before_modules_of_sockets_stores_and_processes_are_loaded(first: FirstOutput) -> None:
    assert first.modules.isdisjoint(LATE)


@pytest.mark.req("TRANS-25")
def test_it_is_written_as_early_if_a_credential_is_required(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.toml"
    tokens.write_text(f'[[token]]\nsha256 = "{"0" * 64}"\nidentity = "ann"\n')
    tokens.chmod(0o600)
    first = first_output("--tokens", str(tokens))
    assert first.message["payload"]["status"] == "booting"
    assert first.message["payload"]["auth"] == {"required": True, "schemes": ["bearer"]}
    late = {"asyncio", "sqlite3", "manglecp.intent.domain", "manglecp.mangle.program", "manglecp.store.store"}
    assert first.modules.isdisjoint(late)


@pytest.mark.parametrize(
    ("redirected", "message"),
    [
        ("<&-", "--stdio needs standard input and output, and one of them is closed."),
        (">&-", "--stdio needs standard input and output, and one of them is closed."),
        (">/dev/full", "cannot write the manifest: No space left on device"),
    ],
)
def test_closed_streams_are_refused(redirected: str, message: str) -> None:
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {redirected}', "sh", *SERVE],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr.splitlines()[-1]) == (2, "", f"Error: {message}")


def test_a_parent_process_that_has_ended_is_not_served() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "wb") as closed_pipe:  # noqa: PTH123  # pathlib cannot open a descriptor
        done = subprocess.run(
            SERVE, stdin=subprocess.DEVNULL, stdout=closed_pipe, stderr=subprocess.PIPE, timeout=120, check=False
        )
    assert (done.returncode, done.stderr) == (1, b"")
