"""A repository that scanners stumble over: everything odd is told, nothing fails, and nothing of it is run."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from examples.workspace.repository.git import Git, GitError
from examples.workspace.repository.scan.file_reader import read
from examples.workspace.repository.scan.scan_facts import Fact
from tests.workspace.messy import AWS_KEY, GITHUB_TOKEN, PASSWORD, arm
from tests.workspace.repositories import Repository, layered, messy
from tests.workspace.scans import Kept, of, pairs, scanned


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    return messy(tmp_path_factory.mktemp("messy"))


@pytest.fixture(scope="module")
def facts(repository: Repository) -> set[Fact]:
    return scanned(repository.root)


def test_what_cannot_be_read_is_told(facts: set[Fact]) -> None:
    assert of(facts, "unreadable") == {
        ("absolute.py", "link out of the root"),
        ("bad\\xff.py", "name not UTF-8"),
        ("big.txt", "too large"),
        ("logo.png", "binary"),
        ("nested", "nested repository"),
        ("nowhere.py", "link out of the root"),
        ("out", "link out of the root"),
        ("out.py", "link out of the root"),
        ("round", "link out of the root"),
        ("src/odd/broken.py", "syntax error"),
        ("src/odd/latin.py", "not UTF-8"),
        ("src/odd/nested.py", "syntax error"),
        ("src/odd/nul.py", "NUL byte"),
        ("vendor/sub", "submodule"),
    }
    assert ("src/odd/broken.py", 1) in of(facts, "syntax_error")
    files = {fact[0]: fact[1:] for fact in of(facts, "file")}
    assert files["big.txt"][2] == ""
    assert files["logo.png"][0] == "binary"
    assert files["script"][0] == "python"


def test_links_are_not_followed(facts: set[Fact], repository: Repository) -> None:
    assert of(facts, "link") == {("inside.py", "src/odd/core.py"), ("linked", "src")}
    files = {str(fact[0]) for fact in of(facts, "file")}
    assert not files & {"inside.py", "out.py", "absolute.py", "out/far.py", "linked/odd/core.py"}
    assert not any(name.startswith(("nested/", "vendor/sub", ".git/", "build/")) for name in files)
    assert (repository.root / "out.py").read_text() == "SECRET = 1\n"  # it would have been there


def test_ignored_files_are_not_there_and_odd_names_are(facts: set[Fact]) -> None:
    files = {str(fact[0]) for fact in of(facts, "file")}
    assert not files & {"ignored.py", "run.log"}
    odd = {"new\nline.py", "tab\there.txt", "turned\u202egnp.py"}
    assert files >= {*odd, "keep.log", "-rf.py", "a file with spaces.py", "quote'\"$(touch hit);`touch hit`.py"}
    assert of(facts, "odd_name") == {(name,) for name in odd}
    assert ("ünï/çödé.py", "größe", "function", 1, 2) in of(facts, "symbol")


def test_imports_of_a_source_folder(facts: set[Fact]) -> None:
    found = of(facts, "imports_file")
    assert {target for path, target in found if path == "src/odd/core.py"} == {
        "src/odd/plugins/one.py",  # a package without __init__.py
        "src/odd/plugins/two.py",
        "src/odd/late.py",
    }
    assert {target for path, target in found if path == "src/odd/deep/inner/leaf.py"} == {
        "src/odd/__init__.py",
        "src/odd/deep/inner/__init__.py",
    }
    assert ("src/odd/marked.py", "src/odd/core.py") in found  # behind a byte order mark
    assert ("src/odd/core.py", "yaml.nodes") in of(facts, "imports")
    assert ("src/odd/plugins/two.py", "odd.plugins.two") in of(facts, "module")


def test_tests_by_the_configuration(facts: set[Fact]) -> None:
    assert of(facts, "test") == {("tests/check_core.py::test_start", "tests/check_core.py", 5)}
    # One by its own name, and the same by the one that the package gives it.
    assert of(facts, "tests_symbol") == {("tests/check_core.py::test_start", "src/odd/core.py", "start")}


def test_changes_that_are_not_committed(facts: set[Fact]) -> None:
    assert of(facts, "changed") == {
        ("documented.md", "deleted"),
        ("fresh one.py", "untracked"),
        ("src/odd/declared.py", "modified"),
        ("src/odd/late.py", "modified"),
        ("staged.py", "added"),
        ("void.py", "renamed"),
        ("x.filtered", "modified"),
    }
    assert of(facts, "staged") == {("src/odd/late.py",), ("staged.py",), ("void.py",)}
    assert of(facts, "renamed") == {("empty.py", "void.py")}
    assert not of(facts, "current_branch")
    assert of(facts, "default_branch") == {("main",)}


def test_history_follows_a_rename_and_knows_an_author_again(facts: set[Fact]) -> None:
    churn, authors = pairs(facts, "churn"), pairs(facts, "authors")
    assert (churn["src/odd/new_name.py"], authors["src/odd/new_name.py"]) == (2, 2)
    assert (churn["src/odd/plugins/one.py"], authors["src/odd/plugins/one.py"]) == (2, 2)
    assert churn["new\nline.py"] == 1
    assert "fresh one.py" not in churn


def test_owners_by_the_rules_of_the_file(facts: set[Fact]) -> None:
    owners = pairs(facts, "owner")
    assert owners["src/odd/core.py"] == "@odd/flat"
    assert owners["src/odd/deep/__init__.py"] == "@odd/team"  # src/odd/* does not reach it
    assert owners["src/odd/deep/inner/leaf.py"] == "@odd/deep"
    assert owners["settings.py"] == "@odd/secrets"
    assert "vendored/thing.py" not in owners
    assert of(facts, "invalid_owners") == {("docs/CODEOWNERS", line) for line in (2, 3, 4)}


def test_generated_files(facts: set[Fact]) -> None:
    assert of(facts, "generated") == {
        ("src/odd/schema_pb2.py", "protobuf"),
        ("src/odd/tables.py", "marked"),
        ("vendored/thing.py", "attribute"),
    }


def test_secrets_are_told_and_not_given_away(facts: set[Fact]) -> None:
    assert of(facts, "secret_in") == {
        ("settings.py", 1, "aws access key"),
        ("settings.py", 3, "github token"),
        ("settings.py", 4, "assigned secret"),
        ("deploy/key.pem", 1, "private key"),
    }
    told = repr(sorted(facts, key=repr))
    assert not any(secret in told for secret in (AWS_KEY, GITHUB_TOKEN, PASSWORD, "MIIBOgIBAAJ"))


def test_a_link_into_the_folder_of_git_leads_out(tmp_path: Path) -> None:
    repository = layered(tmp_path / "pricing")
    (repository.root / "settings").symlink_to(".git/config")
    assert of(scanned(repository.root), "unreadable") == {("settings", "link out of the root")}


@pytest.mark.parametrize("name", ["out.py", "inside.py", "out/far.py", "linked/odd/core.py", "src/../settings.py"])
def test_a_link_that_is_put_there_meanwhile_is_not_followed(repository: Repository, name: str) -> None:
    assert (repository.root / name).exists()
    with pytest.raises(OSError, match=r"symbolic|Not a directory|No such file"):
        read(repository.root, name)


# --- nothing of it is run ---------------------------------------------------------------------------------------------


def marks(repository: Repository) -> str:
    mark = repository.root.parent / "ran"
    return mark.read_text() if mark.exists() else ""


def sign(repository: Repository) -> None:
    """Make a commit that git would have a program look at, if it showed signatures."""
    said = repository.git("cat-file", "commit", "HEAD")
    head, _, message = said.partition("\n\n")
    mark = "-----{} PGP SIGNATURE-----"
    signed = f"{head}\ngpgsig {mark.format('BEGIN')}\n \n {mark.format('END')}\n\n{message}\n"
    name = repository.git("hash-object", "-t", "commit", "-w", "--stdin", stdin=signed.encode())
    repository.git("update-ref", "--no-deref", "HEAD", name)


def test_a_hostile_configuration_runs_nothing(tmp_path: Path) -> None:
    repository = messy(tmp_path, hostile=False)
    sign(repository)
    nested = Repository(repository.root / "nested")
    nested.commit("Theirs too", files={".gitattributes": "*.nested filter=inner\n", "y.nested": "one\n"})
    repository.git("add", "--", "nested")  # as a submodule, which git would look into
    nested.git("config", "filter.inner.clean", str(tmp_path / "program.sh"))
    nested.write({"y.nested": "two\n"})
    head = repository.git("rev-parse", "HEAD")
    arm(repository, tmp_path / "ran")
    cache = tmp_path / "cache"  # there git may write an index, and would call a hook for that
    cache.mkdir()
    kept = Kept(repository.root, cache)
    kept.look()
    (repository.root / "x.filtered").write_text("three\n")
    os.utime(repository.root / "settings.py")
    kept.look()
    assert ("x.filtered", "modified") in of(kept.facts, "changed")
    assert of(kept.facts, "head") == {(head,)}
    assert marks(repository) == ""
    assert not (repository.root / "hit").exists()
    # The trap works: git as everybody calls it walks into it.
    subprocess.run(["git", "status"], cwd=repository.root, capture_output=True, check=False, timeout=60)
    assert marks(repository) != ""


def test_the_environment_says_nothing_to_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository = layered(tmp_path / "pricing")
    other = layered(tmp_path / "other")
    other.commit("One more", files={"more.py": ""})
    monkeypatch.setenv("GIT_DIR", str(other.root / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other.root / ".git" / "index"))
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", "/bin/false")
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "core.worktree")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", str(other.root))
    facts = scanned(repository.root)
    assert of(facts, "head") == {(repository.commits[-1],)}
    assert "more.py" not in {fact[0] for fact in of(facts, "file")}


def test_a_work_tree_that_the_configuration_puts_elsewhere_is_not_looked_at(tmp_path: Path) -> None:
    repository = layered(tmp_path / "pricing")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "theirs.py").write_text("")
    repository.git("config", "core.worktree", str(tmp_path / "elsewhere"))
    facts = scanned(repository.root)
    assert not of(facts, "changed")
    assert ("pricing/tax.py",) in {fact[:1] for fact in of(facts, "file")}


def test_the_repository_stays_as_it_is(tmp_path: Path) -> None:
    repository = messy(tmp_path, hostile=False)
    os.utime(repository.root / "settings.py")  # git would note that in its index

    def state() -> dict[str, tuple[int, int, int]]:
        paths = [*repository.root.rglob("*"), repository.root]
        return {
            str(path): (status.st_mtime_ns, status.st_size, status.st_ino)
            for path in paths
            for status in [path.lstat()]
        }

    before = state()
    scanned(repository.root)
    assert state() == before


@pytest.mark.parametrize("missing", ["no repository", "no git"])
def test_without_git_it_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    repository = layered(tmp_path / "pricing")
    if missing == "no git":
        monkeypatch.setenv("PATH", str(tmp_path))
    else:
        shutil.rmtree(repository.root / ".git")
    with pytest.raises(GitError, match="no program 'git'" if missing == "no git" else "has .git in it"):
        Git(repository.root)


def test_a_configuration_that_git_cannot_read(tmp_path: Path) -> None:
    repository = layered(tmp_path / "pricing")
    (repository.root / ".git" / "config").write_text("[core\n")
    with pytest.raises(GitError, match="git config failed"):
        Git(repository.root)


def test_a_repository_around_the_root_is_not_meant(tmp_path: Path) -> None:
    around = layered(tmp_path / "around")
    (around.root / "inner" / ".git").mkdir(parents=True)
    with pytest.raises(GitError, match="is the repository readable"):
        scanned(around.root / "inner")


def test_before_the_first_commit(tmp_path: Path) -> None:
    root = tmp_path / "new"
    root.mkdir()
    Repository(root).git("init", "--quiet", "--initial-branch=trunk")
    (root / "a.py").write_text("import os\n")
    facts = scanned(root)
    assert of(facts, "current_branch") == of(facts, "default_branch") == {("trunk",)}
    assert of(facts, "changed") == {("a.py", "untracked")}
    assert not of(facts, "head", "churn", "last_change")


def test_a_shallow_clone_knows_less_and_says_nothing_wrong(tmp_path: Path) -> None:
    repository = layered(tmp_path / "pricing")
    Repository(tmp_path).git("clone", "--quiet", "--depth=2", repository.root.as_uri(), "clone")
    facts = scanned(tmp_path / "clone")
    # The older one of the two seems to have made every file. It has not.
    assert of(facts, "churn") == {("pricing/legacy.py", 1)}
    assert of(facts, "default_branch") == {("main",)}
