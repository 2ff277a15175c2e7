"""Pass after pass: only what is different is told, and what is known is always what a fresh scan would say."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
from pathlib import Path

import pytest

from examples.workspace.repository.scan.analysis import Analysis, analyse
from examples.workspace.repository.scan.file_reader import Stamp
from tests.workspace.repositories import Repository, layered
from tests.workspace.scans import Kept, of, scanned


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return layered(tmp_path / "pricing")


def older(path: Path) -> None:
    """As if the file had been written long ago."""
    os.utime(path, ns=(10**18, 10**18))


def test_nothing_changed_nothing_told(repository: Repository) -> None:
    kept = Kept(repository.root)
    assert kept.look()
    assert kept.look() == set()


def test_an_edit_tells_of_that_file_alone(repository: Repository) -> None:
    kept = Kept(repository.root)
    kept.look()
    tax = repository.root / "pricing/tax.py"
    tax.write_text(tax.read_text() + "\n\ndef refund(paid: Money) -> Money:\n    return paid\n")
    # A test that names something of the file could mean something else now, but does not.
    assert kept.look() == {"tree", "symbols", "file pricing/tax.py"}
    assert ("pricing/tax.py", "refund", "function", 16, 17) in of(kept.facts, "symbol")
    assert ("pricing/tax.py", "modified") in of(kept.facts, "changed")


def test_definitions_that_differ_from_the_last_commit(repository: Repository) -> None:
    kept = Kept(repository.root)

    def differing() -> set[tuple[object, ...]]:
        kept.look()
        return of(kept.facts, "changed_symbol")

    assert differing() == set()
    basket = (repository.root / "pricing/basket.py").read_text()
    repository.write({"pricing/basket.py": "# moved\r\n" + basket.replace("append((kind", "append((kind.lower()")})
    assert differing() == {("pricing/basket.py", "Basket"), ("pricing/basket.py", "Basket.add")}
    repository.git("mv", "pricing/legacy.py", "pricing/older.py")
    repository.git("rm", "--quiet", "pricing/api.py")
    repository.write({"pricing/tax.py": "def rate(kind):\n    return 1\n", "pricing/fresh.py": "x = 1\n"})
    assert {fact for fact in differing() if fact[0] != "pricing/basket.py"} == {
        ("pricing/api.py", "quote"),
        ("pricing/tax.py", "RATES"),
        ("pricing/tax.py", "rate"),
        ("pricing/tax.py", "tax"),
    }
    repository.write({"pricing/basket.py": basket.replace("\n", "\r\n")})
    for _ in range(2):
        assert not {fact for fact in differing() if fact[0] == "pricing/basket.py"}
    repository.commit("All of it")
    assert differing() == set()


def test_an_edit_in_the_same_moment_is_seen(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    def coarse(status: os.stat_result) -> Stamp:
        """The clock of the files has not moved."""
        return Stamp(0, 0, 0, status.st_size, 0)

    for module in ("files", "file_reader"):
        monkeypatch.setattr(f"examples.workspace.repository.scan.{module}.stamp", coarse)
    kept = Kept(repository.root)
    for text in ("a = 1\n", "b = 1\n", "c = 1\n"):
        repository.write({"pricing/tax.py": text})
        kept.look()
        assert {fact[1] for fact in of(kept.facts, "symbol") if fact[0] == "pricing/tax.py"} == {text[0]}


def test_a_definition_that_moves_changes_what_tests_name(repository: Repository) -> None:
    kept = Kept(repository.root)
    kept.look()
    repository.write(
        {
            "pricing/rates.py": "def rate(kind: str) -> int:\n    return 19\n",
            "pricing/tax.py": "from pricing.rates import rate\n\n\ndef tax(net, kind):\n    return net\n",
        }
    )
    kept.look()
    other = "tests/test_tax.py::test_what_is_not_known_is_other"
    assert {fact[1:] for fact in of(kept.facts, "tests_symbol") if fact[0] == other} == {("pricing/rates.py", "rate")}
    stars = {"pricing/tax.py": "from pricing.all_rates import *\n", "pricing/all_rates.py": "from .rates import *\n"}
    repository.write(stars)
    kept.look()
    assert {fact[1:] for fact in of(kept.facts, "tests_symbol") if fact[0] == other} == {("pricing/rates.py", "rate")}
    repository.write({"pricing/rates.py": "rates = {}\n"})  # the file of the test is the same all the time
    kept.look()
    assert not {fact for fact in of(kept.facts, "tests_symbol") if fact[0] == other}


def test_a_new_file_can_change_what_an_import_means(repository: Repository) -> None:
    repository.write({"use.py": "from pricing import extra\n"})
    kept = Kept(repository.root)
    kept.look()
    assert ("use.py", "pricing/__init__.py") in of(kept.facts, "imports_file")
    repository.write({"pricing/extra.py": ""})
    kept.look()
    assert {target for path, target in of(kept.facts, "imports_file") if path == "use.py"} == {"pricing/extra.py"}


def test_what_is_configured_counts_at_once(repository: Repository) -> None:
    kept = Kept(repository.root)
    kept.look()
    said = "[pytest]\npython_files = check_*.py\n"
    for name, ini, tests in (
        ("pytest.ini", "[pytest]\n", 8),
        ("pytest.ini", said, 0),
        ("pytest.ini", "[pytest]\n# \n", 8),
    ):
        repository.write({name: ini})
        kept.look()
        assert len(of(kept.facts, "test")) == tests


def test_a_commit_counts_once(repository: Repository) -> None:
    kept = Kept(repository.root)
    kept.look()
    repository.commit("Again", files={"pricing/tax.py": "# new\n"})
    came = kept.look()
    assert "past pricing/tax.py" in came
    assert "past pricing/money.py" not in came
    assert ("pricing/tax.py", 2) in of(kept.facts, "churn")
    assert ("pricing/tax.py", 2) in of(kept.facts, "authors")
    repository.commit("And again", "Ben <BEN@example.ORG>", {"pricing/tax.py": "# newer\n"})
    kept.look()
    assert ("pricing/tax.py", 3) in of(kept.facts, "churn")
    assert ("pricing/tax.py", 2) in of(kept.facts, "authors")  # whose address is the same but for its letters


def test_renames_are_followed_whatever_is_configured(repository: Repository) -> None:
    repository.git("config", "diff.renames", "false")
    assert ("pricing/legacy.py", 2) in of(scanned(repository.root), "churn")


def test_another_branch_has_another_history(repository: Repository) -> None:
    kept = Kept(repository.root)
    kept.look()
    first = kept.facts
    repository.git("checkout", "--quiet", "-b", "old", repository.commits[1])
    kept.look()
    assert of(kept.facts, "churn") == {(name, 1) for name in repository.git("ls-files").splitlines()}
    assert of(kept.facts, "current_branch") == {("old",)}
    repository.git("checkout", "--quiet", "main")
    kept.look()
    assert kept.facts == first


def test_attributes_and_owners_of_a_new_file(repository: Repository) -> None:
    repository.write({".gitattributes": "made/** linguist-generated\n"})
    kept = Kept(repository.root)
    kept.look()
    assert not of(kept.facts, "generated")
    repository.write({"made/a.py": ""})
    kept.look()
    assert of(kept.facts, "generated") == {("made/a.py", "attribute")}
    assert ("made/a.py", "@shop/core") in of(kept.facts, "owner")
    (repository.root / "made/a.py").unlink()
    kept.look()
    assert not of(kept.facts, "generated")
    assert ("made/a.py", "@shop/core") not in of(kept.facts, "owner")


def test_a_merge_that_is_under_way(repository: Repository) -> None:
    repository.git("checkout", "--quiet", "-b", "other")
    repository.commit("Theirs", files={"pricing/tax.py": "theirs = 1\n"})
    repository.git("checkout", "--quiet", "main")
    repository.commit("Ours", files={"pricing/tax.py": "ours = 1\n"})
    with pytest.raises(AssertionError):
        repository.merge("other", "Both")
    facts = scanned(repository.root)
    assert of(facts, "under_way") == {("merge",)}
    assert of(facts, "changed") == {("pricing/tax.py", "conflicted")}
    assert ("pricing/tax.py", "syntax error") in of(facts, "unreadable")


@pytest.mark.parametrize("seed", range(4))
def test_what_is_known_is_what_a_fresh_scan_says(repository: Repository, tmp_path: Path, seed: int) -> None:
    rnd = random.Random(seed)
    root = repository.root
    cache = tmp_path / "cache"
    cache.mkdir()
    kept = Kept(root, cache)
    kept.look()
    for step in range(12):
        _disturb(repository, rnd, step)
        if rnd.random() < 0.7:
            kept.look()
    kept.look()
    assert kept.facts == scanned(root)
    assert kept.facts == scanned(root, cache)
    kept.close()


def _disturb(repository: Repository, rnd: random.Random, step: int) -> None:
    root = repository.root
    names = [
        name for name in repository.git("ls-files", "-co", "--exclude-standard").splitlines() if (root / name).is_file()
    ]
    name = rnd.choice(names)
    python = [each for each in names if each.endswith(".py")]
    match rnd.choice(["edit", "edit", "add", "remove", "move", "commit", "stage", "link", "owners", "branch", "break"]):
        case "edit":
            imported = rnd.choice(python)[:-3].replace("/", ".")
            (root / name).write_text(f"from {imported} import x{step}\n\n\ndef test_{step}():\n    x{step}()\n")
        case "add":
            repository.write(
                {f"tests/test_new{step}.py": f"import pricing.tax\n\n\ndef test_{step}():\n    pricing.tax.tax()\n"}
            )
        case "remove" if len(names) > 5:
            (root / name).unlink()
        case "move":
            (root / name).rename(root / f"pricing/moved{step}.py")
        case "commit":
            repository.commit(f"Step {step}", rnd.choice(["A <a@example.org>", "B <b@example.org>"]))
        case "stage":
            repository.git("add", "--all")
        case "link":
            (root / f"link{step}.py").symlink_to(rnd.choice([name, "../outside", "/etc/hostname"]))
        case "owners":
            repository.write({"CODEOWNERS": f"*.py @team{step}\n", ".gitattributes": "tests/** linguist-generated\n"})
        case "branch":
            repository.commit(f"Before {step}")
            repository.git("checkout", "--quiet", "-B", f"branch{step}", rnd.choice(repository.commits[4:]))
        case "break":
            (root / name).write_bytes(rnd.choice([b"\0", b"\xff", b"def f(:\n", b""]))


# --- the cache --------------------------------------------------------------------------------------------------------


@pytest.fixture
def analysed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry for each content that is analysed."""
    sizes: list[int] = []

    def counted(data: bytes, language: str) -> Analysis:
        sizes.append(len(data))
        return analyse(data, language)

    monkeypatch.setattr("examples.workspace.repository.scan.files.analyse", counted)
    return sizes


def test_a_content_is_analysed_once(repository: Repository, tmp_path: Path, analysed: list[int]) -> None:
    first = scanned(repository.root, tmp_path)
    count = len(analysed)
    assert count
    assert scanned(repository.root, tmp_path) == first
    (repository.root / "pricing/copy.py").write_bytes((repository.root / "pricing/tax.py").read_bytes())
    older(repository.root / "pricing/money.py")
    assert ("pricing/copy.py", "tax", "function", 12, 13) in of(scanned(repository.root, tmp_path), "symbol")
    assert len(analysed) == count  # neither a copy nor another time is another content
    (repository.root / "pricing/copy.py").write_text("x = 1\n")
    scanned(repository.root, tmp_path)
    assert len(analysed) == count + 1


def test_commits_are_asked_for_once(repository: Repository, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()

    def asked() -> int:
        kept = Kept(repository.root, cache)
        kept.look()
        kept.close()
        return sum(told.total for told in kept.progress if told.what == "commits" and told.done == 0)

    assert asked() == len(repository.commits)
    assert asked() == 0
    repository.commit("Again")
    assert asked() == 1


@pytest.mark.parametrize("damage", ["garbage", "tables", "rows", "folder", "version"])
def test_a_damaged_cache_is_no_cache(repository: Repository, tmp_path: Path, damage: str) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    first = scanned(repository.root, cache)
    file = cache / "scan.sqlite"
    if damage == "garbage":
        file.write_bytes(b"\x80\x04}." * 1_000)
    elif damage == "folder":
        file.unlink()
        file.mkdir()
    else:
        connection = sqlite3.connect(file)
        if damage == "tables":
            connection.executescript("DROP TABLE seen; CREATE TABLE seen (x)")
        elif damage == "rows":
            connection.executescript(
                "UPDATE analysis SET found = '[1]'; UPDATE made SET what = X'00'; UPDATE seen SET what = 7"
            )
        else:
            connection.executescript("PRAGMA user_version = 999; UPDATE analysis SET found = CAST('[\"\"]' AS BLOB)")
        connection.commit()
        connection.close()
    assert scanned(repository.root, cache) == first
    assert scanned(repository.root, cache) == first
    if damage in ("garbage", "version"):  # it was begun anew
        connection = sqlite3.connect(file)
        assert connection.execute("SELECT count(*) FROM made").fetchone() == (len(repository.commits),)
        connection.close()


def test_what_no_file_holds_any_more_is_forgotten(repository: Repository, tmp_path: Path) -> None:
    def size() -> int:
        connection = sqlite3.connect(tmp_path / "scan.sqlite")
        (count,) = connection.execute("SELECT count(*) FROM analysis").fetchone()
        connection.close()
        return int(count)

    scanned(repository.root, tmp_path)
    before = size()
    for number in range(3):
        (repository.root / "pricing/tax.py").write_text(f"x = {number}\n")
        scanned(repository.root, tmp_path)
    assert size() == before


def test_git_does_not_read_a_copied_repository_again_and_again(repository: Repository, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(repository.root, copy)  # every file looks changed to the index
    index = (copy / ".git" / "index").read_bytes()
    cache = tmp_path / "cache"
    cache.mkdir()
    kept = Kept(copy, cache)
    kept.look()
    (own,) = cache.glob("index.*")
    # What git noted there: nothing is left to be looked at, unlike in the index of the copy.
    stale = Repository(copy)
    assert stale.git("diff-files", "--name-only") != ""
    assert stale.git("diff-files", "--name-only", env={"GIT_INDEX_FILE": str(own)}) == ""
    assert (copy / ".git" / "index").read_bytes() == index
    # And what others do to the index is seen.
    (copy / "pricing" / "tax.py").write_text("x = 1\n")
    stale.git("add", "--", "pricing/tax.py")
    kept.look()
    assert of(kept.facts, "staged") == {("pricing/tax.py",)}
    kept.close()
    assert not own.exists()


def test_progress_is_told(repository: Repository) -> None:
    repository.write({f"many/m{number}.py": f"x = {number}\n" for number in range(120)})
    kept = Kept(repository.root)
    kept.look()
    done = [told.done for told in kept.progress if told.what == "files"]
    assert done == [0, 50, 100]
    assert {told.total for told in kept.progress if told.what == "files"} == {120 + 17}
