"""`manglecp token`: what is printed, what is stored, and what is never overwritten."""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading
from pathlib import Path

import pytest

from manglecp.intent import Identity
from manglecp.server.auth.tokens import TokensFile
from tests.cli.conftest import Run


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MANGLECP_TOKENS", raising=False)


def identified(token: str) -> Identity | None:
    return asyncio.run(TokensFile(Path("tokens.toml")).identify("bearer", token))


def test_a_new_token_is_printed_once_and_only_its_hash_is_stored(run: Run, folder: Path) -> None:
    made = run("token", "new", "kim", "--permission", "fix", "--permission", "read")
    assert made.exit_code == 0
    token = made.stdout.strip()
    kim = Identity("kim", frozenset({"fix", "read"}), "user", hashlib.sha256(token.encode()).hexdigest())
    assert identified(token) == kim
    file = folder / "tokens.toml"
    assert file.stat().st_mode & 0o777 == 0o600
    assert token not in file.read_text()
    ann = run("token", "new", "ann", "--approver", "--expires", "2090-01-01").stdout.strip()
    found = identified(ann)
    assert found is not None
    assert found.permissions == {"approve"}
    assert identified(token) is not None, "the first one stays"
    digest = hashlib.sha256(token.encode()).hexdigest()
    listed = run("token", "list").stdout
    assert listed.splitlines()[1].split() == [digest[:12], "kim", "fix,", "read", "-"]
    assert listed.splitlines()[2].split()[1:] == ["ann", "approve", "2090-01-01T00:00:00Z"]
    assert digest not in listed
    assert [one["expires"] for one in json.loads(run("token", "list", "--json").stdout)] == [
        None,
        "2090-01-01T00:00:00Z",
    ]
    assert [path.name for path in folder.iterdir()] == ["tokens.toml"]


def test_tokens_are_revoked_by_identity_or_by_hash(run: Run, folder: Path) -> None:
    file = folder / "tokens.toml"
    tokens = {name: run("token", "new", name).stdout.strip() for name in ("kim", "ann", "bob")}
    second = run("token", "new", "kim").stdout.strip()
    file.write_text("# the tokens of the desk\n" + file.read_text().replace("[[token]]", "# next\n[[token]]"))
    assert run("token", "revoke", "kim").stdout == "revoked 2 tokens of kim\n"
    assert [identified(token) for token in (tokens["kim"], second)] == [None, None]
    digest = hashlib.sha256(tokens["ann"].encode()).hexdigest()
    assert "no token of " in run("token", "revoke", digest[:5]).stderr
    assert run("token", "revoke", digest[:8]).stdout == "revoked 1 token of ann\n"
    assert identified(tokens["bob"]) is not None
    assert file.read_text().count("#") == 6, "comments of the operator stay, and the one in the entry"
    unknown = run("token", "revoke", "zed")
    assert (unknown.exit_code, "has no token of zed, only of bob; the file is unchanged" in unknown.stderr) == (1, True)
    assert run("token", "revoke", "bob").exit_code == 0
    assert run("token", "list").stdout == "No tokens.\n"


@pytest.mark.parametrize("content", ["[[token", '[[token]]\nsha256 = "1"\nidentity = "a"\n', "\xff"])
def test_a_broken_file_is_not_overwritten(run: Run, folder: Path, content: str) -> None:
    file = folder / "tokens.toml"
    file.write_bytes(content.encode("latin-1"))
    for args in (["new", "kim"], ["revoke", "kim"], ["list"]):
        shown = run("token", *args)
        assert (shown.exit_code, shown.stdout) == (1, "")
        assert "tokens.toml" in shown.stderr
        assert "the file is unchanged" in shown.stderr
    assert file.read_bytes() == content.encode("latin-1")


def test_a_layout_that_cannot_be_edited_is_left_alone(run: Run, folder: Path) -> None:
    content = f'token = [{{sha256 = "{"a" * 64}", identity = "kim"}}, {{sha256 = "{"b" * 64}", identity = "ann"}}]\n'
    (folder / "tokens.toml").write_text(content)
    assert "unusual layout: remove the entry with an editor" in run("token", "revoke", "kim").stderr
    assert (folder / "tokens.toml").read_text() == content


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["new", "local"], "identity must be a name"),
        (["new", "kim", "--permission", " "], "permissions must be a list of names"),
        (["new", "kim", "--expires", "2001-01-01"], "2001-01-01 is in the past"),
        (["new", "kim", "--expires", "soon"], "'soon' is not a time such as"),
        (["list"], "there is no tokens.toml; `manglecp token new` creates it"),
        (["new", "kim", "--file", "nowhere/t.toml"], "cannot be opened"),
    ],
)
def test_what_is_refused(run: Run, folder: Path, args: list[str], said: str) -> None:
    shown = run("token", *args)
    assert shown.exit_code != 0
    assert said in shown.stderr
    assert list(folder.iterdir()) == []


def test_a_link_is_kept_and_its_target_replaced(run: Run, folder: Path) -> None:
    (folder / "real").mkdir()
    (folder / "tokens.toml").symlink_to("real/tokens.toml")
    run("token", "new", "kim")
    assert (folder / "tokens.toml").is_symlink()
    assert (folder / "real" / "tokens.toml").stat().st_mode & 0o777 == 0o600


def test_changes_at_the_same_time_are_all_kept(run: Run) -> None:
    from manglecp.server import TokenEditor

    people = [f"p{number}" for number in range(12)]
    threads = [threading.Thread(target=TokenEditor(Path("tokens.toml")).add, args=(name,)) for name in people]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(one["identity"] for one in json.loads(run("token", "list", "--json").stdout)) == sorted(people)
