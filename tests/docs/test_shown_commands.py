"""Commands and files that pages show in passing: they do what the page says."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import tomllib
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from manglecp.cli import cli
from manglecp.conformance import Toolhost, check_toolhost, read_plan
from manglecp.conformance.toolhost import Conversation
from manglecp.server.auth.tokens import TokensFile
from manglecp.testing import Refused, load_pack
from manglecp.wire import all_schemas, is_valid, receive, schema
from tests.docs.snippets import ROOT, Block, blocks, commands
from tests.requirements.register import load
from tests.toolhost.conversation import CASTS, HOST, WORKSPACE

OPEN = 120.0
"""Seconds that a server may take to say that it serves, and to end, on a machine that is busy."""


def of(page: str, language: str | None = None) -> list[Block]:
    return [block for block in blocks(page) if language is None or block.language == language]


def manglecp(*args: str) -> tuple[int, str]:
    done = CliRunner().invoke(cli, args, catch_exceptions=False)
    return done.exit_code, done.stdout


# --- how-to/promote-a-policy.md --------------------------------------------------------------------------------------


def test_a_policy_is_promoted_with_the_commands_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = "docs/how-to/promote-a-policy.md"
    monkeypatch.chdir(tmp_path)
    package = Path("policies", "careful")
    Path("examples").symlink_to(ROOT / "examples")
    beginning, looking, *reports, promoting = of(page)
    bin_first = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    typed = ["bash", "-e", "-c", "\n".join(commands(beginning))]
    subprocess.run(typed, env={**os.environ, "PATH": bin_first}, check=True)
    digests = {
        "sha256:NEW": json.loads(manglecp("policy", "show", str(package), "--json")[1])["packageDigest"],
        "sha256:OLD": json.loads(Path("policies/careful.pin.json").read_text("utf-8"))["packageDigest"],
    }
    text = (ROOT / page).read_text("utf-8")
    names = re.findall(r"`(\w+)\.json`", text)
    assert names == ["eval", "redteam", "instruction", "approval"]
    for name, block in zip(names, reports, strict=True):
        text = block.body
        for word, digest in digests.items():
            text = text.replace(word, digest)
        Path(f"{name}.json").write_text(text, "utf-8")
    for block in (looking, promoting):
        shown = "".join(manglecp(*shlex.split(command)[1:])[1] for command in commands(block))
        expected = re.sub(r"^\$ (?:.*\\\n)*.*\n", "", block.body, flags=re.MULTILINE)
        shortened = re.sub(r"sha256:[0-9a-f]{64}", "sha256:…", shown)
        for line in expected.splitlines():
            assert line in shortened, shown


# --- how-to/serve-a-pack.md, how-to/who-may-ask.md -------------------------------------------------------------------


def served(command: str, says: str) -> None:
    """Start it, wait until it says so, and end it as a person would."""
    words = shlex.split(command.replace("127.0.0.1:8000", "127.0.0.1:0"))
    assert words.pop(0) == "manglecp"
    process = subprocess.Popen(
        [sys.executable, "-m", "manglecp", *words, *(["--http", "127.0.0.1:0"] if "--http" not in words else [])],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=ROOT,
    )
    assert process.stdout is not None
    seen = []
    watchdog = threading.Timer(OPEN, process.kill)  # one that says nothing would be waited for without end
    watchdog.start()
    try:
        for line in process.stdout:
            seen.append(line)
            if says in line:
                break
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=OPEN)
    finally:
        watchdog.cancel()
        if process.poll() is None:
            process.kill()
            process.communicate()
    assert any(says in line for line in seen), "".join(seen)
    assert process.returncode == 0


@pytest.mark.no_cover
def test_a_pack_is_served_with_the_commands_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MANGLECP_STATE_DIR", str(tmp_path))
    page = [block for block in of("docs/how-to/serve-a-pack.md", "") if block.reason is None]
    first, editing, streams = page
    served(commands(first)[0], first.body.splitlines()[1].rpartition(":")[0])
    served(commands(editing)[0], "serving at http://127.0.0.1")
    (command,) = commands(streams)
    words = shlex.split(command.replace(" pack ", " examples/incident "))
    done = subprocess.run(
        [sys.executable, "-m", *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        cwd=ROOT,
        check=True,
        timeout=OPEN,
    )
    assert json.loads(done.stdout.splitlines()[0])["type"] == "manifest"


def test_a_token_is_made_with_the_commands_of_the_page(tmp_path: Path) -> None:
    (making, *_) = of("docs/how-to/who-may-ask.md")
    bin_first = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    shown = subprocess.run(
        ["sh", "-e", "-c", "\n".join(commands(making))],
        cwd=tmp_path,
        env={**os.environ, "PATH": bin_first},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert [line.split()[1] for line in shown.splitlines()] == ["IDENTITY", "ann", "lee", "1"], "made, listed, revoked"
    import asyncio

    tokens = TokensFile(tmp_path / "tokens.toml")
    ann, lee = (
        asyncio.run(tokens.identify("bearer", (tmp_path / f"{name}.token").read_text().strip()))
        for name in ("ann", "lee")
    )
    assert ann is None
    assert lee is not None
    assert lee.permissions == {"approve"}


def test_the_policy_of_the_page_gives_names_a_meaning(tmp_path: Path) -> None:
    (rules,) = of("docs/how-to/who-may-ask.md", "mangle")
    tools = "".join(
        f'macro("{tool}", "One."). macro_step("{tool}", 1, "{action}"). mandatory("{tool}") :- intent("refund").\n'
        for tool, action in (("delete_all", "delete_rows"), ("tell", "send_mail"))
    )
    code = "".join(
        f'@action(effects=["network"], egress=["a.test:25"])\ndef {name}() -> int:\n    """One."""\n    return 1\n\n\n'
        for name in ("delete_rows", "send_mail")
    )
    files = {
        "pack.toml": '[pack]\npermissions = ["desk"]\n\n[[intents]]\nname = "refund"\ndescription = "Refunds."\n',
        "rules/tools.mg": tools,
        "rules/policy/who.mg": rules.body,
        "actions.py": f"from manglecp import action\n\n\n{code}",
    }
    for name, text in files.items():
        file = tmp_path / "pack" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    with load_pack(tmp_path / "pack") as pack:
        with pytest.raises(Refused, match="only the desk may ask for refunds"):
            pack.intent("refund")
        pack.as_caller("ann", "desk").intent("refund").offers_only("delete_all", "tell")
        pack.as_caller("nightly-job", "desk").intent("refund").offers_only("delete_all")


# --- examples/incident/README.md -------------------------------------------------------------------------------------


@pytest.mark.no_cover
def test_the_tools_of_the_incident_are_invoked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("MANGLECP_STATE_DIR", str(tmp_path / "state"))
    _, diagnosing, fixing = of("examples/incident/README.md", "sh")
    shop = tmp_path / "shop"
    shown = []
    for command in [*commands(diagnosing), *commands(fixing)]:
        words = shlex.split(command.replace("/tmp/shop", str(shop)))
        if words[0] == "manglecp":
            status, out = manglecp(*words[1:])
            assert status == 0, command
            shown.append(out)
        else:
            subprocess.run(["sh", "-e", "-c", shlex.join(words).replace("'&&'", "&&")], check=True)
    assert "missing_route" in shown[0]
    assert "/api/users" in (shop / "app" / "routes.toml").read_text("utf-8")
    assert "apply_fix" in shown[3]
    assert shown[4].endswith(": ok\n")


# --- reference pages -------------------------------------------------------------------------------------------------


def test_the_program_of_the_page_about_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("agent.jsonl").write_text(of("docs/how-to/check-a-transcript.md", "json")[0].body, "utf-8")
    (program,) = of("docs/reference/harness-logs.md", "python")
    known: dict[str, object] = {}
    exec(program.body, known)  # our own page
    assert known["verdicts"] == ["rejected", "accepted"]


def test_the_messages_of_the_page_are_read() -> None:
    request, _, clause = of("docs/reference/messages.md", "json")
    message = receive(request.body.encode(), max_bytes=1 << 20)
    assert message.id == "c-1"
    assert schema("intent_request")["title"] == type(message).__name__
    document = json.loads(clause.body)
    all_of_it = all_schemas()
    assert is_valid(document, {"$ref": "#/$defs/StructuredClause", "$defs": all_of_it["$defs"]})


def test_the_plan_of_the_page_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MANGLECP_TOKEN", "one")
    monkeypatch.setenv("MANGLECP_APPROVER_TOKEN", "two")
    (plan,) = of("docs/reference/conformance.md", "toml")
    file = tmp_path / "plan.toml"
    file.write_text(plan.body)
    read = read_plan(file)
    assert [one.tool for one in read.invocations] == ["full_stack_diagnosis"]


def test_casts_of_the_page_are_read_and_its_conversation_is_had(tmp_path: Path) -> None:
    roles, host, own = of("docs/how-to/check-a-toolhost.md", "toml")
    file = tmp_path / "my-cast.toml"
    file.write_text(roles.body + host.body)
    empty = Toolhost(argv=tuple(HOST), plugin=WORKSPACE)
    cast = empty.with_cast(file)
    ours = [empty.with_cast(one) for one in sorted(CASTS.glob("*.toml"))]
    assert set(cast.roles) == {"reader", "keeper"}
    for role, members in cast.roles.items():
        assert any(members.keys() == one.roles.get(role, {}).keys() for one in ours), role
    assert cast.lease_options in [one.lease_options for one in ours]
    (shown,) = tomllib.loads(own.body)["conversation"]
    conversation = msgspec.convert(shown, Conversation)
    assert check_toolhost(conversation, empty.with_cast(CASTS / "workspace.toml")) == []


def test_the_row_of_the_page_is_one_of_the_register() -> None:
    (row,) = of("docs/reference/requirements.md", "toml")
    (shown,) = tomllib.loads(row.body)["requirement"]
    real = load().by_id[shown["id"]]
    assert (real.level, real.statement) == (shown["level"], shown["statement"])


def test_the_command_of_the_page_about_fact_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import gzip

    monkeypatch.chdir(tmp_path)
    command, _, table, *_ = of("docs/reference/fact-files.md")
    Path("rules.mg").write_text(
        "Decl calls(Caller, CalleeName, Line) bound [/string, /string, /number].\n"
        "Decl owners(Caller, Team) bound [/string, /string].\n"
    )
    Path("calls.csv").write_text(table.body)
    Path("owners.jsonl.gz").write_bytes(gzip.compress(b'{"pred": "owners", "args": ["main", "core"]}\n'))
    status, shown = manglecp(*shlex.split(command.body)[1:])
    assert status == 0
    assert shown.splitlines()[-1] == 'owners("main","core")'


def test_the_marks_of_the_page_about_requirements() -> None:
    program = of("docs/reference/requirements.md", "python")[0]
    known: dict[str, object] = {}
    exec(program.body, known)  # our own page
    assert set(re.findall(r'"([A-Z]+-\d+)"', program.body)) <= set(load().by_id)
    assert {"test_wide_integers_are_wrapped", "test_names"} <= known.keys()
