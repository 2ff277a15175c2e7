"""Which hosts the actions of a pack get, and what each of them can do: no more than its actions say that they need."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from manglecp.pack import PackError, SandboxPolicy, read_pack
from manglecp.toolhost.action_hosts import profile_of, serve_actions
from manglecp.toolhost.dispatch.launch import ProgramFinder, library_paths
from manglecp.toolhost.dispatch.messages import ActionResult
from tests.toolhost.dispatch.hosts import nothing_left
from tests.toolhost.rights import asking
from tests.toolhost.sandbox.confined import require

TOML = """
[params.root]
kind = "folder"
writable = true

[params.shown]
kind = "folder"
default = ""

[params.interpreter]
default = "python3"

[params.tool]
default = "/bin/sh"
"""
SOURCE = '''
import os
import subprocess
import tempfile
from pathlib import Path

from manglecp import Context, action


def tried(context: Context) -> dict[str, object]:
    """All that a host might be able to do, whoever asks."""
    root, found = Path(context.settings["root"]), {"pid": os.getpid(), "settings": dict(context.settings)}
    found["here"], found["temporary"] = os.getcwd(), tempfile.gettempdir()
    found["environ"] = sorted(os.environ)
    for name, attempt in {
        "reads": lambda: (root / "file").read_text(),
        "shows": lambda: (Path(context.settings["shown"]) / "file").read_text(),
        "paints": lambda: (Path(context.settings["shown"]) / "new").write_text("x"),
        "writes": lambda: (root / "new").write_text("x"),
        "starts": lambda: subprocess.run(["true"], check=True),
        "interprets": lambda: subprocess.run([context.settings["interpreter"], "-c", "import json"], check=True),
    }.items():
        try:
            attempt()
            found[name] = True
        except (OSError, subprocess.SubprocessError):
            found[name] = False
    return found


@action(effects=["filesystem"], mutates=False)
def look(context: Context) -> dict[str, object]:
    """Only reads."""
    return tried(context)


@action(effects=["filesystem"])
def change(context: Context) -> dict[str, object]:
    """Writes files."""
    return tried(context)


@action(effects=["process"], spawn=["true", "interpreter"])
def start(context: Context) -> dict[str, object]:
    """Starts programs, and writes nothing."""
    return tried(context)


@action(effects=["process", "filesystem"], spawn=["true"])
def build(context: Context) -> dict[str, object]:
    """Starts a program that writes."""
    return tried(context)


@action(effects=["process"], spawn=["tool"])
def shell(context: Context) -> dict[str, object]:
    """Starts what the pack says, if it may say so."""
    return tried(context)
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "pack"
    (folder / "rules").mkdir(parents=True)
    (folder / "rules/a.mg").write_text("p(1).")
    (folder / "pack.toml").write_text(TOML)
    (folder / "actions.py").write_text(SOURCE)
    for name in ("root", "shown"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("x")
    return folder


def params(folder: Path, **more: str) -> dict[str, str]:
    return {"root": str(folder.parent / "root"), "shown": str(folder.parent / "shown"), **more}


def found(folder: Path, names: str, given: dict[str, str], **options: Any) -> dict[str, dict[str, Any]]:
    """What each action finds that it can do."""
    results: dict[str, dict[str, Any]] = {}

    async def main() -> None:
        # Root is not limited in processes, so the profile spawn is never complete for it.
        options.setdefault("sandbox", SandboxPolicy(degrade=True))
        async with serve_actions(read_pack(folder, given), size=1, **options) as dispatcher:
            for name in names.split():
                aid = f"AID.PACK.{name.upper()}.v1"
                right = {} if dispatcher.actions[aid].tier == 0 else asking(aid)
                answer = await dispatcher.call(aid, **right)
                assert isinstance(answer, ActionResult), answer
                results[name] = json.loads(answer.output_json)
                (folder.parent / "root" / "new").unlink(missing_ok=True)

    with nothing_left():
        asyncio.run(main())
    return results


def able(result: dict[str, Any]) -> set[str]:
    return {name for name, value in result.items() if value is True}


def test_a_host_can_do_what_its_actions_say_and_no_more(folder: Path) -> None:
    require("strict")
    names = "look change start build shell"
    given = params(folder, interpreter=sys.executable)
    results = found(folder, names, given, programs=["true", "interpreter"])
    assert able(results["look"]) == {"reads", "shows"}
    assert able(results["change"]) == {"reads", "shows", "writes"}
    assert able(results["start"]) == {"reads", "shows", "starts", "interprets"}
    assert able(results["build"]) == {"reads", "shows", "writes", "starts"}
    assert able(results["shell"]) == {"reads", "shows"}
    pids = {name: results[name]["pid"] for name in names.split()}
    assert pids["look"] != pids["change"]
    assert pids["start"] == pids["build"] == 2, "each in a PID namespace of its own, below an init"
    assert results["look"]["pid"] == results["shell"]["pid"], "those that may do as much share a host"


READING = """
import socket
import subprocess
from pathlib import Path

from manglecp import Context, action


def tried(context: Context) -> dict[str, bool]:
    root, pack, port = Path(context.settings["root"]), Path(__file__).parent, int(context.settings["interpreter"])
    found = {}
    for name, attempt in {
        "reads": lambda: [Path("file").read_text(), (root / "file").read_text()],
        "works": lambda: Path("new").write_text("x"),
        "writes": lambda: (root / "new").write_text("x"),
        "recodes": lambda: (pack / "new.py").write_text("x"),
        "touches work": lambda: subprocess.run(["touch", "new"], check=True, capture_output=True),
        "touches root": lambda: subprocess.run(["touch", f"{root}/new"], check=True, capture_output=True),
        "touches pack": lambda: subprocess.run(["touch", f"{pack}/new.py"], check=True, capture_output=True),
        "lists": lambda: subprocess.run(["ls", ".", str(root)], check=True, capture_output=True),
        "connects": lambda: socket.create_connection(("127.0.0.1", port), 5).close(),
    }.items():
        try:
            attempt()
            found[name] = True
        except (OSError, subprocess.SubprocessError):
            found[name] = False
    return found


@action(effects=["process"], spawn=["touch", "ls"], mutates=False)
def inspect(context: Context) -> dict[str, bool]:
    \"\"\"Starts programs that only read.\"\"\"
    return tried(context)


@action(effects=["process", "filesystem"], spawn=["touch", "ls"], mutates=False)
def examine(context: Context) -> dict[str, bool]:
    \"\"\"Starts programs that only read files.\"\"\"
    return tried(context)


@action(effects=["process"], spawn=["touch", "ls"])
def work(context: Context) -> dict[str, bool]:
    \"\"\"Starts programs.\"\"\"
    return tried(context)
"""


@pytest.mark.parametrize("profile", ["strict", "standard", "none"])
def test_programs_of_an_action_that_only_reads_change_nothing(profile: str, folder: Path, tmp_path: Path) -> None:
    """Neither the workspace, nor the pack, nor another machine; a weaker profile of the pack does not help them."""
    require("strict")
    (folder / "actions.py").write_text(READING)
    (folder / "pack.toml").write_text(f'{TOML}\n[sandbox]\nprofile = "{profile}"\n')
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "file").write_text("x")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        given = params(folder, interpreter=str(listening.getsockname()[1]))
        results = found(
            folder,
            "inspect examine" if profile == "none" else "inspect examine work",
            given,
            programs=["touch", "ls"],
            workspace=tmp_path / "work",
            sandbox=SandboxPolicy(degrade=True, allow_weaker=True),
        )
    assert able(results["inspect"]) == able(results["examine"]) == {"reads", "lists"}
    if profile != "none":  # where a host is not confined at all, and works in the folder of the tests
        permitted = {"reads", "lists", "works", "touches work"}
        assert able(results["work"]) == permitted | ({"connects"} if profile == "standard" else set())


def test_the_programs_of_an_action_that_only_reads_are_those_that_the_operator_allows(
    folder: Path, tmp_path: Path
) -> None:
    require("strict")
    (folder / "actions.py").write_text(READING)
    given = params(folder, interpreter="9")
    allowed = found(folder, "inspect", given, programs=["touch"], workspace=tmp_path / "root")
    assert able(allowed["inspect"]) == {"reads"}, "not even without a program that it may start"
    assert able(found(folder, "inspect", given, workspace=tmp_path / "root")["inspect"]) == {"reads"}


def test_without_programs_only_writing_is_kept_apart(folder: Path) -> None:
    require("strict")
    results = found(folder, "look change start build", params(folder))
    assert results["look"]["pid"] == results["start"]["pid"] != results["change"]["pid"] == results["build"]["pid"]
    assert not able(results["build"]) & {"starts", "interprets"}


def test_hosts_are_told_settings_and_leave_nothing_in_a_folder(folder: Path, tmp_path: Path) -> None:
    require("strict")
    result = found(folder, "change", params(folder, interpreter="python9"))["change"]
    assert result["settings"] == {**params(folder), "interpreter": "python9", "tool": "/bin/sh"}
    assert not any("MANGLECP" in name for name in result["environ"]), "what it starts does not inherit them"
    assert (result["temporary"], result["here"]) == ("/dev/shm", "/")
    assert [path.name for path in (tmp_path / "root").iterdir()] == ["file"]


def test_a_workspace_that_was_given_is_where_they_work(folder: Path, tmp_path: Path) -> None:
    require("strict")
    (tmp_path / "work").mkdir()
    result = found(folder, "look", params(folder), workspace=tmp_path / "work")["look"]
    assert result["here"] == str(tmp_path / "work")


def test_a_setting_says_where_a_program_lies_but_not_if_only_the_pack_says_so(folder: Path) -> None:
    require("strict")
    given = params(folder, interpreter=sys.executable)
    assert "interprets" in able(found(folder, "start", given, programs=["interpreter"])["start"])
    assert "interprets" not in able(found(folder, "start", given, programs=["true"])["start"])
    # The default of `tool` is a path that the pack chose. Whoever allows the name has not allowed that.
    with pytest.raises(PackError, match="names the program 'tool', which is not installed"):
        found(folder, "shell", params(folder), programs=["tool"])
    pack = read_pack(folder, params(folder))
    assert profile_of(pack, programs=["tool"]) == "strict"
    assert profile_of(read_pack(folder, params(folder, tool="/usr/bin/env")), programs=["tool"]) == "spawn"


def test_settings_that_no_environment_holds_are_refused(folder: Path) -> None:
    with pytest.raises(PackError, match="its settings have more than"):
        found(folder, "look", params(folder, interpreter="x" * 60_000, tool="y" * 60_000))


@pytest.mark.parametrize(("said", "ended"), [("", False), ("1.5", True)])
def test_an_action_has_the_time_that_it_names_unless_whoever_runs_it_says_less(
    said: str, ended: bool, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require("strict")
    monkeypatch.setenv("MACHINA_TOOLHOST_TIMEOUT", said)
    monkeypatch.setattr("manglecp.toolhost.dispatch.launch.DEFAULT_TIMEOUT", 1.5)
    slow = "@action(effects=['none'], timeout=60)\ndef wait() -> bool:\n    time.sleep(3)\n    return True\n"
    hasty = slow.replace(", timeout=60", "").replace("def wait", "def hurry")
    (folder / "actions.py").write_text(f"import time\n\nfrom manglecp import action\n\n\n{slow}\n\n{hasty}")

    async def main() -> None:
        async with serve_actions(
            read_pack(folder, params(folder)), size=1, sandbox=SandboxPolicy(degrade=True)
        ) as dispatcher:
            answer = await dispatcher.call("AID.PACK.WAIT.v1")
            assert isinstance(answer, ActionResult) is not ended
            assert not isinstance(await dispatcher.call("AID.PACK.HURRY.v1"), ActionResult)

    with nothing_left():
        asyncio.run(main())


def test_a_folder_of_the_path_that_depends_on_where_one_stands_does_not_count(tmp_path: Path) -> None:
    program = tmp_path / "git"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert ProgramFinder({"PATH": str(tmp_path)}).find("git") == str(program)
    for path in ("", ".", "bin"):
        assert ProgramFinder({"PATH": path}).find("git") is None
    places = ProgramFinder({"PATH": str(tmp_path)}, {"vcs": "git", "odd": "../git", "none": ""})
    assert places.find("vcs") == str(program)
    assert places.find("odd") is None
    assert places.find("none") is None
    assert places.startable("vcs", ["git"]) == places.startable("vcs", ["vcs"]) == str(program)
    assert places.startable("vcs", ["sh"]) is None


def test_an_interpreter_reads_its_environment_and_what_that_was_made_from(tmp_path: Path) -> None:
    for folder in ("env/bin", "env/lib", "base/bin", "base/lib"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "base/bin/python3.12").write_text("")
    (tmp_path / "env/bin/python").symlink_to(tmp_path / "base/bin/python3.12")
    (tmp_path / "env/pyvenv.cfg").write_text(f"home = {tmp_path}/base/bin\nversion = 3.12\n")
    read = set(library_paths(str(tmp_path / "env/bin/python")))
    assert read == {str(tmp_path / name) for name in ("env/pyvenv.cfg", "env/lib", "base/lib")}
    assert list(library_paths(str(tmp_path / "env/bin/git"))) == []
    site = tmp_path / "env/lib/python3.12/site-packages"
    for made in (site, tmp_path / "code/src", tmp_path / ".hidden/src"):
        made.mkdir(parents=True)
    lines = [
        f"{tmp_path}/code/src",
        f"{tmp_path}/.hidden/src",
        f"{tmp_path}/nothing",
        "/",
        "/etc",
        str(Path.home()),
        "x",
    ]
    (site / "editable.pth").write_text("\n".join(["import os; os.system('true')", *lines]))
    assert set(library_paths(str(tmp_path / "env/bin/python"))) - read == {f"{tmp_path}/code/src"}
    assert list(library_paths("/usr/bin/python3")) == []


def test_without_a_pid_namespace_a_pack_that_starts_programs_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def problem(profile: str) -> str | None:
        return {"spawn": "no such namespace", "strict": None}[profile]

    monkeypatch.setattr("manglecp.toolhost.action_hosts.containment_problem", problem)
    with pytest.raises(PackError, match=r"'spawn' cannot be enforced here: pid_namespace: no such namespace"):
        found(folder, "start", params(folder), programs=["true"], sandbox=SandboxPolicy())
    assert able(found(folder, "look", params(folder), sandbox=SandboxPolicy())["look"]) == {"reads", "shows"}


TOGETHER = '''
import asyncio
import os
import time
from collections.abc import AsyncIterator

from manglecp import Context, action, lifespan


class Gate:
    def __init__(self) -> None:
        self.waiting = 0
        self.open = asyncio.Event()


@lifespan
async def gate() -> AsyncIterator[Gate]:
    yield Gate()


@action(effects=["none"], concurrency=3)
async def meet(context: Context[Gate]) -> int:
    """Return when three calls wait here."""
    context.state.waiting += 1
    if context.state.waiting == 3:
        context.state.open.set()
    await context.state.open.wait()
    return os.getpid()


@action(effects=["none"])
def block(context: Context) -> int:
    """Block the process."""
    time.sleep(0.2)
    return os.getpid()
'''


def test_actions_share_a_sandboxed_host_with_those_of_the_same_concurrency(folder: Path) -> None:
    require("strict")
    (folder / "actions.py").write_text(TOGETHER)
    pack = read_pack(folder, params(folder))
    assert {name: action.concurrency for name, action in pack.actions.items()} == {"meet": 3, "block": 1}

    async def main() -> None:
        async with serve_actions(pack, size=1) as dispatcher:
            names = ["meet", "meet", "block", "meet"]
            results = await asyncio.gather(*(dispatcher.call(f"AID.PACK.{name.upper()}.v1") for name in names))
            outputs = [result.output_json for result in results if isinstance(result, ActionResult)]
            assert outputs[0] == outputs[1] == outputs[3] != outputs[2]

    with nothing_left():
        asyncio.run(main())


def test_an_action_with_a_concurrency_that_it_cannot_have_is_an_error_of_the_pack(folder: Path) -> None:
    (folder / "actions.py").write_text(
        TOGETHER.replace('@action(effects=["none"])', "@action(effects=[], concurrency=2)")
    )
    with pytest.raises(PackError) as raised:
        read_pack(folder, params(folder))
    assert "TypeError: concurrency=2: block has to be an async def function (line 31)" in str(raised.value)
