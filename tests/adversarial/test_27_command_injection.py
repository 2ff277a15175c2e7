"""Case 27: text that a shell would read as commands. Programs are started from lists of arguments only."""

from __future__ import annotations

import ast
import asyncio
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, strategies as st

from manglecp.runner.log import PolicyRefused
from manglecp.runner.selectors import ExternalPolicy, PolicyLimits, run_child
from manglecp.toolhost import HostCall
from manglecp.toolhost.dispatch.launch import HostCommand
from manglecp.toolhost.dispatch.pool import Pool
from tests.adversarial._hosted import HOST, Hosted, hosting, plugin_in, value
from tests.effort import examples
from tests.toolhost.dispatch.hosts import QUICK, nothing_left
from tests.workspace.governed import PACK, governed
from tests.workspace.repositories import layered

pytestmark = pytest.mark.no_cover

SOURCES = [Path(__file__).parents[2] / "src", PACK]
NASTY = [
    "; touch pwned;",
    "$(touch pwned)",
    "`touch pwned`",
    "| touch pwned",
    "&& touch pwned",
    "\ntouch pwned\n",
    "> pwned",
    "'; touch pwned; '",
    '"; touch pwned; "',
    "${IFS}touch${IFS}pwned",
    "*",
    "~",
    "%COMSPEC% /c touch pwned",
    "--",
    "-rf",
    "\\",
]
WORDS = st.lists(st.sampled_from([*NASTY, "a", " ", "é"]), min_size=1, max_size=4).map("".join) | st.text(
    st.characters(codec="utf-8", exclude_characters="\0"), max_size=20
)


SHELLS = {
    "os": {"system", "popen"},
    "subprocess": {"getoutput", "getstatusoutput"},
    "asyncio": {"create_subprocess_shell"},
}


def asks_a_shell(node: ast.AST) -> bool:
    """Whether it names a function that takes a command as text, or asks for a shell with something but a plain no."""
    match node:
        case ast.Attribute(value=ast.Name(id=module), attr=name):
            return name in SHELLS.get(module, ())
        case ast.ImportFrom(module=str(module), names=names):
            return any(each.name in SHELLS.get(module, ()) for each in names)
        case ast.keyword(arg="shell", value=ast.Constant(value=False)):
            return False
        case ast.keyword(arg="shell"):
            return True
    return False


@pytest.mark.parametrize(
    "source",
    [
        "os.system(x)",
        "from os import popen",
        "run(x, shell=True)",
        "run(x, shell=y)",
        "asyncio.create_subprocess_shell",
    ],
)
def test_who_asks_a_shell_is_seen(source: str) -> None:
    assert any(map(asks_a_shell, ast.walk(ast.parse(source))))


def test_nothing_in_the_sources_asks_a_shell() -> None:
    files = sorted(file for folder in SOURCES for file in folder.rglob("*.py"))
    assert len(files) > 100
    assert [file for file in files if any(map(asks_a_shell, ast.walk(ast.parse(file.read_text("utf-8")))))] == []


@given(st.lists(WORDS, max_size=4))
@examples(25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_policy_gets_its_arguments_as_they_are(tmp_path: Path, words: list[str]) -> None:
    program = "import json, sys; print(json.dumps(sys.argv[1:]))"
    argv = [sys.executable, "-I", "-S", "-c", program, *words]
    folder = tmp_path / "work"
    folder.mkdir(exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        limits = PolicyLimits(seconds=60, cpu_seconds=60)
        output, failure = run_child(argv, env={}, limits=limits, stop=threading.Event())
    assert failure == ""
    assert json.loads(output) == words
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("command", ["/bin/sh -c true", "/bin/true", ["true"], ["/bin/../bin/true"], ["/bin/true; id"]])
def test_a_command_that_is_one_text_or_not_on_the_list_is_refused(command: str | list[str]) -> None:
    with pytest.raises(PolicyRefused):
        ExternalPolicy(argv=command, allowed=["/bin/true", "true", "/bin/sh"])


@pytest.mark.parametrize("name", [text for text in NASTY if "/" not in text])
def test_a_plugin_may_be_called_anything(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "plugins"
    folder.mkdir()
    plugin = folder / f"{name}.py"
    plugin.write_text(
        "from manglecp import action\n@action(effects=['none'])\ndef look(text: str) -> str:\n    return text\n"
    )
    work = tmp_path / "work"
    work.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(work)
        done = subprocess.run([*HOST, "--list", str(plugin)], capture_output=True, timeout=60, check=False)
        assert done.returncode == 0
        (tool,) = json.loads(done.stdout)["tools"]
        assert set(tool["aid"]) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.v"), "an id holds nothing to interpret"
    assert list(work.iterdir()) == []
    assert list(folder.iterdir()) == [plugin]


def test_arguments_of_an_action_are_only_arguments(tmp_path: Path) -> None:
    async def work(hosted: Hosted) -> None:
        for text in NASTY:
            assert value(await hosted.call("look", text=text)) == text

    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        hosting(work, tmp_path)
    assert not (tmp_path / "pwned").exists()


@pytest.mark.parametrize("name", NASTY)
def test_a_host_that_does_not_exist_is_looked_for_by_its_whole_name(tmp_path: Path, name: str) -> None:
    async def main() -> str:
        command = HostCommand(argv=(f"no-such-host {name}", name), environ=HostCommand.inherited(os.environ))
        async with Pool(command, size=1, limits=QUICK) as pool:
            result = await pool.call(HostCall(aid=f"AID.{name}", tier=0))
            assert isinstance(result, dict)
            return result["type"]

    with pytest.MonkeyPatch.context() as patch, nothing_left():
        patch.chdir(tmp_path)
        assert asyncio.run(main()) == "not_found"
    assert list(tmp_path.iterdir()) == []


OPTIONS = ["--sha256", "--pipe-leases", "--lease-key-fd", "--progress-fd", "--serve", "--list", "-c", "--help", "-"]


@pytest.mark.parametrize("name", OPTIONS)
def test_a_plugin_that_is_called_like_an_option_is_none(tmp_path: Path, name: str) -> None:
    """Nothing of it is run, and no option of the command line is lost to it."""
    plugin = plugin_in(tmp_path)
    command = HostCommand.for_plugin(name, os.environ)
    done = subprocess.run(command.argv, cwd=tmp_path, input=b"", capture_output=True, timeout=60, check=False)
    assert done.returncode in (2, 3)
    run_mode = subprocess.run(
        [*HOST, "--run", str(plugin), name], input=b"{}", capture_output=True, timeout=60, check=False
    )
    assert run_mode.returncode in (2, 4), "an AID that is an option calls nothing"


# --- git and pytest, as the workspace starts them --------------------------------------------------------------------

TAKEN_FOR_OPTIONS = ["--output=pwned", "--upload-pack=touch pwned", "-Fpwned", "--amend", "@pwned", "-ppwned"]


def test_what_a_caller_says_is_no_command_and_no_option(tmp_path: Path) -> None:
    """Search texts, paths, ids of tests, branches and messages: each is looked for, refused or kept as it is."""
    repository = layered(tmp_path / "repository")
    repository.write({"pricing/new.py": "NEW = 1\n"})
    before = {file for file in tmp_path.rglob("*") if ".git" not in file.parts}
    with governed(repository.root) as pack:
        exploring = pack.intent("explore")
        for text in [*NASTY[::2], *TAKEN_FOR_OPTIONS]:
            found = exploring.invoke("find_text", {"text": text, "most": 3}).result
            assert {hit["line"] > 0 and text in hit["text"] for hit in found["hits"]} <= {True}
            assert exploring.invoke("find_text", {"text": "Money", "glob": text}).result["problem"] == ""
            assert exploring.invoke("read_lines", {"path": text}).result["problem"] != ""
            failing = pack.intent("diagnose_failure", facts=[{"pred": "failing_test", "args": [text]}])
            assert "run_failing_tests" not in failing
            review = pack.intent("review", facts=[{"pred": "commit_to", "args": [text]}])
            if "commit_changes" in review:
                assert review.invoke("commit_changes", {"message": "no"}, confirm=True).result["commit"] == ""
        odd = [{"pred": "failing_test", "args": [f"tests/test_tax.py::{text}"]} for text in TAKEN_FOR_OPTIONS]
        known = {"pred": "failing_test", "args": ["tests/test_tax.py"]}
        run_child = pack.intent("diagnose_failure", facts=[known, *odd]).invoke("run_failing_tests").result
        assert (run_child["outcome"], len(run_child["missing"])) == ("passed", len(TAKEN_FOR_OPTIONS))
        message = "--amend\n" + "\n".join([*NASTY, *TAKEN_FOR_OPTIONS])
        review = pack.intent("review", facts=[{"pred": "commit_to", "args": ["mine"]}])
        review.invoke("commit_changes", {"message": message}, confirm=True)
    assert repository.git("log", "-1", "--format=%B", "mine").rstrip() == message.rstrip()
    assert repository.git("for-each-ref", "--format=%(refname)").split() == ["refs/heads/main", "refs/heads/mine"]
    assert {file for file in tmp_path.rglob("*") if ".git" not in file.parts} == before
    assert not list(tmp_path.rglob("pwned"))
