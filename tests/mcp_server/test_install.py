"""``manglecp mcp install``: the configuration files of hosts."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from manglecp.cli import cli
from manglecp.mcp_server import HOSTS, plan_installation
from tests.mcp_server.desk import write_pack


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _install(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(cli, ["mcp", "install", *words])
    return result.exit_code, result.output


@pytest.mark.parametrize("host", HOSTS)
def test_an_entry_is_shown_written_and_kept(home: Path, host: str) -> None:
    pack, config = str(write_pack(home)), HOSTS[host]
    path = config.user()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"theme": "ü", config.key: {"other": {"command": "x"}}}))
    path.chmod(0o640)
    code, output = _install(host, pack)
    assert code == 2
    assert '+    "desk": {' in output
    assert "--yes" in output
    assert "desk" not in json.loads(path.read_text())[config.key]
    assert _install(host, pack, "--yes")[0] == 0
    document = json.loads(path.read_text())
    assert document["theme"] == "ü"
    assert document[config.key]["other"] == {"command": "x"}
    assert document[config.key]["desk"]["args"] == ["-P", "-m", "manglecp", "mcp", "serve", pack]
    assert path.stat().st_mode & 0o777 == 0o640
    assert "has this entry already" in _install(host, pack, "--yes")[1]


def test_no_module_of_the_folder_in_which_the_host_runs_is_imported(home: Path) -> None:
    assert _install("cursor", str(write_pack(home)), "--yes")[0] == 0
    entry = json.loads((home / ".cursor" / "mcp.json").read_text())["mcpServers"]["desk"]
    (home / "click.py").write_text("raise SystemExit('imported')")
    command = [entry["command"], *entry["args"], "--help"]
    assert subprocess.run(command, cwd=home, capture_output=True, check=False).returncode == 0


def test_a_project_a_name_and_an_intent(home: Path) -> None:
    pack = str(write_pack(home))
    assert _install("vscode", pack, "--project", "--name", "shop", "--direct", "help", "--yes")[0] == 0
    entry = json.loads((home / ".vscode" / "mcp.json").read_text())["servers"]["shop"]
    assert entry["args"][-2:] == ["--direct", "help"]
    assert "leave --project out" in _install("claude-desktop", pack, "--project", "--yes")[1]


def test_a_file_that_cannot_be_changed_stays(home: Path) -> None:
    pack = str(write_pack(home))
    for content, expected in (
        ("// a comment", "not JSON"),
        ("[]", "has no object"),
        ('{"mcpServers": 1}', "no obj"),
    ):
        (home / ".claude.json").write_text(content)
        code, output = _install("claude-code", pack, "--yes")
        assert code == 1
        assert expected in output
        assert json.dumps(pack) in output  # the entry, to be added by hand
        assert (home / ".claude.json").read_text() == content


def test_a_file_that_another_program_changes_meanwhile_stays(home: Path) -> None:
    plan = plan_installation("cursor", "desk", ["python"])
    plan.path.parent.mkdir()
    plan.path.write_text("{}")
    with pytest.raises(ValueError, match="changed meanwhile"):
        plan.write()
    assert (home / ".cursor" / "mcp.json").read_text() == "{}"


@pytest.mark.process
def test_a_check_names_the_tools_that_direct_mode_cannot_list(home: Path) -> None:
    pack = str(write_pack(home))
    checked = CliRunner().invoke(cli, ["check", "--direct", "help", pack])
    assert checked.exit_code == 0
    assert "pay_back is not listed in direct mode: it needs facts of the client, such as complaint(_)" in checked.output
    assert "look_up is not" not in checked.output
    assert "close_desk" not in checked.output  # it serves another intent
    assert "not listed" not in CliRunner().invoke(cli, ["check", "--direct", "evening", pack]).output
    assert "Did you mean 'help'?" in CliRunner().invoke(cli, ["check", "--direct", "hlep", pack]).output
    assert CliRunner().invoke(cli, ["check", "--direct", "help", str(home / "desk/rules/desk.mg")]).exit_code == 2


def test_an_entry_of_another_server_stays_and_own_options_are_kept(home: Path) -> None:
    pack, path = str(write_pack(home)), home / ".cursor" / "mcp.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"mcpServers": {"desk": {"command": "other", "args": ["-m"]}}}))
    code, output = _install("cursor", pack, "--yes")
    assert code == 1
    assert "has another server desk; remove it, or pass --name" in output
    assert json.loads(path.read_text())["mcpServers"]["desk"]["command"] == "other"
    assert _install("cursor", pack, "--name", "mine", "--yes")[0] == 0
    document = json.loads(path.read_text())
    document["mcpServers"]["mine"]["args"] += ["--workspace", "/w"]
    document["mcpServers"]["mine"] |= {"command": "python-of-old", "env": {"KEY": "1"}}
    path.write_text(json.dumps(document))
    assert _install("cursor", pack, "--name", "mine", "--yes")[0] == 0
    entry = json.loads(path.read_text())["mcpServers"]["mine"]
    assert entry["args"][-2:] == ["--workspace", "/w"]
    assert entry["env"] == {"KEY": "1"}
    assert entry["command"] != "python-of-old"


def test_a_file_with_a_duplicate_key_and_one_that_cannot_be_written_stay(home: Path) -> None:
    pack, path = str(write_pack(home)), home / ".cursor" / "mcp.json"
    path.parent.mkdir()
    content = '{"mcpServers": {"a": {}}, "mcpServers": {"b": {}}}'
    path.write_text(content)
    code, output = _install("cursor", pack, "--yes")
    assert (code, "twice" in output, path.read_text()) == (1, True, content)
    path.unlink()
    path.symlink_to(path)
    code, output = _install("cursor", pack, "--yes")
    assert code == 1
    assert "Error:" in output
