"""Which tools and which files the rules find for a question, a failure, a change and a review."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from manglecp.testing import Pack
from tests.workspace.governed import PACK, governed, read_first
from tests.workspace.repositories import Repository, break_tax, layered, messy

pytestmark = pytest.mark.no_cover
FAILING = 'failing_test("tests/test_basket.py::TestBasket::test_total_has_the_tax")'


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    return layered(tmp_path_factory.mktemp("layered") / "repository")


@pytest.fixture(scope="module")
def pack(repository: Repository) -> Iterator[Pack]:
    with governed(repository.root) as pack:
        yield pack


def test_the_pack_has_nothing_to_complain_about(pack: Pack) -> None:
    assert pack.domain.warnings == ()


# --- explore ---------------------------------------------------------------------------------------------------------


def test_words_of_a_question_lead_to_files_with_reasons(pack: Pack) -> None:
    answer = pack.intent("explore", facts=['topic("tax")'])
    answer.offers_only("find_text", "read_lines", "outline_file")
    assert read_first(answer, "find_text")[:2] == ["pricing/tax.py", "tests/test_tax.py"]
    assert answer.tool("find_text").resources[0].relevance == "defines the function tax"


def test_words_that_fit_nothing_name_nothing(pack: Pack) -> None:
    answer = pack.intent("explore", facts=['topic("nowhere to be found")', 'topic("tax")'])
    assert "No name or path has nowhere to be found in it" in answer.tool("find_text").instructions
    assert "has tax in it" not in answer.tool("find_text").instructions
    assert read_first(pack.intent("explore", facts=['topic("nowhere to be found")']), "find_text") == []


@pytest.mark.parametrize(
    ("word", "file", "why"),
    [
        ("money", "pricing/money.py", "defines the class Money"),
        ("BASKET", "pricing/basket.py", "defines the class Basket"),
        ("readme", "README.md", "has readme in its name"),
        ("rates", "pricing/tax.py", "defines the variable RATES"),
    ],
)
def test_words_are_found_in_capitals_and_in_small_letters(pack: Pack, word: str, file: str, why: str) -> None:
    resources = pack.intent("explore", facts=[f'topic("{word}")']).tool("find_text").resources
    assert (resources[0].uri, resources[0].relevance) == (f"file://{file}", why)


def test_where_there_are_many_files_ripgrep_is_asked(repository: Repository, pack: Pack) -> None:
    """It is not in the hosts of this test: what is found is the same."""
    few = pack.intent("explore").invoke("find_text", {"text": "def "})
    assert [call.action for call in few.calls] == ["search_text"]
    with governed(repository.root, many="10") as large:
        many = large.intent("explore").invoke("find_text", {"text": "def "})
        assert [call.action for call in many.calls] == ["search"]
        assert many.result == few.result
        assert large.intent("explore").invoke("find_text", {"text": "(", "regex": True}).result["problem"]


def test_a_diff_of_somebody_is_tried_and_changes_nothing(repository: Repository, pack: Pack) -> None:
    answer = pack.intent("change", facts=['to_change("README.md")'])
    patch = "--- a/README.md\n+++ b/README.md\n@@ -1 +1 @@\n-# pricing\n+# prices\n"
    checked = answer.invoke("try_patch", {"patch": patch}).result
    assert (checked["applies"], [one["path"] for one in checked["files"]]) == (True, ["README.md"])
    assert not answer.invoke("try_patch", {"patch": patch.replace("# pricing", "# other")}).result["applies"]
    assert repository.git("status", "--porcelain") == ""


# --- diagnose_failure ------------------------------------------------------------------------------------------------


def test_a_commit_that_broke_a_test_is_found(tmp_path: Path) -> None:
    repository = layered(tmp_path / "repository")
    break_tax(repository)
    with governed(repository.root) as pack:
        answer = pack.intent("diagnose_failure", facts=[FAILING])
        answer.offers("run_failing_tests", "read_lines")
        assert "pricing/tax.py" in read_first(answer, "run_failing_tests")[:3]
        run = answer.invoke("run_failing_tests")
        assert run.result["failed"] == ["tests/test_basket.py::TestBasket::test_total_has_the_tax"]
        assert run.delta.asserts("failing_test", "tests/test_basket.py::TestBasket::test_total_has_the_tax")


def test_a_commit_of_some_time_ago_is_found(tmp_path: Path) -> None:
    """Others have worked on other things since, also on what the test rests on."""
    repository = layered(tmp_path / "repository")
    break_tax(repository)
    for name in ("pricing/api.py", "README.md", "pricing/money.py"):
        file = repository.root / name
        repository.commit(f"Say more in {name}", files={name: f"{file.read_text()}\n# more\n"})
    with governed(repository.root) as pack:
        answer = pack.intent("diagnose_failure", facts=[FAILING])
        assert "pricing/tax.py" in read_first(answer, "run_failing_tests")[:3]


def test_where_an_error_was_raised_comes_first_once_the_test_has_run(tmp_path: Path) -> None:
    repository = layered(tmp_path / "repository")
    money = repository.root / "pricing/money.py"
    text = money.read_text().replace("self.cents + other.cents", "self.cents + other.pence")
    repository.commit("Count pence", files={"pricing/money.py": text})
    repository.commit(
        "Note it", files={"pricing/basket.py": (repository.root / "pricing/basket.py").read_text() + "#\n"}
    )
    with governed(repository.root) as pack:
        run = pack.intent("diagnose_failure", facts=[FAILING]).invoke("run_failing_tests")
        assert run.delta.asserts("failed_at", "pricing/money.py", ...)
        following = pack.intent(
            "diagnose_failure", facts=[{"pred": one["pred"], "args": one["args"]} for one in run.delta.asserted]
        )
        first = following.tool("run_failing_tests").resources[0]
        assert (first.uri, "the error was raised in line" in first.relevance) == ("file://pricing/money.py", True)


@pytest.mark.parametrize("culprit", ["pricing/money.py", "pricing/basket.py", "pricing/tax.py"])
def test_an_edit_that_is_not_committed_is_found(tmp_path: Path, culprit: str) -> None:
    repository = layered(tmp_path / "repository")
    file = repository.root / culprit
    file.write_text(file.read_text() + "\n\nraise RuntimeError\n")
    with governed(repository.root) as pack:
        answer = pack.intent("diagnose_failure", facts=['failing_test("tests/test_basket.py")'])
        assert read_first(answer, "run_failing_tests")[0] == culprit
        assert "it has changed since the last commit" in answer.tool("run_failing_tests").resources[0].relevance
        answer.offers("show_changes")


@pytest.mark.parametrize("where", ["here", "/builds/17/shop", "elsewhere"])
def test_a_traceback_leads_to_its_files(pack: Pack, repository: Repository, where: str) -> None:
    """Also if it comes from another machine, or from somebody who was in a folder of the repository."""
    test, tax = {
        "here": (f"{repository.root}/tests/test_tax.py", f"{repository.root}/pricing/tax.py"),
        "elsewhere": ("test_tax.py", "tax.py"),
    }.get(where, (f"{where}/tests/test_tax.py", f"{where}/pricing/tax.py"))
    text = (
        "Traceback (most recent call last):\n"
        f'  File "{test}", line 5, in test_rate\n    tax(1)\n'
        f'  File "{tax}", line 13, in tax\n    return net.share(rate(kind))\n'
        '  File "/usr/lib/python3.11/site-packages/pricing/money.py", line 3, in share\n    return 1\n'
        "AttributeError: 'int' object has no attribute 'share'\n"
    )
    answer = pack.intent("diagnose_failure", facts=[{"pred": "traceback", "args": [text]}])
    run = answer.invoke("read_traceback")
    assert run.delta.asserts("failed_at", "pricing/tax.py", 13)
    assert run.delta.asserts("failed_at", "tests/test_tax.py", 5)
    assert "pricing/money.py" not in str(run.delta.asserted)
    assert run.delta.retracts("traceback", None)
    following = run.follow("diagnose_failure")
    guide = next(tool for tool in following.tools if tool.resources)
    assert guide.resources[0].uri == "file://pricing/tax.py"


def test_a_case_of_a_test_is_that_test(pack: Pack) -> None:
    known = 'failing_test("tests/test_basket.py::TestBasket::test_total_has_the_tax'
    for case, there in (("", True), ("[food-7]", True), ("_and_more", False)):
        answer = pack.intent("diagnose_failure", facts=[f'{known}{case}")'])
        assert ("run_failing_tests" in answer) == there


# --- change and review -----------------------------------------------------------------------------------------------


def test_affected_tests_come_through_the_graph_of_imports(pack: Pack) -> None:
    answer = pack.intent("change", facts=['to_change("pricing/tax.py")'])
    tool = answer.tool("safe_change")
    frozen = {one.param: one.value for one in tool.definition.steps[1].arguments if one.source == "value"}
    assert frozen["tests"] == [
        f"tests/test_{name}.py" for name in ("api", "basket", "money", "tax")
    ]  # the package imports all
    assert tool.steps == ("make_patch", "run_tests", "apply_patch", "run_tests", "compare_runs", "revert_patch")
    assert read_first(answer, "safe_change")[0] == "pricing/tax.py"
    assert answer.proof("run_affected_tests").uses("affected_test")


def test_what_pytest_is_told_matters_to_all_tests(pack: Pack) -> None:
    answer = pack.intent("change", facts=['to_change("pyproject.toml")'])
    assert "Test files that will run before and after: 4." in answer.tool("safe_change").instructions


def test_what_no_test_rests_on_is_changed_without_tests(pack: Pack) -> None:
    tool = pack.intent("change", facts=['to_change("README.md")']).tool("safe_change")
    assert tool.steps == ("make_patch", "apply_patch")
    assert "No test depends on these files" in tool.instructions


def test_skills_come_with_what_they_are_about(pack: Pack) -> None:
    def skills(path: str) -> tuple[str, ...]:
        return pack.intent("change", facts=[f'to_change("{path}")']).tool("safe_change").skills

    assert skills("pricing/tax.py") == ("small-changes",)
    assert set(skills("tests/test_tax.py")) == {"small-changes", "testing-style"}
    assert set(skills("migrations/0002_more.py")) == {"small-changes", "migration-care"}


def test_owners_are_named_to_whoever_reviews(tmp_path: Path) -> None:
    repository = layered(tmp_path / "repository")
    file = repository.root / "pricing/money.py"
    file.write_text(file.read_text() + "\n")
    with governed(repository.root) as pack:
        answer = pack.intent("review")
        answer.offers("show_changes", "run_affected_tests")
        assert "pricing/money.py belongs to @shop/core" in answer.tool("show_changes").instructions
        assert read_first(answer, "show_changes")[0] == "pricing/money.py"
        assert [one["path"] for one in answer.invoke("show_changes").result["files"]] == ["pricing/money.py"]
        assert (
            answer.invoke("show_changes", {"base": "v9"}).result["problem"]
            == "there is no commit 'v9': name a branch, a tag or the beginning of a hash"
        )


def test_a_scan_goes_on_while_it_is_asked(tmp_path: Path) -> None:
    repository = layered(tmp_path / "repository")
    with governed(repository.root) as pack:
        assert "tests/test_more.py" not in read_first(pack.intent("explore", facts=['topic("more")']), "find_text")
        repository.write({"tests/test_more.py": "def test_more() -> None:\n    assert True\n"})
        answer = pack.refresh_facts().intent("explore", facts=['topic("more")'])
        assert read_first(answer, "find_text")[0] == "tests/test_more.py"


# --- other repositories ----------------------------------------------------------------------------------------------


def test_a_messy_repository_is_no_obstacle(tmp_path: Path) -> None:
    with governed(messy(tmp_path / "repository").root) as pack:
        answer = pack.intent("explore", facts=['topic("core")'])
        assert read_first(answer, "find_text")[0] == "src/odd/core.py"
        listed = pack.intent("explore", facts=['topic("settings")', 'topic("key")', 'topic("line")'])
        assert not {"settings.py", "deploy/key.pem"} & set(read_first(listed, "find_text"))


def test_this_project_is_one_more(tmp_path: Path) -> None:
    here, copy = PACK.parents[1], tmp_path / "repository"
    for part in ("src/manglecp", "tests/store"):
        shutil.copytree(here / part, copy / part, ignore=shutil.ignore_patterns("__pycache__"))
    repository = Repository(copy)
    repository.git("init", "--quiet", "--initial-branch=main")
    repository.commit("All of it")
    with governed(copy) as pack:
        answer = pack.intent("explore", facts=['topic("JoinClosed")'])
        assert read_first(answer, "find_text")[0].startswith("src/manglecp/harness/")
        tool = pack.intent("change", facts=['to_change("src/manglecp/store/seals.py")']).tool("safe_change")
        assert (tool.steps[1], tool.needs_confirmation) == ("run_tests", False)
        seals = copy / "src/manglecp/store/seals.py"
        seals.write_text(seals.read_text().replace("return sealed[1:]", "return sealed"))
        failing = ['failing_test("tests/store/test_seals.py")']
        answer = pack.refresh_facts().intent("diagnose_failure", facts=failing)
        assert "src/manglecp/store/seals.py" in read_first(answer, "run_failing_tests")[:3]
