"""Every policy of the workspace, and somebody who tries to get around it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from manglecp.testing import Pack, Refused
from tests.workspace.governed import edit, governed, read_first
from tests.workspace.messy import AWS_KEY, GITHUB_TOKEN, PASSWORD
from tests.workspace.repositories import Repository, layered, messy

pytestmark = pytest.mark.no_cover


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    return layered(tmp_path_factory.mktemp("layered") / "repository")


@pytest.fixture(scope="module")
def pack(repository: Repository) -> Iterator[Pack]:
    with governed(repository.root, area="pricing/ tests/") as pack:
        yield pack


@pytest.fixture(scope="module")
def untidy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pack]:
    repository = messy(tmp_path_factory.mktemp("messy") / "repository")
    repository.write({".env": "LIGHTHOUSE=by the sea\n", "deploy/prod.env": "LIGHTHOUSE=by the sea\n"})
    with governed(repository.root) as pack:
        yield pack


def wanting(pack: Pack, *paths: str) -> list[str]:
    return pack.intent("change", facts=[{"pred": "to_change", "args": [path]} for path in paths]).names


# --- nothing outside the root ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        "../out.py",
        "a/../../out.py",
        "/etc/passwd",
        "~/x",
        "./a.py",
        "a//b.py",
        "a/./b.py",
        "a\\b.py",
        "a/",
        " a",
        "-rf",
    ],
)
@pytest.mark.parametrize("predicate", ["to_change", "applied", "failed_at", "raised_at"])
def test_a_path_has_one_way_to_be_written(pack: Pack, path: str, predicate: str) -> None:
    args = {"to_change": [path], "applied": ["r-1", path], "failed_at": [path, 1], "raised_at": [path, 1]}[predicate]
    intent = {"to_change": "change", "applied": "undo"}.get(predicate, "diagnose_failure")
    with pytest.raises(Refused, match="a path"):
        pack.intent(intent, facts=[{"pred": predicate, "args": args}])


def test_nobody_widens_a_tool_by_its_arguments(pack: Pack, repository: Repository) -> None:
    answer = pack.intent("change", facts=['to_change("pricing/tax.py")'])
    tool = answer.tool("safe_change")
    assert list(tool.args) == ["edits"]
    for path in ("pricing/money.py", "uv.lock", ".git/config", "../out.py", "/etc/passwd"):
        run = answer.invoke("safe_change", {"edits": [edit(path, "", "x")]}, confirm=True)
        assert [one["path"] for one in run.result["problems"]] == [path]
        assert [call.action for call in run.calls] == ["make_patch"]
    with pytest.raises(Refused, match="schema_validation_failed"):
        answer.invoke("safe_change", {"edits": [edit("pricing/tax.py", "a", "b")], "only": ["uv.lock"]}, confirm=True)
    assert repository.git("status", "--porcelain") == ""


# --- no edits to protected paths -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        *("uv.lock", "deep/er/other.lock", ".github/CODEOWNERS", ".git/hooks/pre-commit", ".env", "sub/.env.local"),
        *("a.pem", ".GitHub/workflows/ci.yml", "UV.LOCK", "sub/.ENV", "new/package-lock.json"),
    ],
)
def test_protected_paths_have_no_tool_that_writes(pack: Pack, path: str) -> None:
    assert not {"safe_change", "propose_change"} & set(wanting(pack, path))
    assert not {"safe_change", "propose_change"} & set(wanting(pack, "pricing/tax.py", path))


def test_a_link_is_no_way_around(untidy: Pack) -> None:
    links = [str(row[0]) for row in untidy.domain.base.layer.facts[untidy.domain.base.compiled.ids[("link", 2)]].facts]
    assert links
    for link in [*links, "out.py", "absolute.py"]:
        assert "safe_change" not in wanting(untidy, link)


def test_another_repository_in_this_one_is_left_alone(untidy: Pack) -> None:
    untidy.intent("change", facts=['to_change("nested/new.py")']).lacks("safe_change", because="nested repository")
    assert "safe_change" in wanting(untidy, "nested.py")


def test_what_is_protected_is_for_the_one_who_serves_to_say(tmp_path: Path) -> None:
    root = layered(tmp_path / "repository").root
    with governed(root, protected="pricing/ *.md") as pack:
        assert "safe_change" not in wanting(pack, "pricing/tax.py")
        assert "safe_change" not in wanting(pack, "README.md")
        assert "safe_change" in wanting(pack, "tests/test_tax.py")


# --- consent ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "asks"),
    [("pricing/tax.py", False), ("setup.cfg", True), ("other/tax.py", True), ("tests/test_tax.py", False)],
)
def test_who_has_to_be_asked(pack: Pack, path: str, asks: bool) -> None:
    """Outside the area a person agrees first."""
    answer = pack.intent("change", facts=[f'to_change("{path}")'])
    assert answer.tool("safe_change").needs_confirmation is asks
    if asks:
        with pytest.raises(Refused, match="confirmation_required"):
            answer.invoke("safe_change", {"edits": [edit(path, "", "x")]})


def test_generated_files_are_not_changed_by_the_way(untidy: Pack) -> None:
    answer = untidy.intent("change", facts=['to_change("src/odd/tables.py")'])
    assert answer.tool("safe_change").needs_confirmation
    assert "is a generated file" in answer.tool("safe_change").instructions


# --- no commit on the default branch ---------------------------------------------------------------------------------


def test_nothing_is_committed_to_the_default_branch(tmp_path: Path) -> None:
    repository = layered(tmp_path / "repository")
    (repository.root / "README.md").write_text("# other\n")
    with governed(repository.root, protected_branches="stable") as pack:
        pack.intent("review", facts=['commit_to("main")']).lacks("commit_changes", because="the default branch")
        for branch in ("stable", "refs/heads/main", "heads/main", "-main", "main~0", "@", "HEAD"):
            answer = pack.intent("review", facts=[{"pred": "commit_to", "args": [branch]}])
            if "commit_changes" not in answer:
                continue
            run = answer.invoke("commit_changes", {"message": "no"}, confirm=True)
            assert (run.result["commit"], run.result["problem"] != "") == ("", True)
            assert "Nothing was committed" in run.summary
        with pytest.raises(Refused, match="schema_validation_failed"):
            pack.intent("review", facts=['commit_to("mine")']).invoke(
                "commit_changes", {"message": "no", "branch": "main"}, confirm=True
            )
        assert repository.git("rev-parse", "main") == repository.commits[-1]
        assert repository.git("for-each-ref", "--format=%(refname)") == "refs/heads/main"


# --- secrets never leave ---------------------------------------------------------------------------------------------


def test_secrets_never_leave(untidy: Pack) -> None:
    answer = untidy.intent("explore", facts=['topic("settings")'])
    told = [
        answer.invoke("read_lines", {"path": "settings.py"}).result,
        answer.invoke("find_text", {"text": "PASSWORD"}).result,
        answer.invoke("find_text", {"text": "A", "regex": False, "glob": "settings.py"}).result,
        untidy.intent("review").invoke("show_changes").result,
    ]
    told += [answer.invoke("read_lines", {"path": path}).result for path in (".env", "deploy/prod.env")]
    told += [answer.invoke("find_text", {"text": "LIGHTHOUSE"}).result]
    for secret in (AWS_KEY, GITHUB_TOKEN, PASSWORD, "by the sea"):
        assert secret not in str(told)
    assert "settings.py" in str(told)
    named = untidy.intent("explore", facts=['topic("prod")', 'topic("settings")'])
    assert not {"settings.py", "deploy/prod.env"} & set(read_first(named, "find_text"))


@pytest.mark.parametrize("path", ["settings.py", ".env", "deploy/prod.env"])
def test_a_file_with_secrets_is_for_a_person(untidy: Pack, path: str) -> None:
    assert not {"safe_change", "propose_change"} & set(wanting(untidy, path))
    review = untidy.intent("review", facts=['commit_to("mine")', {"pred": "to_commit", "args": [path]}])
    assert "commit_changes" not in review


# --- network never, nobody without a name ----------------------------------------------------------------------------


def test_no_tool_has_the_network(pack: Pack) -> None:
    assert not [name for name, action in pack.domain.pack.actions.items() if "network" in action.effects]


def test_tests_that_call_out_do_not_get_through(tmp_path: Path) -> None:
    repository = layered(tmp_path / "repository")
    calling = 'import socket\n\n\ndef test_out() -> None:\n    socket.create_connection(("127.0.0.1", 9), timeout=2)\n'
    repository.write({"tests/test_out.py": calling})
    with governed(repository.root) as pack:
        answer = pack.intent("diagnose_failure", facts=['failing_test("tests/test_out.py")'])
        result = answer.invoke("run_failing_tests").result
        assert result["failed"] == ["tests/test_out.py::test_out"]
        said = str(result["failures"])
        assert "Permission" in said or "not permitted" in said or "unreachable" in said


def test_nobody_in_particular_changes_nothing(pack: Pack) -> None:
    nobody = pack.as_caller("anonymous")
    for intent, fact in (("change", 'to_change("pricing/tax.py")'), ("undo", 'applied("r-1", "pricing/tax.py")')):
        with pytest.raises(Refused, match="anonymous clients"):
            nobody.intent(intent, facts=[fact])
    assert "read_lines" in nobody.intent("explore")
    review = nobody.intent("review", facts=['commit_to("mine")'])
    assert "commit_changes" not in review


# --- undo ------------------------------------------------------------------------------------------------------------


def test_what_nobody_keeps_any_more_is_not_undone_and_says_what_to_do(pack: Pack, repository: Repository) -> None:
    answer = pack.intent("undo", facts=['applied("r-forgotten", "pricing/tax.py")'])
    with pytest.raises(Refused, match=r"keeps no 'backup' for you \(any more\): check the run's id, or do by hand"):
        answer.invoke("undo_change")
    assert repository.git("status", "--porcelain") == ""
