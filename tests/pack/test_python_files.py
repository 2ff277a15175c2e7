"""``actions.py`` and ``externals.py``: described by a host, and never run here."""

from __future__ import annotations

import os
import py_compile
import sys
import time
from hashlib import sha256
from pathlib import Path

import pytest

from manglecp.pack import host_listing
from manglecp.pack.diagnostics import PackError, Problems
from tests.pack.folders import ACTIONS, EXTERNALS, RULES, SMALL, problem, problems, read, write


def test_an_action_is_described(tmp_path: Path) -> None:
    source = (
        "from typing import Annotated\nfrom manglecp import Limits, action\n\n"
        '@action(effects=["process", "filesystem"], reversible=True, idempotent=True, timeout=7, spawn=["git"])\n'
        "def commit(text: Annotated[str, Limits(max_length=9)], amend: bool = False) -> dict[str, int]:\n"
        '    """Commit.\n\n    Args:\n        text: what it says\n    """\n    return {}\n'
    )
    action = read(tmp_path / "work", {**SMALL, "actions.py": source}).actions["commit"]
    assert (action.name, action.aid, action.description) == ("commit", "AID.WORK.COMMIT.v1", "Commit.")
    assert action.input_schema["properties"] == {
        "text": {"type": "string", "maxLength": 9, "description": "what it says"},
        "amend": {"type": "boolean", "default": False},
    }
    assert action.input_schema["required"] == ["text"]
    assert action.output_schema["type"] == "object"
    assert (action.effects, action.tier) == (("process", "filesystem"), 2)
    assert (action.mutates, action.reversible, action.idempotent) == (True, True, True)
    assert (action.timeout, action.spawn) == (7.0, ("git",))


@pytest.mark.parametrize(("file", "module"), [("actions.py", "more"), ("actions/__init__.py", ".more")])
def test_bytecode_in_a_pack_is_not_run(tmp_path: Path, file: str, module: str) -> None:
    source = f"from {module} import EFFECTS\n" + ACTIONS.replace("effects=[]", "effects=EFFECTS")
    more = tmp_path / file.replace("__init__", "actions").replace("actions.py", "more.py")
    write(tmp_path, {"rules/a.mg": RULES, file: source})
    more.write_text('EFFECTS = ["network"]\n')
    hidden = py_compile.compile(str(more), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    more.write_text('EFFECTS = ["process"]\n')
    assert hidden is not None
    assert Path(hidden).parent.name == "__pycache__"
    assert read(tmp_path, {}).actions["hello"].effects == ("process",)


def test_a_package_of_actions_imports_its_modules(tmp_path: Path) -> None:
    files = {"actions/__init__.py": ACTIONS + "\nfrom .more import X\n", "actions/more.py": "X = 1\n"}
    pack = read(tmp_path / "work", {"rules/a.mg": RULES, **files})
    assert pack.actions["hello"].aid == "AID.WORK.HELLO.v1"
    assert pack.actions_file is not None
    assert pack.actions_file.path == str(tmp_path / "work/actions/__init__.py")


def test_a_folder_of_actions_has_to_be_a_package(tmp_path: Path) -> None:
    assert problem(tmp_path, {"rules/a.mg": RULES, "actions/more.py": "X = 1"}).fix == "add actions/__init__.py"


def test_an_external_is_described(tmp_path: Path) -> None:
    external = read(tmp_path, {**SMALL, "externals.py": EXTERNALS}).externals["similar"]
    assert (external.arity, external.mode, external.arguments) == (3, "++-", ("Text", "Count", "Id"))
    assert (external.deterministic, external.seconds) == (False, 20.0)
    assert external.description == "Texts that are alike."


def test_nothing_of_a_pack_runs_here(tmp_path: Path) -> None:
    source = f"import os, sys\nassert os.getpid() != {os.getpid()}\nsys.path.append('here')\n"
    read(tmp_path, {**SMALL, "actions.py": source + ACTIONS, "externals.py": source + EXTERNALS})
    assert "here" not in sys.path
    assert not [name for name in sys.modules if name.startswith("manglecp_plugin") or name in ("actions", "externals")]


def test_a_file_can_write_nothing_while_it_is_described(tmp_path: Path) -> None:
    source = "import os\nopen(os.path.join(os.path.dirname(__file__), 'mark'), 'w')\n"
    found = problem(tmp_path, {**SMALL, "actions.py": source + ACTIONS})
    assert found.message.endswith("mark' (line 2)")
    assert not (tmp_path / "mark").exists()


def test_it_does_not_see_our_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MANGLECP_SECRET", "hunter2")
    source = "import os\nassert 'MANGLECP_SECRET' not in os.environ\n"
    assert read(tmp_path, {**SMALL, "actions.py": source + ACTIONS}).actions


@pytest.mark.parametrize(
    ("source", "line", "about"),
    [
        ("def f(:\n", 1, "SyntaxError"),
        ("\n\nx = '\n", 3, "SyntaxError"),
        ("import nothing_like_it\n", 1, "ModuleNotFoundError: No module named 'nothing_like_it'"),
        ("raise SystemExit(3)\n", 1, "SystemExit: 3"),
        ("import os\nos._exit(0)\n", None, "the host returned no listing"),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n", None, "the host was ended by signal 9"),
        ("from manglecp import action\n@action(effects=[])\ndef f(x): ...\n", 2, "HintError: f (line 2): the"),
        ("from manglecp import action\n@action(effects=[], timeout=-1)\ndef f(): ...\n", 2, "ValueError: timeout"),
        ("from manglecp import action\n@action(effects=['filesytem'])\ndef f(): ...\n", 2,
         "ValueError: unknown effect 'filesytem': did you mean 'filesystem'?"),
        ("raise ValueError('\\x1b[31m' + 'x' * 10_000)\n", None, "ValueError:  [31mxxx"),
        ('from manglecp import action\n@action(effects=[])\ndef f() -> int:\n    """a\u202eb"""\n', None,
         "f: its description holds the invisible character U+202E"),
        (EXTERNALS, None, "similar: an external predicate belongs in externals.py"),
    ],
)  # fmt: skip
def test_a_broken_file_is_a_problem(tmp_path: Path, source: str, line: int | None, about: str) -> None:
    found = problem(tmp_path, {**SMALL, "actions.py": source})
    assert (found.file, found.line) == ("actions.py", line)
    assert found.message.startswith(about)
    assert len(found.message) < 400
    assert found.message.isprintable()


@pytest.mark.parametrize(
    ("source", "about"),
    [
        (ACTIONS, "hello: not an external predicate"),
        ("from manglecp import external\n@external('p', mode='+')\ndef p(x): ...\n", "ValueError: 'p' is not a"),
        ("from manglecp import external\n@external('p(X)', mode='+-')\ndef p(x): ...\n", "ValueError: p: mode has"),
        ("from manglecp import external\n@external('p(X)', mode='?')\ndef p(x): ...\n", "ValueError: p: mode has"),
        ("from manglecp import external\n@external('p(X, X)', mode='+-')\ndef p(x): ...\n", "ValueError: p(X, X): a"),
        ("from manglecp import external\n@external('p(X)', mode='+', seconds=0)\ndef p(x): ...\n", "ValueError: p: s"),
        ("from manglecp import external\n@external('p(X)', mode='+')\ndef a(x): ...\n"
         "@external('p(X)', mode='+')\ndef b(x): ...\n", "b: p is declared already"),
    ],
)  # fmt: skip
def test_a_broken_external_is_a_problem(tmp_path: Path, source: str, about: str) -> None:
    found = problem(tmp_path, {**SMALL, "externals.py": source})
    assert found.file == "externals.py"
    assert found.message.startswith(about)


def test_both_files_are_told_about_at_once(tmp_path: Path) -> None:
    found = problems(tmp_path, {**SMALL, "actions.py": "x = ", "externals.py": "y = "})
    assert [each.file for each in found] == ["actions.py", "externals.py"]


def asked(folder: Path, source: str, seconds: float = host_listing.TIMEOUT_SECONDS) -> tuple[object, str]:
    """The listing of a file, and what is wrong with it."""
    write(folder, {"actions.py": source})
    found, digest = Problems(), sha256(source.encode()).hexdigest()
    listing = host_listing.list_tools(folder, "actions.py", digest, found, seconds=seconds)
    try:
        found.raise_if_errors()
    except PackError as error:
        return listing, error.diagnostics[0].message
    return listing, ""


def test_a_file_that_does_not_end_is_given_up(tmp_path: Path) -> None:
    start = time.monotonic()
    listing, said = asked(tmp_path, "import time\ntime.sleep(3_600)\n", seconds=1.0)
    assert (listing, said) == (None, "the host returned no listing within 1 s")
    assert time.monotonic() - start < 60


def test_output_is_bounded(tmp_path: Path) -> None:
    names = "\n".join(
        f"@action(effects=[])\ndef f{n}() -> int:\n    '''{'x' * 9_000}'''\n    return 0" for n in range(600)
    )
    listing, said = asked(tmp_path, f"from manglecp import action\n{names}\n")
    assert (listing, said) == (None, "the listing has more than 4,194,304 bytes")


def test_a_file_that_was_changed_meanwhile_is_not_run(tmp_path: Path) -> None:
    write(tmp_path, {"actions.py": "import os\nos._exit(7)\n"})
    found = Problems()
    assert host_listing.list_tools(tmp_path, "actions.py", "0" * 64, found) is None
    with pytest.raises(PackError, match="plugin hash mismatch"):
        found.raise_if_errors()


def forged(tool: str) -> str:
    """A file that has its host say something else about it, as a hostile one could."""
    return f"""{ACTIONS}
from manglecp.toolhost.plugin import PluginAction

PluginAction.descriptor = property(fset=lambda *_: None, fget=lambda _: {{
    "aid": "AID.X.F.v1", "name": "f", "description": "d", "inputs_schema": {{"type": "object"}},
    "outputs_schema": {{}}, "side_effects": ["none"], "tier": 0, {tool}}})
"""


@pytest.mark.parametrize(
    ("tool", "about"),
    [
        ('"name": "../f"', "the listing of a function is invalid: Expected `str` matching regex"),
        ('"aid": "f"', "the listing of a function is invalid: Expected `str` matching regex"),
        ('"description": 3', "the listing of a function is invalid: Expected `str`, got `int` - at `$.description`"),
        ('"side_effects": "none"', "the listing of a function is invalid: Expected `array`, got `str`"),
        ('"side_effects": ["a\\u200bb"]', "f: a word of its listing holds an invisible character"),
        ('"tier": -1', "the listing of a function is invalid: Expected `int` >= 0"),
        ('"idempotent": 1', "the listing of a function is invalid: Expected `bool`, got `int`"),
        ('"inputs_schema": []', "the listing of a function is invalid: Expected `object`, got `array`"),
        ('"inputs_schema": {"type": "array"}', "f: its inputs_schema does not describe an object"),
        ('"inputs_schema": {"type": "object", "$ref": "http://localhost/x"}', "f: its inputs_schema refers to another"),
        (
            '"inputs_schema": {"type": "object", "allOf": [{"$ref": "file:///etc/passwd"}]}',
            "f: its inputs_schema refers",
        ),
        ('"inputs_schema": {"type": "object", "properties": {"a": {"$ref": "#"}}}', "f: its inputs_schema ref"),
        ('"inputs_schema": {"type": "object", "minProperties": "a"}', "f: its inputs_schema is not a JSON Schema"),
        ('"inputs_schema": {"type": "object", "title": "a" * 300_000}', "f: its inputs_schema has more than"),
        ('"outputs_schema": {"title": "\\u202e"}', "f: its outputs_schema holds the invisible character U+202E"),
    ],
)
def test_a_forged_listing_is_held_to_its_shape(tmp_path: Path, tool: str, about: str) -> None:
    found = problem(tmp_path, {**SMALL, "actions.py": forged(tool)})
    assert found.message.startswith(about)


def test_what_a_forged_listing_leaves_out_is_taken_carefully(tmp_path: Path) -> None:
    action = read(tmp_path, {**SMALL, "actions.py": forged('"tier": 3')}).actions["f"]
    assert (action.tier, action.mutates, action.reversible, action.idempotent) == (3, True, False, False)
    assert action.timeout is None


def test_two_versions_of_an_action_cannot_have_one_name(tmp_path: Path) -> None:
    source = "from manglecp import action\n" + "".join(
        f"@action(effects=[], version={number})\ndef f() -> int: ...\nf{number} = f\n" for number in (1, 2)
    )
    found = problem(tmp_path, {**SMALL, "actions.py": source})
    assert found.message == "f: two functions have that name"


def test_a_listing_of_another_file_is_not_taken(tmp_path: Path) -> None:
    source = ACTIONS + "\nfrom manglecp.toolhost.plugin import Plugin\nPlugin.sha256 = '0' * 64\n"
    assert (
        problem(tmp_path, {**SMALL, "actions.py": source}).message == "the listing is not of the file that was hashed"
    )


PREVIEW = """
from dataclasses import dataclass
from typing import Any, TypedDict
from manglecp import action

@dataclass
class Change:
    diff: str
    digest: str

class Typed(TypedDict):
    diff: str

@action(effects=["filesystem"], mutates=False)
def show(path: str) -> RESULT:
    \"\"\"Show.\"\"\"

@action(effects=["filesystem"], preview="show")
def publish(path: str, digest: str = "") -> str:
    \"\"\"Publish.\"\"\"
    return path
"""


@pytest.mark.parametrize(
    ("result", "previewed"),
    [
        ("Change", {"digest"}),
        ("Typed", set()),
        ("str", set()),
        ("dict", None),
        ("dict[str, str]", None),
        ("Any", None),
        ("Change | None", None),
    ],
)
def test_a_preview_declares_the_members_of_its_result(tmp_path: Path, result: str, previewed: set[str] | None) -> None:
    """Otherwise it would provide nothing, and clients could give the digest that guards the action."""
    files = {**SMALL, "actions.py": PREVIEW.replace("RESULT", result)}
    if previewed is not None:
        assert read(tmp_path, files).actions["publish"].previewed == previewed
        return
    found = problem(tmp_path, files)
    assert "publish: its preview 'show' does not declare the members of its result" in str(found)
    assert "let it return a dataclass, a TypedDict or a text" in str(found)
