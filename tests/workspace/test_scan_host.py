"""The scan as the pack has it: in a host that is locked in, kept up to date, and confined to the root."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from manglecp.intent import Domain
from manglecp.pack import PackError, SandboxPolicy, read_pack
from manglecp.toolhost import FactGenerators, PassProgress, serve_facts
from tests.toolhost.sandbox.confined import require
from tests.workspace.repositories import Repository, layered, messy
from tests.workspace.scans import scanned

PACK = Path(__file__).parents[2] / "examples" / "workspace"

pytestmark = pytest.mark.no_cover


def part_of_the_pack(folder: Path) -> Path:
    """What the scan consists of: the rules that use its facts, and the actions, have tests of their own."""
    if not folder.exists():
        for name in ("repository", "rules/schema"):
            shutil.copytree(PACK / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("facts.py", "pack.toml"):
            shutil.copy(PACK / name, folder / name)
    return folder


@contextmanager
def serving(
    root: Path,
    cache: Path | None = None,
    programs: Sequence[str] = ("git",),
    told: Callable[[PassProgress], None] | None = None,
    **settings: str,
) -> Iterator[tuple[FactGenerators, Domain]]:
    # Where a mechanism of the sandbox is missing the others have to do.
    given = {"root": str(root), "protected": "", **settings}
    pack = read_pack(part_of_the_pack(root.parent / "workspace"), given, sandbox=SandboxPolicy(degrade=True))
    with serve_facts(
        pack, cache=cache or False, programs=programs, sandbox=SandboxPolicy(degrade=True), on_progress=told
    ) as generated:
        assert generated is not None
        yield generated, Domain.load(pack, generated=generated)


def query(domain: Domain, text: str) -> list[str]:
    return domain.base.evaluate([], now=0).query(text)


@pytest.mark.parametrize("make", [layered, messy])
def test_the_pack_knows_what_a_scan_tells(tmp_path: Path, make: Callable[[Path], Repository]) -> None:
    root = make(tmp_path / "repository").root
    told = Counter(str(fact[0]) for fact in scanned(root))
    with serving(root) as (_, domain):
        result = domain.base.evaluate([], now=0)
        assert {predicate: len(result.facts(predicate)) for predicate in told} == told
    assert not (tmp_path / "repository" / "ran").exists()


def test_an_edit_is_known_after_the_next_pass(tmp_path: Path) -> None:
    repository = layered(tmp_path / "pricing")
    with serving(repository.root) as (generated, domain):
        assert query(domain, "changed(Path, How)") == []
        repository.write({"pricing/tax.py": "from pricing import api\n"})
        looked = generated.run_pass("scan")
        domain = domain.with_facts(looked.added, looked.removed, looked.version)
        generated.commit(looked)
        assert query(domain, "changed(Path, How)") == ['changed("pricing/tax.py","modified")']
        assert query(domain, 'imports_file("pricing/tax.py", File)') == [
            'imports_file("pricing/tax.py","pricing/api.py")',
        ]
        assert query(domain, 'tests_symbol(Test, "pricing/tax.py", Name)') == []
        again = generated.run_pass("scan")
        assert (len(again.added), len(again.removed)) == (0, 0)


def test_times_can_be_compared_by_rules(tmp_path: Path) -> None:
    with serving(layered(tmp_path / "pricing").root) as (_, domain):
        (line,) = query(domain, 'last_change("pricing/money.py", Time, Commit)')
        assert "2026-01-04T00:00:00" in line


def test_what_was_found_out_is_kept_for_the_next_host(tmp_path: Path) -> None:
    repository = layered(tmp_path / "pricing")
    cache = tmp_path / "cache"
    cache.mkdir()
    commits: list[int | None] = []

    def told(looking: PassProgress) -> None:
        if looking.what == "commits":
            commits.append(looking.total)

    for _ in range(2):
        with serving(repository.root, cache, told=told):
            pass
    assert commits == [len(repository.commits)]
    assert [path.name for path in cache.rglob("*.sqlite")] == ["scan.sqlite"]


def test_a_history_that_lies_elsewhere_is_opened_if_a_person_names_it(tmp_path: Path) -> None:
    require("strict")
    repository = layered(tmp_path / "pricing")
    linked = tmp_path / "linked"
    repository.git("worktree", "add", "--quiet", "--detach", str(linked))
    next_step = f"with --set git_dir={repository.root}/.git, or name the main work tree"
    with pytest.raises(PackError, match=re.escape(next_step)), serving(linked):
        pass
    with pytest.raises(PackError, match="git_dir is not the folder"), serving(linked, git_dir=str(tmp_path)):
        pass
    with serving(linked, git_dir=str(repository.root / ".git")) as (_, domain):
        assert query(domain, "head(Commit)") == [f'head("{repository.commits[-1]}")']


def test_without_the_program_it_says_what_to_allow(tmp_path: Path) -> None:
    root = layered(tmp_path / "pricing").root
    with pytest.raises(PackError, match="--program git"), serving(root, programs=()):
        pass
