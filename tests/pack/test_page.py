"""docs/reference/packs.md says what is true."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from manglecp.base.redaction import MIN_LENGTH
from manglecp.intent import Domain
from manglecp.intent.names import PERMISSIONS
from manglecp.mangle import Result
from manglecp.pack import PackError, SecretUse, folder, governance, host_listing, loader, secrets, skills
from manglecp.pack.settings import MAX_SETTINGS_BYTES, AuthSettings, Disclosure, Invocation, PackLimits, Settings
from manglecp.toolhost.dispatch import pool as host_pool
from manglecp.toolhost.external_hosts import BATCH
from manglecp.wire import CATEGORIES
from manglecp.wire.messages import SIDE_EFFECTS
from tests.intent.packs import pack
from tests.pack.folders import RULES, problems, read, write

PAGE = Path(__file__).resolve().parents[2].joinpath("docs/reference/packs.md").read_text(encoding="utf-8")
FENCES = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


def fence(start: str) -> str:
    found: list[str] = [body for _, body in FENCES if body.startswith(start)]
    assert len(found) == 1
    return found[0]


@pytest.fixture
def incident(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    rules = 'hit(I) :- similar_failure("disk full", 1, I).\n'
    files = {
        "pack.toml": '[params.root]\ndefault = ""\n',
        "rules/a.mg": RULES.replace('"hello")', '"measure")') + rules,
        "externals.py": fence("from collections.abc"),
        "skills/har.md": fence("---"),
        "actions.py": "from manglecp import action\n\n\n@action(effects=[])\ndef measure() -> int:\n    return 1\n",
    }
    return write(tmp_path / "incident", files)


def test_the_programs_run(incident: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {}
    exec(fence("from manglecp.pack import"), names)
    assert re.fullmatch(r"incident [0-9a-f]{64} \['measure'\]\n", capsys.readouterr().out)
    exec(fence("from manglecp.intent.domain"), names)
    result = names["result"]
    assert isinstance(result, Result)
    assert result.query("hit(I)") == ['hit("INC-7")']
    exec(fence("from pathlib"), names)
    assert capsys.readouterr().out == ""
    assert incident.is_dir()


def test_the_example_of_a_secret_is_one(tmp_path: Path) -> None:
    files = {
        "pack.toml": fence("[secrets."),
        "actions.py": fence("from typing import Annotated\n\nfrom manglecp import Secret"),
    }
    found = read(tmp_path, files)
    assert found.warnings == ()
    assert found.actions["token_length"].secrets == (SecretUse("GITHUB_TOKEN", required=True),)
    for text in (
        f"has {secrets._COMMAND_SECONDS:g} seconds",
        f"older than {secrets._VALID_SECONDS:g} seconds; after an error, {secrets._RETRY_SECONDS:g} seconds",
        f"at least {MIN_LENGTH} characters and at most {secrets._MAX_BYTES:,} bytes",
    ):
        assert text in PAGE
    assert (secrets._RECENT, host_pool._MAX_SECRET_VALUES) == (8, 64)


def test_the_skill_is_one(incident: Path) -> None:
    skill = read(incident, {}).skills["har"]
    assert skill.description == "What its entries mean: which to look at first"
    assert [resource["type"] for resource in skill.resources] == ["text/html"]


def test_names_are_checked_as_it_says() -> None:
    tool = 'macro("drain_node", "x"). macro_step("drain_node", 1, "look"). relevant("drain_node", 9) :- intent("a").\n'
    dangerous, opened = fence("dangerous("), fence("Decl ticket_tool")
    assert Domain.load(pack(tool, policy=dangerous)).warnings == ()
    with pytest.raises(PackError, match="'drian_node'"):
        Domain.load(pack(tool, policy=dangerous.replace("drain_node", "drian_node")))
    unknown = 'prohibited("x1", "x") :- ticket_tool("x1"). prohibited(T, "x") :- ticket_tool(T).'
    with pytest.raises(PackError, match="'x1'"):
        Domain.load(pack(tool, policy=unknown, schema=opened))
    known = unknown.replace('prohibited("x1"', 'prohibited("drain_node"')
    assert Domain.load(pack(tool, policy=known, schema=opened)).warnings == ()
    assert all(f"`{name}`" in PAGE for name in (*PERMISSIONS, *SIDE_EFFECTS))


def test_the_error_is_told_like_that(tmp_path: Path) -> None:
    text = "\n" * 10 + "[limits]\nmax_compute = 3\n"
    (found,) = problems(tmp_path, {"rules/a.mg": RULES, "pack.toml": text})
    assert found.render() + "\n" == fence("error[pack]:")


def test_every_key_and_default_is_named() -> None:
    """The table is written from what the reader asks for; that this is everything is what is looked at here."""
    rows = [[cell.strip() for cell in line.split(" | ")] for line in PAGE.splitlines() if line.startswith("| `")]
    table = {row[0].strip("| `").rpartition(".")[2]: row[2] for row in rows if len(row) == 4}
    sections = {"domain", "params", "fact_sources", "intents", "limits", "disclosure", "auth", "sandbox"}
    sections |= {"invocation", "secrets"}
    for section in (Settings, PackLimits, Disclosure, AuthSettings, Invocation):
        assert set(section.__dataclass_fields__) - sections - {"governance_digest"} <= table.keys()
    for limit in PackLimits.__dataclass_fields__:
        assert table[limit] == f"{getattr(PackLimits(), limit):,}"
    assert "| `governance.digest` |" in PAGE
    assert table["inline_skill_tokens"] == str(Disclosure().inline_skill_tokens)
    assert all(f"`{category}`" in PAGE for category in CATEGORIES)


def test_the_limits_are_those() -> None:
    assert f"{folder.MAX_FILES:,}, {folder.MAX_DEPTH}" in PAGE
    assert f"batches of {BATCH:,}" in PAGE
    assert f"has {host_listing.TIMEOUT_SECONDS:g} seconds" in PAGE
    texts = (MAX_SETTINGS_BYTES, loader.MAX_TEXT_BYTES, skills.MAX_SKILL_BYTES)
    sizes = (*texts, folder.MAX_FILE_BYTES, host_listing.MAX_OUTPUT)
    assert governance.MAX_DOCUMENT_BYTES == 256 << 10
    assert folder.MAX_BYTES == 4 << 30
    assert sizes == (64 << 10, 16 << 20, 256 << 10, 1 << 30, 4 << 20)
