"""Secrets do not leave by any action that shows text, and cannot be asked for piece by piece."""

from __future__ import annotations

import base64
import os
import random
import re
import sys
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from examples.workspace.repository.actions.commits import commit
from examples.workspace.repository.actions.history import git_diff
from examples.workspace.repository.actions.line_ranges import read_range
from examples.workspace.repository.actions.outlines import outline
from examples.workspace.repository.actions.patches import Edit, check_patch, make_patch
from examples.workspace.repository.actions.pytest_runs import run_tests
from examples.workspace.repository.actions.text_search import search_text
from examples.workspace.repository.refusal import Refusal
from examples.workspace.repository.secrets import (
    find_secrets,
    is_redacted,
    redact,
    redact_diff,
    secret_lines,
    secret_locations,
)
from tests.workspace.acting import context
from tests.workspace.repository import Repository, new

chance = random.Random(4)


def letters(count: int, of: str = "ABCDEFGHJKMNPQRSTUVWXYZabcdefghjkmnpqrstuvwxyz0123456789") -> str:
    return "".join(chance.choices(of, k=count))


_BODY = "\n".join(base64.b64encode(chance.randbytes(48)).decode() for _ in range(6))
KEY = f"-----BEGIN RSA PRIVATE KEY-----\n{_BODY}\n-----END RSA PRIVATE KEY-----"
"""They are made here, so that no other scan of this repository finds one."""
SECRETS = {
    "access key": "AKIA" + letters(16, "ABCDEFGHJKMNPQRSTUVWXYZ234567"),
    "github": "ghp_" + letters(36),
    "gitlab": "glpat-" + letters(20),
    "slack": "xoxb-" + letters(24),
    "stripe": "sk_live_" + letters(24),
    "model": "sk-ant-" + letters(40),
    "google": "AIza" + letters(35),
    "npm": "npm_" + letters(36),
    "pypi": "pypi-" + letters(60),
    "web token": f"eyJ{letters(20)}.eyJ{letters(40)}.{letters(40)}",
}
PASSWORD = letters(10) + "7x"
LINES = {
    **{kind: f"value: {secret} and more" for kind, secret in SECRETS.items()},
    "quoted": f'password = "{PASSWORD}"',
    "typed": f"API_KEY: str = '{PASSWORD}'",
    "in JSON": f'{{"auth_token": "{PASSWORD}"}}',
    "of an environment": f"export DB_PASSWORD={PASSWORD}",
    "in an address": f"postgres://user:{PASSWORD}@db.example.org/x",
    "of a shell, and a word": "DB_PASSWORD=letmein",
    "in YAML": f"  client_secret: {PASSWORD}3k9",
    "of settings": f"api_key = {PASSWORD}3k9",
    "with signs": 'password = "p(4ss)W0$d!x9"',
    "in a long line": f'{{"a": "{"b" * 9000}", "password": "{PASSWORD}"}}',
    "in a header": f"Authorization: Bearer {PASSWORD}",
}
HARMLESS = """
password = input("Password: ")
token = tokenizer.next_token()
API_KEY = os.environ["API_KEY"]
SECRET_NAME = "database-password"
password: str = "changeme123"
PASSWORD=${DB_PASSWORD}
TOKEN=<your-token-1>
sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
git+https://github.com/org/project@v1.2.3
private_key: Ed25519PrivateKey
SECRET_KEY = settings.SECRET_KEY_2
token = a1.next_token
api_key = get_key(1, 2, 3)
tokens: tests/data/tokens2.json
"""


def hidden(line: str) -> str:
    return next((secret for secret in (*SECRETS.values(), "letmein", "p(4ss)W0$d!x9") if secret in line), PASSWORD)


@pytest.mark.parametrize("kind", LINES)
def test_what_has_the_form_of_a_secret_is_found_where_it_stands(kind: str) -> None:
    line = LINES[kind]
    text = f"before\n{line}\nafter\n"
    seen = redact(text)
    assert hidden(line) not in seen
    assert is_redacted(seen)
    assert seen.split("\n")[0::2] == text.split("\n")[0::2], "what stands around it stays"
    assert secret_lines(text) == {line}


def test_what_only_speaks_of_secrets_is_left_alone() -> None:
    assert [HARMLESS[start:end] for start, end, _ in find_secrets(HARMLESS)] == []
    assert redact(HARMLESS) == HARMLESS


def test_the_lines_of_a_key_keep_their_numbers() -> None:
    text = f"a\n{KEY}\nz\n"
    seen = redact(text)
    assert seen.count("\n") == text.count("\n")
    assert not any(line in seen for line in _BODY.split("\n"))
    assert secret_lines(text) == set(KEY.split("\n"))


def test_what_the_scan_reports_is_what_is_redacted() -> None:
    text = "\n".join([*LINES.values(), KEY, HARMLESS])
    lines = text.split("\n")
    reported = {lines[number - 1] for number, _ in secret_locations(text)}
    assert reported == {*LINES.values(), KEY.split("\n")[0]}
    assert secret_lines(text) == reported | set(KEY.split("\n"))


@given(st.text(max_size=300))
def test_redaction_keeps_lines_and_is_done_once(text: str) -> None:
    seen = redact(text)
    assert seen.count("\n") == text.count("\n")
    assert redact(seen) == seen


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """With a secret of every kind in it, and in what was changed since."""
    repository = new(tmp_path / "repository")
    code = f"def connect(user, password='{PASSWORD}'):\n    return 1\n"
    test = f"def test_it():\n    print('{SECRETS['github']}')\n    assert '{SECRETS['stripe']}' == 'x'\n"
    files = {"conf.py": "\n".join(LINES.values()) + "\n", "id.pem": f"{KEY}\n", "code.py": code, "test_it.py": test}
    repository.commit("All of it", files=files)
    turned = "\n".join(reversed(LINES.values()))
    body = _BODY.replace("\n", "\nA", 3)
    repository.write({"conf.py": f"{turned}\n# changed\n", "id.pem": KEY.replace(_BODY, body) + "\n"})
    return repository


EVERYTHING = [*SECRETS.values(), PASSWORD, *_BODY.split("\n")]


def leaks(said: object) -> list[str]:
    text = str(said)
    return [secret for secret in EVERYTHING if secret in text]


def test_no_action_that_shows_text_shows_them(repository: Repository) -> None:
    here = context(repository.root)
    for name in ("conf.py", "id.pem", "code.py", "test_it.py"):
        for start in range(1, 8):
            assert leaks(read_range(here, name, start, 1)) == []
        whole = read_range(here, name)
        assert (whole["redacted"], whole["sha256"]) == (True, ""), "by its hash a short one could be guessed"
    assert leaks(outline(here, "code.py")) == []
    assert outline(here, "code.py")["sha256"] == ""
    with pytest.raises(Refusal, match="has a secret in it: remove it first"):
        commit(here, ["conf.py"], "Publish it", "work")
    diff = git_diff(here)
    assert diff["files"]
    assert leaks(diff) == []
    run = run_tests(context(repository.root, python=sys.executable), ["test_it.py"])
    assert run["failed"] == ["test_it.py::test_it"], run["output"]
    assert leaks(run) == []


def test_nobody_finds_one_by_asking_for_its_pieces(repository: Repository) -> None:
    here = context(repository.root)
    for secret in EVERYTHING:
        for piece in (secret, secret[:12], secret[4:], secret[-6:]):
            assert search_text(here, piece)["hits"] == [], piece
    assert leaks(search_text(here, "a", most=500)) == []
    assert search_text(here, r"AKIA[A-Z]", regex=True)["hits"] == []


def test_nobody_finds_one_by_waiting(tmp_path: Path) -> None:
    """An expression that takes for ever where a secret fits it is never tried on the secret."""
    line = f"DB_PASSWORD=q{'a' * 40}7!"
    (tmp_path / "conf").write_text(f"{line}\n")
    slow = r"PASSWORD=q(a+)+\d$"
    assert re.search(slow, line.removesuffix("!")), "what the secret begins with fits, and the rest takes for ever"
    assert search_text(context(tmp_path), slow, regex=True)["hits"] == []


def test_of_a_file_that_is_made_for_them_nothing_leaves(repository: Repository) -> None:
    """Whatever its lines look like, and whether git knows it, ignores it or has it in its history."""
    line = "LIGHTHOUSE=by the sea"
    known = [".env", "deploy/Prod.env", ".netrc"]
    repository.commit("Keep them", files={**dict.fromkeys(known, f"{line}\n"), ".gitignore": "ignored/\n"})
    repository.write({**dict.fromkeys([*known, "ignored/.env", "new.env/.env"], f"{line}, still\n")})
    repository.write({".env.example": "LIGHTHOUSE=where it stands\n"})
    here = context(repository.root)
    for name in (*known, "ignored/.env", "new.env/.env"):
        with pytest.raises(Refusal, match="made to hold credentials: a person has to"):
            read_range(here, name)
        with pytest.raises(Refusal, match="made to hold credentials"):
            commit(here, [name], "Publish it", "work")
        edited = make_patch(here, [Edit(name, line, "LIGHTHOUSE=")])
        tried = check_patch(here, f"--- a/{name}\n+++ b/{name}\n@@ -1,1 +1,1 @@\n-{line}\n+x\n")
        for answer in (edited, tried):
            assert "made to hold credentials" in answer["problems"][0]["problem"]
    assert [hit["path"] for hit in search_text(here, "LIGHTHOUSE", most=500)["hits"]] == [".env.example"]
    for base in ("HEAD", "HEAD~1"):
        diff = git_diff(here, base=base)
        assert {*known, "new.env/.env"} <= {file["path"] for file in diff["files"]}
        assert "by the sea" not in diff["diff"]
        assert "where it stands" in diff["diff"]
        assert git_diff(here, [".env"], base=base)["diff"] == ""
    assert git_diff(here, ["*"])["files"] == [], "a path is a path"


def test_nor_if_its_name_is_no_text(repository: Repository) -> None:
    odd = Path(os.fsdecode(bytes(repository.root) + b"/\xff.env"))
    odd.write_text("LIGHTHOUSE=by the hill\n")
    repository.commit("Keep it")
    odd.write_text("LIGHTHOUSE=by the sea\n")
    repository.write({"code.py": "CODE = 1\n"})
    diff = git_diff(context(repository.root))
    assert {file["path"] for file in diff["files"]} == {"\\xff.env", "code.py"}
    assert "CODE" in diff["diff"]
    assert "LIGHTHOUSE" not in diff["diff"]


def test_the_middle_of_a_key_in_a_diff_is_not_shown() -> None:
    diff = "@@ -3,3 +3,3 @@\n" + "".join(f" {line}\n" for line in _BODY.split("\n")) + "-old\n+new\n"
    assert leaks(redact_diff(diff)) == []
    assert redact_diff(diff).endswith("-old\n+new\n")
