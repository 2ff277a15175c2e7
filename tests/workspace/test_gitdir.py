"""Where git keeps what it knows: in the root, or elsewhere, if a person has said so and both ends agree."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples.workspace.repository.actions.commits import commit
from examples.workspace.repository.actions.history import git_diff
from examples.workspace.repository.gitdir import git_folders
from examples.workspace.repository.refusal import Refusal
from examples.workspace.repository.scan.scanner import Settings
from tests.workspace.acting import context
from tests.workspace.repositories import layered
from tests.workspace.repository import Repository
from tests.workspace.scans import of, scanned


@pytest.fixture
def main(tmp_path: Path) -> Repository:
    return layered(tmp_path / "main")


def linked(main: Repository, name: str, *options: str) -> Path:
    folder = main.root.parent / name
    main.git("worktree", "add", "--quiet", *options, str(folder))
    return folder


def test_a_linked_work_tree_is_worked_on_as_any_other(main: Repository) -> None:
    root, git_dir = linked(main, "beside", "-b", "beside"), str(main.root / ".git")
    (root / "README.md").write_text("# other\n")
    (main.root / "pricing/tax.py").write_text("")
    facts = scanned(root, settings=Settings(git_dir=git_dir))
    assert of(facts, "changed") == {("README.md", "modified")}, "what changed in the other one is its own business"
    assert of(facts, "current_branch") == {("beside",)}
    assert ("README.md", 1) in of(facts, "churn")
    here = context(root, git_dir=git_dir)
    assert [one["path"] for one in git_diff(here)["files"]] == ["README.md"]
    done = commit(here, ["README.md"], "Say it otherwise", "work")
    assert main.git("show", "--name-only", "--format=", "work") == "README.md"
    assert main.git("rev-parse", "work") == done["commit"]
    with pytest.raises(Refusal, match="others build on"):
        commit(here, ["README.md"], "No", "main")
    with pytest.raises(Refusal, match="checked out in another work tree"):
        commit(context(main.root), ["pricing/tax.py"], "No", "beside")
    assert commit(here, ["README.md"], "Here it is", "beside")["files"] == ["README.md"]


def test_a_folder_that_nothing_needs_is_not_opened(main: Repository, tmp_path: Path) -> None:
    assert git_folders(main.root, str(main.root / ".git")) == git_folders(main.root)
    with pytest.raises(Refusal, match=r"the root has its own \.git: .* leave it out"):
        git_folders(main.root, str(tmp_path))


def test_work_that_is_not_finished_is_that_of_one_work_tree(main: Repository) -> None:
    root = linked(main, "beside", "-b", "beside")
    main.git("bisect", "start")
    assert of(scanned(main.root), "under_way") == {("bisect",)}
    assert of(scanned(root, settings=Settings(git_dir=str(main.root / ".git"))), "under_way") == set()


def test_a_submodule_names_its_folder_too(main: Repository, tmp_path: Path) -> None:
    around = layered(tmp_path / "around")
    around.git("submodule", "--quiet", "add", str(main.root), "vendored")
    inner, git_dir = around.root / "vendored", around.root / ".git/modules/vendored"
    with pytest.raises(Refusal, match=f"--set git_dir={git_dir}"):
        scanned(inner)
    assert of(scanned(inner, settings=Settings(git_dir=str(git_dir))), "head") == {(main.commits[-1],)}


@pytest.mark.parametrize("how", ["other tree", "outside", "nothing", "garbage", "link"])
def test_a_file_that_names_what_is_not_its_own_is_not_believed(main: Repository, tmp_path: Path, how: str) -> None:
    """A repository that somebody sends along must not open another one, also if its owner has named a folder."""
    beside, root = linked(main, "beside", "--detach"), tmp_path / "sent"
    root.mkdir()
    private = (beside / ".git").read_text()
    said = {"other tree": private, "outside": f"gitdir: {tmp_path}/else\n", "nothing": "", "garbage": "gitdir: \x1b[2J"}
    if how == "link":
        (root / ".git").symlink_to(main.root / ".git")
    else:
        (root / ".git").write_text(said[how])
    with pytest.raises(Refusal, match=r"elsewhere|neither a folder nor"):
        git_folders(root)
    if how != "link":  # which is what it seems to be
        with pytest.raises(Refusal, match=r"another work tree|git_dir is not|neither a folder nor"):
            git_folders(root, str(main.root / ".git"))
