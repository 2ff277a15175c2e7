"""The page on actions: what is shown can be listed, and every effect has its tier."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from manglecp.pack import Problems
from manglecp.server.config import parse_server_settings
from manglecp.toolhost.actions import lease_tier
from tests.docs.test_pages import ROOT, fences
from tests.toolhost.conversation import host

PAGE = "reference/actions.md"


def test_the_example_is_a_plugin(tmp_path: Path) -> None:
    (code,) = (body for body in fences(PAGE) if "def apply_patch" in body)
    plugin = tmp_path / "workspace.py"
    plugin.write_text(code)
    (tool,) = json.loads(host("--list", str(plugin)).stdout)["tools"]
    assert tool["aid"] == "AID.WORKSPACE.APPLY_PATCH.v1"
    assert tool["inputs_schema"]["properties"]["path"]["description"] == "relative to the workspace"


def test_the_error_of_the_second_example_is_in_the_answer(tmp_path: Path) -> None:
    (code,) = (body for body in fences(PAGE) if "def find_order" in body)
    plugin = tmp_path / "desk.py"
    plugin.write_text(code)
    done = host("--run", str(plugin), "AID.DESK.FIND_ORDER.v1", stdin=b'{"inputs":{"order":"A-9"}}')
    told = {"message": "There is no order A-9; ask the customer", "code": "x-no_order", "data_json": '{"known":1}'}
    assert json.loads(done.stdout)["action_error"] == told


def test_calls_of_the_third_example_share_a_client(tmp_path: Path) -> None:
    (code,) = (body for body in fences(PAGE) if "def find_price" in body)
    plugin = tmp_path / "desk.py"
    plugin.write_text(code)
    aid = "AID.DESK.FIND_PRICE.v1"
    requests = [{"aid": aid, "call_id": item, "inputs": {"item": item}} for item in "ab"]
    done = host("--run", str(plugin), aid, stdin=json.dumps(requests[0]).encode())
    assert json.loads(done.stdout)["output_json"] == "100"
    lines = b"".join(json.dumps(request).encode() + b"\n" for request in requests)
    with subprocess.Popen(
        [sys.executable, "-m", "manglecp.toolhost.host", "--serve", str(plugin), "--concurrent"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(lines)
        process.stdin.flush()
        answers = [json.loads(process.stdout.readline()) for _ in requests]
        process.stdin.close()
    assert {answer["output_json"] for answer in answers} == {"100", "101"}


def test_the_egress_of_the_example_is_listed(tmp_path: Path) -> None:
    (code,) = (body for body in fences(PAGE) if "def stars" in body)
    plugin = tmp_path / "hub.py"
    plugin.write_text(code)
    (tool,) = json.loads(host("--list", str(plugin)).stdout)["tools"]
    assert tool["capabilities"]["egress"] == ["api.github.com:443"]


def test_the_egress_of_the_server_can_be_read() -> None:
    (text,) = (body for body in fences(PAGE) if "[egress]" in body)
    problems = Problems()
    settings = parse_server_settings("server.toml", text, problems)
    assert not problems.any_error
    assert (settings.egress, settings.private) == (("api.github.com:443", "db.internal:5432"), ("db.internal:5432",))


def test_the_tiers_are_the_real_ones() -> None:
    rows = re.findall(r"^\| (`.*) \| (\d) \| (\S+) \|$", (ROOT / "docs" / PAGE).read_text("utf-8"), re.MULTILINE)
    assert len(rows) == 5
    for effects, tier, reading in rows:
        for effect in re.findall(r"`(\w+)`", effects):
            assert lease_tier([effect]) == int(tier)
            if reading == "refused":
                with pytest.raises(ValueError, match="mutates"):
                    lease_tier([effect], mutates=False)
            else:
                assert lease_tier([effect], mutates=False) == int(reading)
