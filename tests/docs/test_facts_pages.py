"""The pages about facts of sources, followed with a real server and the command line."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from manglecp.pack import Problems
from manglecp.pack.settings import read_settings
from tests.docs.snippets import blocks
from tests.server.desk import PATIENCE
from tests.server.test_serve import process

ACTION = """from manglecp import action

@action(effects=[])
def look() -> str:
    \"\"\"Look.\"\"\"
    return "x"
"""
PAGE = "docs/how-to/feed-facts.md"
pytestmark = pytest.mark.no_cover


def of(page: str, language: str = "") -> list[str]:
    return [block.body for block in blocks(page) if block.language == language and not block.generated]


def test_the_settings_are_read() -> None:
    problems = Problems()
    (declared,) = of("docs/reference/facts.md", "toml")
    freezes, alerts = read_settings(declared, "desk", problems).fact_sources
    assert not problems.any_error
    assert (freezes.push, freezes.predicates, freezes.stale_after_ns) == (True, ("frozen",), 300 * 10**9)
    assert (alerts.every, alerts.on_stale) == (30.0, "keep")


def test_the_guide(tmp_path: Path) -> None:
    rules, token, push, listing = of(PAGE)
    pushed, polled = of(PAGE, "toml")
    client, generator = of(PAGE, "python")
    decl, policy = rules.split("\n", 1)
    files = {
        "rules/a.mg": f'{decl}\nDecl alert(Service, Severity) bound [/string, /string].\nmacro("deploy", "Deploys.").\n'
        'macro_step("deploy", 1, "look"). mandatory("deploy") :- intent("go").\n',
        "rules/policy/p.mg": f'{policy}prohibited("deploy", "alert") :- alert(_, "critical").\n',
        "pack.toml": f'{pushed}{polled}[params.root]\nkind = "folder"\n[[intents]]\nname = "go"\ndescription = "Go"\n',
        "facts.py": generator,
        "actions.py": ACTION,
        "../watched/one.json": json.dumps({"service": "shop", "severity": "warning"}),
    }
    for name, text in files.items():
        file = tmp_path / "pack" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    environ = {**os.environ, "MANGLECP_STATE_DIR": str(tmp_path / "state"), "MANGLECP_TOKENS": "tokens.toml"}

    def typed(line: str, **more: Any) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", *shlex.split(line)]
        return subprocess.run(
            command, capture_output=True, text=True, cwd=tmp_path, env=environ, timeout=PATIENCE, check=False, **more
        )

    made = typed(token)
    assert made.returncode == 0, made.stderr
    environ["MANGLECP_TOKEN"] = secret = re.findall(r"mcp_\S+|\S{32,}", made.stdout)[0]
    assert sha256(secret.encode()).hexdigest() in (tmp_path / "tokens.toml").read_text()
    store = ("--store", str(tmp_path / "store.db"))
    options = ("--degrade", "--set", f"root={tmp_path / 'watched'}", "--tokens", str(tmp_path / "tokens.toml"))
    with process(tmp_path, "serve", str(tmp_path / "pack"), "--http", "127.0.0.1:0", *store, *options) as server:
        url = server.url()
        # The command of the page, with facts for ``freezes-as-json``.
        command = push.split(" | ")[1].strip().replace("https://desk.example", url)
        done = typed(command, input='[{"pred": "frozen", "args": ["shop", 3]}]')
        assert done.stdout == "freezes: version 1, 1 facts, 1 added, 0 removed\n", done.stderr
        assert typed(command, input='frozen("shop", 3).\n').stdout == "freezes: version 1, 1 facts, unchanged\n"
        refused = typed(command, input='{"pred": "frozen", "args": ["shop"]}')
        assert refused.returncode == 1
        assert "expects 2 arguments" in refused.stderr
        names: dict[str, Any] = {}
        text = client.replace("https://desk.example", url).replace('token="…"', f"token={secret!r}")
        exec(compile(text, PAGE, "exec"), names)
        asyncio.run(names["push"]({"shop": 1}))
        explained = typed(
            f"manglecp intent {tmp_path / 'pack'} go --set root={tmp_path / 'watched'} --degrade"
        )  # without a store, as an operator who tries rules
        assert "deploy" in explained.stdout
    local = f"manglecp facts push freezes - --pack pack --set root={tmp_path / 'watched'} --degrade --store store.db"
    assert typed(local, input="[]").stdout == "freezes: version 3, 0 facts, 0 added, 1 removed\n"
    shown = typed(listing.replace("postgresql://…", "store.db"))
    rows = {line.split()[1]: line.split() for line in shown.stdout.splitlines()}
    assert rows["freezes"][2:4] == ["3", "0"]
    assert rows["alerts"][2:4] == ["1", "1"]
    assert re.search(r"curl -X PUT \S+/facts/freezes", "".join(of("docs/reference/facts.md")))
