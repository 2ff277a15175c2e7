"""``[python] interpreter``: a pack whose hosts have the packages of its own virtual environment."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import venv
from collections.abc import Mapping
from pathlib import Path

import pytest

from manglecp.mangle import Fact, Program, Source
from manglecp.pack import Pack, PackError, read_pack
from manglecp.toolhost import ActionResult, serve_actions, serve_externals, serve_facts
from tests.docs.snippets import ROOT
from tests.pack.folders import write
from tests.toolhost.rights import asking

VERSION = f"python{sys.version_info[0]}.{sys.version_info[1]}"
TOML = '[python]\ninterpreter = ".venv/bin/python"\n'
ACTIONS = """
import sys

import greeting
from manglecp import Context, Limits, action, lifespan


@lifespan
async def opened():
    yield greeting.WORD


@action(effects=["filesystem"], concurrency=4)
async def greet(context: Context[str], name: str) -> dict[str, object]:
    try:
        import msgspec
    except ImportError:
        msgspec = None
    return {"text": f"{context.state}, {name}", "ours": msgspec is not None, "link": greeting.LINKED}
"""
PACKAGE = "import sys\nWORD = 'Hello'\nLINKED = 'linked' in sys.modules\n"
# Code of the environment that Python runs when it starts, unless it is kept from it.
STARTING = "import os; exec(\"try: open(os.environ['HOME'] + '/escaped', 'w')\\nexcept OSError: import linked\")\n"


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """Return an environment with a package, and a ``.pth`` file that tries to write outside of the sandbox."""
    folder = tmp_path / "pack" / ".venv"
    venv.EnvBuilder(symlinks=True).create(folder)
    packages = folder / "lib" / VERSION / "site-packages"
    (packages / "greeting.py").write_text(PACKAGE)
    (packages / "linked.py").write_text("")
    (packages / "starting.pth").write_text(STARTING)
    (packages / "sitecustomize.py").write_text("raise SystemExit('must not run')")
    return folder


def read(folder: Path, files: Mapping[str, str] | None = None, toml: str = TOML) -> Pack:
    write(folder / "pack", {"pack.toml": toml, "actions.py": ACTIONS, **(files or {})})
    return read_pack(folder / "pack")


def problem(folder: Path, toml: str = TOML) -> str:
    with pytest.raises(PackError) as raised:
        read(folder, toml=toml)
    return raised.value.render()


@pytest.mark.usefixtures("environment")
def test_actions_import_the_packages_of_the_pack_and_no_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    pack = read(tmp_path)

    async def main() -> ActionResult:
        async with serve_actions(pack, size=1) as dispatcher:
            result = await dispatcher.call(
                **asking("AID.PACK.GREET.v1", inputs={"name": "Ann"}), aid="AID.PACK.GREET.v1"
            )
            assert isinstance(result, ActionResult), result
            return result

    output = json.loads(asyncio.run(main()).output_json)
    assert output == {"text": "Hello, Ann", "ours": False, "link": True}
    assert not (tmp_path / "escaped").exists()  # nothing of the environment ran outside of the sandbox


@pytest.mark.usefixtures("environment")
def test_externals_and_facts_have_them_too_and_may_be_async(tmp_path: Path) -> None:
    externals = """
import asyncio

import greeting
from manglecp import external


@external("word(Number, Text)", mode="+-", seconds=30)
async def word(number):
    await asyncio.sleep(0)
    return [greeting.WORD * number]


@external("letter(Number, Text)", mode="+-", seconds=30)
async def letter(number):
    for character in greeting.WORD[:number]:
        await asyncio.sleep(0)
        yield character


@external("batched(Number, Text)", mode="+-", seconds=30, batch=True)
async def batched(questions):
    return [[greeting.WORD] for _ in questions]
"""
    facts = """
import asyncio

import greeting
from manglecp import facts


@facts("one", seconds=60)
async def ones():
    queue = asyncio.Queue()

    async def fill():
        for character in greeting.WORD:
            await asyncio.sleep(0.1)
            await queue.put(character)

    task = asyncio.create_task(fill())
    for _ in greeting.WORD:
        yield "one", await queue.get()
    await task


@facts("two", seconds=60)
async def twos():
    return [("two", greeting.WORD)]
"""
    rules = "Decl one(Text) bound [/string].\nDecl two(Text) bound [/string].\n"
    pack = read(tmp_path, {"externals.py": externals, "facts.py": facts, "rules/a.mg": rules})
    with serve_externals(pack, size=1) as predicates:
        assert predicates["word"].answer([(2,), (1,)]) == [[("HelloHello",)], [("Hello",)]]
        assert predicates["letter"].answer([(2,)]) == [[("H",), ("e",)]]
        assert predicates["batched"].answer([(2,), (3,)]) == [[("Hello",)], [("Hello",)]]
    with serve_facts(pack, cache=False) as generated:
        assert generated is not None
        found = set(generated.begin(Program.load([Source("a.mg", rules)]).predicates))
        assert found == {Fact("one", (letter,)) for letter in "Hello"} | {Fact("two", ("Hello",))}
        assert generated.run_pass("ones").change.empty


def test_a_package_that_is_missing_is_named_with_the_environment(tmp_path: Path, environment: Path) -> None:
    (environment / "lib" / VERSION / "site-packages" / "greeting.py").unlink()
    told = problem(tmp_path)
    assert "No module named 'greeting'" in told
    assert f"install the package into {environment}" in told


def test_an_interpreter_that_cannot_be_used_is_a_precise_error(tmp_path: Path, environment: Path) -> None:
    interpreter = environment / "bin" / "python"
    target = Path(os.path.realpath(interpreter))
    interpreter.unlink()
    assert "python.interpreter: there is no such file" in problem(tmp_path)
    shutil.copy(target, interpreter)
    assert "it is a copy of an interpreter, which would run outside of the sandbox" in problem(tmp_path)
    interpreter.unlink()
    interpreter.symlink_to("/bin/sh")
    assert "it does not link to a Python interpreter" in problem(tmp_path)
    interpreter.unlink()
    closed = tmp_path / "python3"
    closed.write_text("")
    interpreter.symlink_to(closed)
    assert "it is not an executable file" in problem(tmp_path)
    assert "does not belong to a virtual environment" in problem(tmp_path, f'[python]\ninterpreter = "{target}"\n')
    assert "python.interpreter" in problem(tmp_path, "[python]\ninterpreter = 3\n")
    assert "did you mean interpreter" in problem(tmp_path, '[python]\ninterpeter = "x"\n')


def test_an_old_python_is_named(tmp_path: Path, environment: Path) -> None:
    old = tmp_path / "python3"  # what an interpreter would say of itself
    old.write_text(
        f"#!{sys.executable}\nimport sys\nsys.version_info = (3, 10, 1)\n"
        "arguments = sys.argv[sys.argv.index('-c') + 1:]\nsys.argv = ['-c', *arguments[1:]]\nexec(arguments[0])\n"
    )
    old.chmod(0o755)
    (environment / "bin" / "python").unlink()
    (environment / "bin" / "python").symlink_to(old)
    assert "Python 3.10 is too old; create the environment with Python 3.11 or later" in problem(tmp_path)


def test_packages_that_a_link_leads_to_are_not_opened(tmp_path: Path, environment: Path) -> None:
    packages = environment / "lib" / VERSION / "site-packages"
    shutil.move(packages, tmp_path / "elsewhere")
    packages.symlink_to(tmp_path / "elsewhere")
    assert "are reached by a link" in problem(tmp_path)
    packages.unlink()
    assert f"has no packages for Python {VERSION.removeprefix('python')}" in problem(tmp_path)


def test_the_page_shows_the_setting() -> None:
    assert f"```toml\n{TOML}```" in (ROOT / "docs/reference/packs.md").read_text("utf-8")


@pytest.mark.usefixtures("environment")
def test_an_environment_that_actions_could_write_is_refused(tmp_path: Path) -> None:
    pack = read(tmp_path)

    async def main() -> None:
        async with serve_actions(pack, workspace=tmp_path):
            pass

    with pytest.raises(PackError, match=f"python.interpreter: it lies in {tmp_path}, which actions can write"):
        asyncio.run(main())
