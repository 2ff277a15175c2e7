"""The programs in examples/agents, on the newest SDKs, with a scripted model. `make interop`."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.docs.snippets import ROOT, blocks
from tests.interop.install import FOLDER
from tests.interop.providers import Call, Provider, provider

pytestmark = pytest.mark.soak

AGENTS: Final = ROOT / "examples" / "agents"
PROGRAMS: Final = ("anthropic_agent.py", "openai_agent.py", "pydantic_ai_agent.py")
FRAMEWORKS: Final = {"langgraph": "docs/how-to/langgraph.md", "openai-agents": "docs/how-to/openai-agents.md"}
SCHEMA: Final = {
    "type": "object",
    "properties": {"order": {"type": "string"}, "amount": {"type": "integer", "minimum": 1}},
    "required": ["amount", "order"],
    "additionalProperties": False,
}
APPROVABLE: Final = {"order": "A-2", "amount": 250}
TOO_MUCH: Final = {"order": "A-1", "amount": 50}
ALLOWED: Final = {"order": "A-1", "amount": 15}
CALLS: Final[list[list[Call]]] = [
    [("refund", TOO_MUCH)],
    [("refund", ALLOWED), ("refund", APPROVABLE)],
]


def run(environment: str, program: Path, folder: Path, model: Provider) -> str:
    """Return the output of a program in the folder, with the packages of an environment."""
    (folder / "book").mkdir(exist_ok=True)
    python = FOLDER / environment / "bin" / "python"
    assert python.exists(), "run `make interop`, which installs the packages"
    path = f"{python.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        [python, program, "Refund what you can."],
        cwd=folder,
        env={**os.environ, **model.env, "PATH": path, "MANGLECP_STATE_DIR": str(folder / "state")},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def approve(request: str, store: Path) -> None:
    command = [sys.executable, "-m", "manglecp", "approvals", "approve", request, "--yes", "--store", str(store)]
    subprocess.run(command, check=True, capture_output=True, timeout=300)


def refunds(folder: Path) -> list[str]:
    book = folder / "book" / "refunds.txt"
    return book.read_text("utf-8").splitlines() if book.exists() else []


@pytest.mark.parametrize("program", PROGRAMS)
def test_an_agent_gets_proven_tools_results_and_reasons(program: str, tmp_path: Path) -> None:
    with provider(*CALLS, "I asked for an approval.") as model:
        assert run("agents", AGENTS / program, tmp_path, model) == "I asked for an approval.\n"
    assert model.schemas == [{"refund": SCHEMA}] * 3
    refused, done, pending = model.results
    assert "at most 20 can be refunded for A-1" in refused
    assert "amount of at most 20" in refused
    assert json.loads(done) == {"value": "refunded 15 for A-1"}
    assert "the approver needs the permission lead" in pending
    (request,) = re.findall(r"manglecp approvals approve (ap-\w+) --store desk\.db", pending)
    assert refunds(tmp_path) == ["A-1 15"]

    approve(request, tmp_path / "desk.db")
    with provider([("refund", APPROVABLE)], [("refund", APPROVABLE)], "Done.") as model:
        assert run("agents", AGENTS / program, tmp_path, model) == "Done.\n"
    first, second = model.results
    assert json.loads(first) == {"value": "refunded 250 for A-2"}
    assert "the approver needs the permission lead" in second, "an approval holds once"
    assert refunds(tmp_path) == ["A-1 15", "A-2 250"]


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_call_that_does_not_fit_the_schema_is_returned_to_the_model(program: str, tmp_path: Path) -> None:
    with provider([("refund", {"order": "A-1", "amount": 0})], "No.") as model:
        assert run("agents", AGENTS / program, tmp_path, model) == "No.\n"
    (refused,) = model.results
    assert "/amount" in refused
    assert refunds(tmp_path) == []


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_a_framework_reaches_the_pack_through_mcp(name: str, tmp_path: Path) -> None:
    shutil.copytree(AGENTS / "desk", tmp_path / "desk")
    (program,) = (block.body for block in blocks(FRAMEWORKS[name]) if block.language == "python")
    (tmp_path / "agent.py").write_text(program, "utf-8")
    with provider(*CALLS, "I asked for an approval.") as model:
        assert run(name, tmp_path / "agent.py", tmp_path, model) == "I asked for an approval.\n"
    for tools in model.schemas:
        (schema,) = tools.values()
        assert set(tools) == {"refund"}
        assert set(schema["properties"]) == {"order", "amount"}
    refused, done, pending = model.results
    assert "at most 20 can be refunded for A-1" in refused
    assert "refunded 15 for A-1" in done
    (request,) = re.findall(r"manglecp approvals approve (ap-\w+)", pending)
    assert refunds(tmp_path) == ["A-1 15"]

    approve(request, tmp_path / "desk.db")
    with provider([("refund", APPROVABLE)], "Done.") as model:
        assert run(name, tmp_path / "agent.py", tmp_path, model) == "Done.\n"
    assert refunds(tmp_path) == ["A-1 15", "A-2 250"]
