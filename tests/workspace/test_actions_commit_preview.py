"""The preview of a commit: what the approver reads, and the commit that has exactly that content."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from examples.workspace.repository.actions.commit_previews import CommitPreview, preview_commit
from examples.workspace.repository.actions.commits import CommitResult, commit
from examples.workspace.repository.git import Git
from examples.workspace.repository.refusal import Refusal
from tests.workspace.acting import context
from tests.workspace.repository import ADA, Repository, new

PATHS = ["a.txt", "gone.txt", "new ü.txt"]


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    repository = new(tmp_path / "repository")
    repository.commit("First", ADA, {"a.txt": "1\n", "b.txt": "1\n", "gone.txt": "1\n"})
    repository.write({"a.txt": "2\n", "b.txt": "2\n", "new ü.txt": "1\n"})
    repository.git("add", "--", "b.txt")
    (repository.root / "gone.txt").unlink()
    return repository


def preview(repository: Repository, paths: list[str] | None = None, branch: str = "work", **more: Any) -> CommitPreview:
    return preview_commit(context(repository.root), paths or PATHS, branch, **more)


def approved(repository: Repository, shown: CommitPreview, paths: list[str] | None = None) -> CommitResult:
    """Commit as the gate does: with the members of the preview that are parameters of the action."""
    here, named = context(repository.root), paths or PATHS
    return commit(here, named, "As approved", "work", parent=shown["parent"], blobs=shown["blobs"])


def contents(folder: Path) -> dict[str, str]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and not path.is_symlink())
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_a_preview_has_the_parent_the_blobs_the_deletions_and_the_diff(repository: Repository) -> None:
    before = contents(repository.root)
    shown = preview(repository)
    assert contents(repository.root) == before, "neither an object nor the index was written"
    assert shown["parent"] == repository.commits[-1]
    assert shown["blobs"] == {
        path: f"100644 {repository.git('hash-object', '--', path)}" for path in ("a.txt", "new ü.txt")
    }
    assert shown["deleted"] == ["gone.txt"]
    assert "--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-1\n+2\n" in shown["diff"]
    assert "--- a/gone.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-1\n" in shown["diff"]
    assert "--- /dev/null\n+++ b/new ü.txt\t\n@@ -0,0 +1 @@\n+1\n" in shown["diff"]
    assert "b.txt" not in shown["diff"], "it is staged, and was not named"


def test_what_was_previewed_is_committed_and_nothing_else(repository: Repository) -> None:
    shown = preview(repository, message="As approved")
    done = approved(repository, shown)
    assert (done["parent"], done["files"]) == (shown["parent"], PATHS)
    tree = repository.git("-c", "core.quotePath=false", "ls-tree", "work").splitlines()
    entries = {path: about.replace("blob ", "") for about, _, path in (line.partition("\t") for line in tree)}
    unnamed = f"100644 {repository.git('rev-parse', 'main:b.txt')}"
    assert entries == {**shown["blobs"], "b.txt": unnamed}
    how = ["-c", "core.quotePath=false", "diff", "--no-renames", "--full-index"]
    assert f"{repository.git(*how, 'main', 'work')}\n" == shown["diff"]
    assert preview(repository, message="As approved") == shown, "a repeated call finds the commit that it made"
    assert approved(repository, shown) == done
    assert preview(repository, message="Another")["diff"] == preview(repository)["diff"] == ""


def _edit(root: Path) -> None:
    (root / "a.txt").write_text("import backdoor\n")


def _restore(root: Path) -> None:
    (root / "gone.txt").write_text("1\n")


def _delete(root: Path) -> None:
    (root / "new ü.txt").unlink()


def _make_executable(root: Path) -> None:
    (root / "a.txt").chmod(0o755)


def _make_link(root: Path) -> None:
    (root / "a.txt").unlink()
    (root / "a.txt").symlink_to("2\n")  # the same blob in another mode


CHANGES: list[tuple[Callable[[Path], None], str]] = [
    (_edit, "a.txt"),
    (_restore, "gone.txt"),
    (_delete, "new ü.txt"),
    (_make_executable, "a.txt"),
    (_make_link, "a.txt"),
]


@pytest.mark.parametrize(("change", "path"), CHANGES, ids=lambda value: getattr(value, "__name__", ""))
def test_other_content_than_the_previewed_is_refused(
    repository: Repository, change: Callable[[Path], None], path: str
) -> None:
    shown = preview(repository)
    change(repository.root)
    assert preview(repository) != shown
    with pytest.raises(Refusal, match=f"'{path}' has changed since the approval: invoke again to request another"):
        approved(repository, shown)
    told = commit(context(repository.root), PATHS, "No", "work", refuse=False, blobs=shown["blobs"])
    assert (told["commit"], "since the approval" in told["problem"]) == ("", True)
    assert repository.git("for-each-ref", "--format=%(refname)") == "refs/heads/main"


def test_content_that_changes_while_the_commit_is_built_is_refused(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown, run = preview(repository), Git.output

    def editing(self: Git, *arguments: str, **options: Any) -> bytes:
        if arguments[0] == "update-index":
            _edit(repository.root)
        return run(self, *arguments, **options)

    monkeypatch.setattr(Git, "output", editing)
    with pytest.raises(Refusal, match=r"'a\.txt' has changed since the approval"):
        approved(repository, shown)
    assert repository.git("for-each-ref", "--format=%(refname)") == "refs/heads/main"


def test_other_paths_than_the_previewed_are_refused(repository: Repository) -> None:
    shown = preview(repository)
    for paths in (["a.txt"], [*PATHS, "b.txt"]):
        with pytest.raises(Refusal, match="has changed since the approval"):
            approved(repository, shown, paths)
    assert repository.git("for-each-ref", "--format=%(refname)") == "refs/heads/main"


def test_another_parent_than_the_previewed_is_refused(repository: Repository) -> None:
    shown = preview(repository)
    commit(context(repository.root), ["b.txt"], "In between", "work")
    moved = repository.git("rev-parse", "work")
    with pytest.raises(Refusal, match="the parent of the commit has changed since the approval"):
        approved(repository, shown)
    assert repository.git("rev-parse", "work") == moved
    again = preview(repository)
    assert again["parent"] == moved
    assert approved(repository, again)["parent"] == moved


def test_a_secret_is_redacted_and_a_credential_file_is_not_shown(repository: Repository) -> None:
    secret = "h7Kq-29xW_pLz"
    repository.write({"a.txt": f'password = "{secret}"\n', ".env": "LIGHTHOUSE=by the sea\n"})
    diff = preview(repository)["diff"]
    assert secret not in diff
    assert "[redacted: " in diff
    with pytest.raises(Refusal, match="made to hold credentials"):
        preview(repository, ["a.txt", ".env"])


def test_a_diff_is_shown_whole_or_not_at_all(repository: Repository) -> None:
    line = "a line of text that is read by an approver\n"
    repository.write({"a.txt": line * 3_000})
    assert preview(repository)["diff"].count(f"+{line}") == 3_000
    for lines in (4_000, 40_000):
        repository.write({"a.txt": line * lines})
        with pytest.raises(Refusal, match=r"more than 150,000 characters, .*: commit fewer files at a time"):
            preview(repository)


def test_no_attribute_hides_the_content_of_a_text(repository: Repository) -> None:
    repository.commit("Attributes", files={".gitattributes": "*.txt binary\n*.py -diff\n*.bin diff\n"})
    repository.write({"a.txt": "3\n", "new.py": "import backdoor\n", "data.bin": b"\0\1", "b.txt": "3\n"})
    shown = preview(repository, ["a.txt", "new.py", "data.bin"])
    assert "-2\n+3\n" in shown["diff"]
    assert "+import backdoor\n" in shown["diff"]
    assert set(shown["blobs"]) == {"a.txt", "new.py", "data.bin"}
    assert "b/data.bin" in shown["diff"]


def test_a_binary_file_is_named(repository: Repository) -> None:
    repository.write({"data.bin": b"\0\1", "a.txt": "3\n"})
    diff = preview(repository, ["a.txt", "data.bin"])["diff"]
    assert "Binary files /dev/null and b/data.bin differ\n" in diff
    assert "+3\n" in diff


def test_the_first_commit_and_a_repository_with_long_names(tmp_path: Path) -> None:
    repository = Repository(tmp_path)
    repository.git("init", "--quiet", "--initial-branch=main", "--object-format=sha256")
    repository.write({"a": "1\n"})
    shown = preview(repository, ["a"])
    assert (shown["parent"], shown["blobs"]) == ("", {"a": f"100644 {repository.git('hash-object', 'a')}"})
    assert approved(repository, shown, ["a"])["parent"] == ""
    repository.git("branch", "main", "work")
    repository.write({"a": "2\n"})
    with pytest.raises(Refusal, match="the parent of the commit has changed"):
        approved(repository, shown, ["a"])
    assert approved(repository, preview(repository, ["a"]), ["a"])["parent"] == repository.git("rev-parse", "work^")


def test_a_linked_work_tree_is_previewed(repository: Repository, tmp_path: Path) -> None:
    repository.git("worktree", "add", "--quiet", "-b", "side", str(tmp_path / "linked"))
    linked = Repository(tmp_path / "linked")
    linked.write({"a.txt": "side\n"})
    here = context(linked.root, git_dir=str((repository.root / ".git").resolve()))
    shown = preview_commit(here, ["a.txt"], "side")
    assert "-1\n+side\n" in shown["diff"]
    done = commit(here, ["a.txt"], "Side", "side", parent=shown["parent"], blobs=shown["blobs"])
    assert repository.git("rev-parse", "side") == done["commit"]


@pytest.mark.parametrize("path", ["../out", "/etc/passwd", ".git/config", "linked/x", "sub"])
def test_no_path_of_a_preview_leads_out(repository: Repository, path: str) -> None:
    (repository.root / "linked").symlink_to("/etc")
    (repository.root / "sub").mkdir()
    with pytest.raises(Refusal):
        preview(repository, [path])


@pytest.mark.parametrize("branch", ["main", "main~0", "@{-1}", "-x", "a..b", "HEAD"])
def test_any_branch_can_be_previewed_and_the_commit_refuses_it(repository: Repository, branch: str) -> None:
    shown = preview(repository, branch=branch)
    assert shown["parent"] == repository.commits[-1]
    with pytest.raises(Refusal):
        commit(context(repository.root), PATHS, "No", branch, parent=shown["parent"], blobs=shown["blobs"])
