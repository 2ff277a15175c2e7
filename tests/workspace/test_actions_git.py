"""Git: what has changed, and commits that touch nothing else. A repository cannot make it run anything (case 27)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, strategies as st

from examples.workspace.repository.actions.commits import commit
from examples.workspace.repository.actions.history import git_diff
from examples.workspace.repository.actions.testids import path_of_test
from examples.workspace.repository.actions.text_search import search_text
from examples.workspace.repository.branches import protected_branches
from examples.workspace.repository.git import Git
from examples.workspace.repository.refusal import Refusal
from tests.effort import examples
from tests.workspace.acting import context
from tests.workspace.messy import messy
from tests.workspace.repository import ADA, Repository, new


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    repository = new(tmp_path / "repository")
    repository.commit("First", ADA, {"a.txt": "1\n", "b.txt": "1\n", "c d.txt": "1\n", "gone.txt": "1\n"})
    repository.write({"a.txt": "2\n", "b.txt": "2\n", "new ü.txt": "1\n", "staged.txt": "1\n"})
    repository.git("add", "--", "staged.txt", "b.txt")
    (repository.root / "gone.txt").unlink()
    return repository


def status(repository: Repository) -> list[str]:
    return repository.git("status", "--porcelain", "-z").split("\0")


def test_a_diff_says_what_has_changed(repository: Repository) -> None:
    diff = git_diff(context(repository.root))
    assert [(one["path"], one["added"], one["removed"]) for one in diff["files"]] == [
        ("a.txt", 1, 1),
        ("b.txt", 1, 1),
        ("gone.txt", 0, 1),
        ("staged.txt", 1, 0),
        ("new ü.txt", 1, 0),
    ]
    assert "--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-1\n+2\n" in diff["diff"]
    assert [one["path"] for one in git_diff(context(repository.root), staged=True)["files"]] == ["b.txt", "staged.txt"]
    assert [one["path"] for one in git_diff(context(repository.root), ["a.txt"])["files"]] == ["a.txt"]
    for path in (":(exclude)a.txt", "*.txt"):
        assert git_diff(context(repository.root), [path])["files"] == [], "a path is a path"
    repository.commit("All")
    assert git_diff(context(repository.root))["diff"] == ""
    assert len(git_diff(context(repository.root), base="HEAD~1")["files"]) == 5


def test_a_diff_shows_files_that_git_does_not_know(repository: Repository) -> None:
    repository.write({"token.txt": 'password = "hunter2-zq81kx"\n', "data.bin": b"\0\1", "ignored.log": "x\n"})
    repository.write({".gitignore": "*.log\n"})
    diff = git_diff(context(repository.root))
    told = {one["path"]: (one["added"], one["removed"]) for one in diff["files"]}
    assert (told["new ü.txt"], told["token.txt"], told["data.bin"]) == ((1, 0), (1, 0), (-1, -1))
    assert "ignored.log" not in told
    assert "+++ b/new ü.txt\n@@ -0,0 +1,1 @@\n+1\n" in diff["diff"]
    assert "hunter2" not in diff["diff"]


def test_a_diff_that_is_too_long_is_cut(repository: Repository) -> None:
    repository.write({"a.txt": "2\n" * 8_000_000})
    diff = git_diff(context(repository.root))
    assert diff["more"]
    assert diff["diff"].startswith("diff --git a/a.txt b/a.txt\n")
    assert ("a.txt", 8_000_000) in [(one["path"], one["added"]) for one in diff["files"]]


def test_a_repository_without_commits_and_a_folder_without_git(tmp_path: Path) -> None:
    empty = new(tmp_path / "empty")
    empty.write({"a.txt": "1\n"})
    assert [one["path"] for one in git_diff(context(empty.root))["files"]] == ["a.txt"]
    done = commit(context(empty.root), ["a.txt"], "First", "work")
    assert empty.git("log", "--format=%s", "work") == "First"
    assert done["parent"] == ""
    (tmp_path / "none").mkdir()
    with pytest.raises(Refusal, match=r"has \.git in it"):
        git_diff(context(tmp_path / "none"))


def test_a_commit_has_the_named_files_and_touches_nothing_else(repository: Repository) -> None:
    before, index = status(repository), repository.git("ls-files", "--stage")
    here = context(repository.root, author_name="Somebody", author_email="some@body.example")
    tried = commit(here, ["a.txt", "gone.txt", "new ü.txt"], "Try", "work/one", dry_run=True)
    assert tried["commit"] == ""
    assert repository.git("branch", "--list", "work/one") == ""
    done = commit(here, ["a.txt", "gone.txt", "new ü.txt"], "-m --amend\n\nbody", "work/one")
    assert {**tried, "commit": done["commit"]} == done
    assert done["files"] == ["a.txt", "gone.txt", "new ü.txt"]
    how = ["-c", "core.quotePath=false", "show", "--no-renames", "--name-status", "--format=%an %ae%n%s%n%b"]
    shown = [line for line in repository.git(*how, "work/one").split("\n") if line]
    said = ["Somebody some@body.example", "-m --amend", "body"]
    assert shown == [*said, "M\ta.txt", "D\tgone.txt", "A\tnew ü.txt"]
    assert repository.git("rev-parse", "--abbrev-ref", "HEAD") == "main"
    assert repository.git("rev-parse", "HEAD") == repository.commits[-1] == done["parent"]
    assert (status(repository), repository.git("ls-files", "--stage")) == (before, index)
    for again in (["a.txt"], "Again"), (["a.txt"], "-m --amend\n\nbody"):
        with pytest.raises(Refusal, match="already contains the files"):
            commit(here, *again, "work/one")
    same = ["new ü.txt", "a.txt", "gone.txt"], "-m --amend\n\nbody", "work/one"
    assert commit(here, *same) == done, "after an outcome that nobody knows, the same call gives the same commit"
    more = commit(here, ["b.txt"], "More", "work/one")
    assert more["parent"] == done["commit"]


def test_on_the_branch_that_is_checked_out_the_index_follows(repository: Repository) -> None:
    repository.git("checkout", "--quiet", "-b", "work")
    commit(context(repository.root), ["a.txt"], "On it", "work")
    assert not [line for line in status(repository) if line.endswith(" a.txt")]
    assert "A  staged.txt" in status(repository)


@pytest.mark.parametrize(
    "branch",
    [
        "main",
        "MAIN",
        "HEAD",
        "-x",
        "a..b",
        "a b",
        "a.lock",
        "a/",
        "/a",
        "a//b",
        "a~1",
        "@{-1}",
        "a\n",
        "x/../main",
        "held",
    ],
)
def test_a_branch_that_others_build_on_is_not_committed_to(repository: Repository, branch: str) -> None:
    refs = repository.git("for-each-ref")
    here = context(repository.root, protected_branches="held, other", default_branch="next")
    with pytest.raises(Refusal):
        commit(here, ["a.txt"], "No", branch)
    assert repository.git("for-each-ref") == refs


def test_what_the_default_branch_is(tmp_path: Path, repository: Repository) -> None:
    repository.git("branch", "develop")
    repository.git("update-ref", "refs/remotes/origin/develop", "HEAD")
    repository.git("symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/develop")
    assert protected_branches(Git(repository.root), "") == {"develop", "main"}
    assert protected_branches(Git(repository.root), "next, stable") == {"develop", "main", "next", "stable"}
    only = new(tmp_path / "only")
    only.commit("First", files={"a": "1\n"})
    only.git("branch", "--move", "main", "odd")
    only.write({"a": "2\n"})
    assert protected_branches(Git(only.root), "") == {"odd"}
    with pytest.raises(Refusal, match="others build on: name another branch, or set the default branch with --set"):
        commit(context(only.root), ["a"], "No", "odd")


def test_a_name_that_stands_for_the_default_branch_is_closed_too(repository: Repository) -> None:
    repository.git("symbolic-ref", "refs/heads/alias", "refs/heads/main")
    refs = repository.git("for-each-ref")
    with pytest.raises(Refusal, match="'alias' is a branch that others build on"):
        commit(context(repository.root), ["a.txt"], "No", "alias")
    assert repository.git("for-each-ref") == refs
    repository.git("branch", "--move", "main", "odd")  # and alias leads nowhere
    commit(context(repository.root), ["a.txt"], "A branch of its own", "alias")
    assert repository.git("for-each-ref", "--format=%(refname)", "refs/heads/main") == ""
    repository.git("symbolic-ref", "refs/heads/other", "refs/heads/odd")
    assert protected_branches(Git(repository.root), "") == {"alias", "odd", "other"}, "it is no reason to open others"


def test_a_remote_may_have_a_name_with_slashes(repository: Repository) -> None:
    for remote in ("team/fork", "a/b/c"):
        repository.git("update-ref", f"refs/remotes/{remote}/{remote[0]}-next", "HEAD")
        repository.git("symbolic-ref", f"refs/remotes/{remote}/HEAD", f"refs/remotes/{remote}/{remote[0]}-next")
    assert protected_branches(Git(repository.root), "") == {"main", "t-next", "a-next"}


def test_names_of_commits_may_be_long(tmp_path: Path) -> None:
    repository = Repository(tmp_path)
    repository.git("init", "--quiet", "--initial-branch=main", "--object-format=sha256")
    repository.commit("First", files={"a": "1\n"})
    repository.write({"a": "2\n"})
    made = commit(context(tmp_path), ["a"], "Second", "work")
    assert repository.git("rev-parse", "work", "work^") == f"{made['commit']}\n{made['parent']}"
    repository.write({"a": "3\n"})
    assert commit(context(tmp_path), ["a"], "Third", "work")["parent"] == made["commit"]


def test_a_branch_that_moves_meanwhile_is_not_overwritten(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = Git.output

    def moving(self: Git, *arguments: str, **options: Any) -> bytes:
        if arguments[0] == "update-ref":
            repository.git("update-ref", "refs/heads/work", repository.commits[-1])
        return ask(self, *arguments, **options)

    monkeypatch.setattr(Git, "output", moving)
    with pytest.raises(Refusal, match="update-ref"):
        commit(context(repository.root), ["a.txt"], "Late", "work")
    assert repository.git("rev-parse", "work") == repository.commits[-1]


def test_a_secret_is_not_committed_by_swapping_files_or_in_a_large_one(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "password = " + '"h7Kq-29xW_pLz"\n'
    repository.write({"large.txt": "x\n" * (5 << 19) + secret})
    with pytest.raises(Refusal, match=r"'large.txt' has a secret in it: remove it first"):
        commit(context(repository.root), ["gone.txt", "a.txt", "large.txt"], "No", "work")
    ask = Git.output

    def swapping(self: Git, *arguments: str, **options: Any) -> bytes:
        if arguments[0] == "update-index":
            repository.write({"a.txt": secret})
        return ask(self, *arguments, **options)

    monkeypatch.setattr(Git, "output", swapping)
    with pytest.raises(Refusal, match=r"'a.txt' has a secret in it"):
        commit(context(repository.root), ["gone.txt", "a.txt"], "No", "work")
    assert repository.git("for-each-ref", "--format=%(refname)") == "refs/heads/main"


def test_a_path_that_was_not_named_is_not_committed(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    ask = Git.output

    def adding(self: Git, *arguments: str, **options: Any) -> bytes:
        if arguments[0] == "write-tree":
            ask(self, "update-index", "--add", "-z", "--stdin", stdin=b"new.txt\0", environ=options["environ"])
        return ask(self, *arguments, **options)

    repository.write({"new.txt": "x\n", "a.txt": "changed\n"})
    monkeypatch.setattr(Git, "output", adding)
    with pytest.raises(Refusal, match=r"'new.txt' would be committed and was not named"):
        commit(context(repository.root), ["a.txt"], "One file", "work")
    assert repository.git("for-each-ref", "--format=%(refname)") == "refs/heads/main"


@pytest.mark.parametrize("path", ["../out", "/etc/passwd", ".git/config", "linked/x", "sub"])
def test_no_path_of_a_commit_leads_out(repository: Repository, path: str) -> None:
    (repository.root / "linked").symlink_to("/etc")
    (repository.root / "sub").mkdir()
    with pytest.raises(Refusal):
        commit(context(repository.root), [path], "No", "work")


def test_nothing_that_the_repository_names_is_run(tmp_path: Path) -> None:
    """Every door is ajar: hooks, filters, monitors, pagers, external diffs, aliases. No sandbox helps here."""
    repository = messy(tmp_path, hostile=True)
    here = context(repository.root)
    assert {"x.filtered", "fresh one.py"} <= {one["path"] for one in git_diff(here)["files"]}
    done = commit(
        here, ["fresh one.py", "-rf.py", "quote'\"$(touch hit);`touch hit`.py", "src/odd/late.py"], "x", "work"
    )
    assert done["files"] == ["fresh one.py", "src/odd/late.py"]
    with pytest.raises(Refusal, match="goes through a filter"):
        commit(here, ["x.filtered"], "x", "work")
    assert not (tmp_path / "ran").exists(), (tmp_path / "ran").read_text()
    assert not (repository.root / "hit").exists()


NASTY = [
    "--upload-pack=touch hit", "-o", "--output=hit", "--exec=touch hit", "--", "-c", "core.pager=touch hit", "@hit",
    ";touch hit", "$(touch hit)", "`touch hit`", "|touch hit", "&&touch hit", "\ntouch hit\n", "> hit", "'", '"', "\\",
    "*", "~", "%0a", ":(top)", ":!a", ":/", "HEAD", "a..b", "--no-index", "/etc/passwd", "-", "{a,b}", "é",
]  # fmt: skip
WORD = st.lists(st.sampled_from(NASTY), min_size=1, max_size=3).map("".join) | st.text(max_size=20)


@given(WORD, WORD, WORD)
@examples(25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_an_argument_is_never_an_option_or_a_command(tmp_path: Path, path: str, name: str, text: str) -> None:
    """Whatever is said, git either does what was asked with exactly that, or says no; and nothing else happens."""
    root = tmp_path / "repository"
    if not root.exists():
        new(root).commit("First", files={"a.txt": "1\n"})
    before, refs = _files(root), Repository(root).git("for-each-ref")
    here = context(root)
    for attempt in (
        lambda: git_diff(here, [path]),
        lambda: git_diff(here, ["a.txt"], base=name),
        lambda: commit(here, [path], text or "x", "work"),
        lambda: commit(here, ["a.txt"], text or "x", name, dry_run=True),
        lambda: search_text(here, text or "x", glob=name),
    ):
        try:
            attempt()
        except Refusal:
            continue
    assert _files(root) == before
    assert Repository(root).git("for-each-ref") == refs


def _files(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root.parent)) for path in root.parent.rglob("*") if ".git" not in path.parts)


@given(WORD)
def test_an_id_of_a_test_is_a_place_and_nothing_else(test: str) -> None:
    try:
        path = path_of_test(test)
    except Refusal:
        return
    assert test.startswith(path)
    assert not path.startswith("/")
    assert ".." not in path.split("/")
