"""What a plugin offers is asked of the plugin, in a locked host, and then exactly that is served."""

import asyncio
import hashlib
import json
import os
import select
import subprocess
import sys
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest

from manglecp.pack import SandboxPolicy
from manglecp.toolhost.actions import action
from manglecp.toolhost.dispatch.catalogue import Catalogue, Listing, list_plugin
from manglecp.toolhost.dispatch.dispatcher import prepare_call
from manglecp.toolhost.dispatch.launch import HostCommand, launch
from manglecp.toolhost.dispatch.messages import ActionResult, DispatchError, HostCall
from manglecp.toolhost.dispatch.pool import Pool
from tests.toolhost.dispatch.hosts import nothing_left
from tests.toolhost.rights import authorised
from tests.toolhost.sandbox.confined import require

T = TypeVar("T")
ROOT = os.getuid() == 0

PLAIN = '''
from manglecp import action

@action(effects=["none"], deterministic=True, tags=["tag.text"])
def double(text: str) -> str:
    """Say it twice."""
    return text * 2

@action(effects=["filesystem"])
def write(path: str) -> str:
    """Write a file, or say why not."""
    try:
        with open(path, "w") as file:
            file.write("x")
    except OSError:
        return "refused"
    return "written"
'''
SPAWNING = '''
import subprocess
from manglecp import action

@action(effects=["process"], spawn=["PROGRAM"])
def start(program: list[str]) -> str:
    """Start a program, or say why not."""
    try:
        return subprocess.run(program, capture_output=True, text=True, check=True).stdout
    except PermissionError:
        return "refused"

@action(effects=["none"])
def rest() -> None:
    """Nothing."""
'''


def finished(work: Coroutine[Any, Any, T]) -> T:
    with nothing_left():
        return asyncio.run(work)


def quiet(work: Callable[[], T]) -> T:
    with nothing_left():
        return work()


def written(folder: Path, text: str) -> str:
    plugin = folder / "plugins" / "plugin.py"
    plugin.parent.mkdir(exist_ok=True)
    plugin.write_text(text)
    return str(plugin)


def listing_of(plugin: str, **options: Any) -> Listing:
    listing = quiet(lambda: list_plugin(plugin, os.environ, **options))
    assert isinstance(listing, Listing), listing
    return listing


def failed(plugin: str, **options: Any) -> DispatchError:
    error = quiet(lambda: list_plugin(plugin, os.environ, **options))
    assert isinstance(error, dict), error
    assert error["aid"] == ""
    assert error["detail"].startswith(f"plugin {plugin}: ")
    return error


async def calling(
    command: HostCommand | DispatchError, catalogue: Catalogue, *calls: tuple[str, Mapping[str, Any]]
) -> list[Any]:
    """The outputs of the calls, or their errors."""
    assert isinstance(command, HostCommand), command
    results: list[Any] = []
    async with Pool(command, size=1, timeout=30) as pool:
        for name, inputs in calls:
            prepared = prepare_call(catalogue, f"AID.PLUGIN.{name}.v1", inputs=inputs)
            assert isinstance(prepared, HostCall), prepared
            answer = await pool.call(authorised(prepared))
            results.append(json.loads(answer.output_json) if isinstance(answer, ActionResult) else answer)
    return results


# ---- asking ---------------------------------------------------------------------------------------------------------


def test_a_plugin_is_asked_in_a_strict_host_and_what_it_listed_is_served(tmp_path: Path) -> None:
    require("strict")
    plugin = written(tmp_path, PLAIN)
    listing = listing_of(plugin)
    assert listing.sha256 == hashlib.sha256(PLAIN.encode()).hexdigest()
    assert (listing.sandbox["profile"], listing.sandbox["missing"]) == ("strict", {})
    assert sorted(listing.catalogue) == ["AID.PLUGIN.DOUBLE.v1", "AID.PLUGIN.WRITE.v1"]
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    work = calling(
        listing.command(os.environ, workspace=[str(workspace)]),
        listing.catalogue,
        ("DOUBLE", {"text": "ab"}),
        ("WRITE", {"path": str(workspace / "file")}),
        ("WRITE", {"path": str(tmp_path / "file")}),
    )
    assert finished(work) == ["abab", "written", "refused"]


def test_a_plugin_that_changed_since_is_not_served(tmp_path: Path) -> None:
    require("strict")
    plugin = written(tmp_path, PLAIN)
    listing = listing_of(plugin)
    written(tmp_path, PLAIN.replace("text * 2", "text * 3"))
    (error,) = finished(calling(listing.command(os.environ), listing.catalogue, ("DOUBLE", {"text": "ab"})))
    assert isinstance(error, dict)
    assert f"plugin hash mismatch: expected {listing.sha256}" in error["detail"]


def test_nothing_is_confined_for_whoever_answers_for_the_plugin(tmp_path: Path) -> None:
    plugin = written(tmp_path, PLAIN)
    listing = listing_of(plugin, sandbox="none")
    assert listing.sandbox["profile"] == "none"
    command = listing.command(os.environ, sandbox="none")
    file = tmp_path / "file"
    assert finished(calling(command, listing.catalogue, ("WRITE", {"path": str(file)}))) == ["written"]
    assert file.read_text() == "x"


def test_limits_reach_the_host(tmp_path: Path) -> None:
    require("strict")
    text = PLAIN + (
        '\n@action(effects=["none"])\n'
        "def limits() -> list[int]:\n"
        "    import resource\n"
        "    return [resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_NOFILE, resource.RLIMIT_CPU)]\n"
    )
    listing = listing_of(written(tmp_path, text))
    command = listing.command(os.environ)
    assert isinstance(command, HostCommand)
    command = replace(command, argv=(*command.argv, "--limit", "open_files=99", "--limit", "cpu_seconds=77"))
    assert finished(calling(command, listing.catalogue, ("LIMITS", {}))) == [[99, 77]]


def test_dispatch_is_strict_unless_somebody_says_otherwise() -> None:
    command = HostCommand.for_plugin("plugin.py", {})
    assert command.argv[command.argv.index("--sandbox") + 1] == "strict"


@pytest.mark.parametrize(
    ("text", "kind", "code", "detail"),
    [
        ("raise ValueError('on purpose')", "tool_error", None, "ValueError: on purpose"),
        ("import os\nos.write(2, b'last words')\nos._exit(9)", "crash", None, "last words"),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)", "crash", None, "ended by signal 11"),
        ("import os\nos._exit(0)", "parse_error", "empty_output", "returned no listing"),
        # The stream of answers is hidden, not out of reach.
        ("import os\nfor each in range(3, 1024):\n    try: os.write(each, b'x' * 65536 * 17)\n    except OSError: pass",
         "parse_error", "oversize", "more than 1,048,576 bytes"),
        ("import os\nfor each in range(3, 1024):\n    try: os.write(each, b'no JSON')\n    except OSError: pass",
         "parse_error", None, "not a JSON object"),
    ],
)  # fmt: skip
def test_a_plugin_that_cannot_say(tmp_path: Path, text: str, kind: str, code: str | None, detail: str) -> None:
    require("strict")
    error = failed(written(tmp_path, text))
    assert (error["type"], error.get("code")) == (kind, code)
    assert detail in error["detail"]


def test_a_plugin_that_hangs_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    """Without a sandbox, so that there is something to end; it ignores the polite way."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    text = f"""
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
os.fork()
held = os.open({str(pipe)!r}, os.O_WRONLY)
os.write(held, b"x")
time.sleep(600)
"""
    end = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    error = failed(written(tmp_path, text), sandbox="none", timeout=3)
    assert error["type"] == "timeout"
    os.set_blocking(end, True)
    assert os.read(end, 10) in (b"x", b"xx")  # both had started
    assert select.select([end], [], [], 30)[0]
    assert os.read(end, 10) == b""  # and neither holds it any more
    os.close(end)


FORGED = """
import json, os
said = {{"ok": True, "plugin_sha256": {sha256}, "sandbox": {{}}, "tools": [{{"aid": {aid!r}}}]}}
for each in range(3, 1024):
    try:
        os.write(each, json.dumps(said).encode())
    except OSError:
        pass
os._exit(0)
"""
OWN_HASH = "__import__('hashlib').sha256(open(__file__, 'rb').read()).hexdigest()"


@pytest.mark.parametrize(
    ("sha256", "aid", "detail"),
    [
        (repr("0" * 64), "AID.PLUGIN.X.v1", "not of the file that was hashed"),
        (OWN_HASH, "AID.BANK.PAY.v1", "AID.BANK.PAY.v1 is listed, and its actions begin with AID.PLUGIN."),
        (OWN_HASH, "AID.PLUGINS.X.v1", "AID.PLUGINS.X.v1 is listed"),
    ],
)
def test_a_forged_listing_chooses_neither_its_pin_nor_whose_it_is(
    tmp_path: Path, sha256: str, aid: str, detail: str
) -> None:
    require("strict")
    error = failed(written(tmp_path, FORGED.format(sha256=sha256, aid=aid)))
    assert error["type"] == "parse_error"
    assert detail in error["detail"]


def test_a_listing_of_its_own_making_is_still_of_the_file_that_was_hashed(tmp_path: Path) -> None:
    require("strict")
    text = FORGED.format(sha256=OWN_HASH, aid="AID.PLUGIN.X.v1")
    listing = listing_of(written(tmp_path, text))
    assert listing.sha256 == hashlib.sha256(text.encode()).hexdigest()


def test_a_plugin_that_is_not_there(tmp_path: Path) -> None:
    assert "plugin not found" in failed(str(tmp_path / "none.py"))["detail"]


@pytest.mark.parametrize("name", ["some/actions.py", "some/__init__.py", "some.py", "9 lives.py"])
def test_actions_are_called_after_their_plugin(tmp_path: Path, name: str) -> None:
    require("strict")
    plugin = tmp_path / "room" / name
    plugin.parent.mkdir(parents=True)
    plugin.write_text(PLAIN)
    family = "P9_LIVES" if name[0] == "9" else "SOME"
    assert sorted(listing_of(str(plugin)).catalogue) == [f"AID.{family}.{each}.v1" for each in ("DOUBLE", "WRITE")]


def test_a_sandbox_that_cannot_be_had_is_said(tmp_path: Path) -> None:
    error = failed(written(tmp_path, PLAIN), readable=["/nowhere/at/all"])
    assert error["type"] == "tool_error"
    assert "/nowhere/at/all" in error["detail"]


def test_a_host_that_cannot_be_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plugin = written(tmp_path, PLAIN)
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    assert failed(plugin)["type"] == "not_found"


def test_a_host_of_ours_is_started_without_code_between_fork_and_exec(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such code makes the fork slow, and the event loop waits for it. A foreign host cannot bind itself."""
    given: list[Any] = []

    def refuse(argv: list[str], **options: Any) -> None:
        given.append((options["preexec_fn"] is None, argv[-2:] == ["--parent", str(os.getpid())]))
        raise FileNotFoundError

    monkeypatch.setattr(subprocess, "Popen", refuse)
    ours = HostCommand.for_plugin("plugin.py", {})
    for command in (ours, HostCommand(argv=("toolhost",), environ={})):
        with pytest.raises(FileNotFoundError):
            launch(HostCommand(argv=command.argv, environ={}, parent_option=command.parent_option))
    assert given == [(True, True), (False, False)]


# ---- programs -------------------------------------------------------------------------------------------------------


def program(folder: Path, name: str) -> Path:
    """A program on a path of its own: a copy of a shell."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_bytes(Path("/bin/sh").read_bytes())
    path.chmod(0o755)
    return path


def test_programs_are_found_by_who_dispatches_and_started_by_the_plugin(tmp_path: Path) -> None:
    # Root is not counted by the kernel, and this interpreter may be closed to everybody else.
    if not ROOT:
        require("spawn")
    require("strict")
    shell = program(tmp_path / "bin", "shell-of-ours")
    listing = listing_of(written(tmp_path, SPAWNING.replace("PROGRAM", "shell-of-ours")))
    environ = {"PATH": f"relative:{tmp_path}/bin:/usr/bin:/bin"}
    command = listing.command(environ, programs=["shell-of-ours", "cat"], policy=SandboxPolicy(degrade=ROOT))
    assert isinstance(command, HostCommand)
    assert command.argv[command.argv.index("--executable") + 1] == str(shell)
    argument = "; $(id) | &"
    outputs = finished(
        calling(
            command,
            listing.catalogue,
            ("START", {"program": [str(shell), "-c", 'echo "$0"', argument]}),
            ("START", {"program": ["shell-of-ours", "-c", "echo by name"]}),
            ("START", {"program": ["/bin/cat", "/dev/null"]}),
        )
    )
    assert outputs == [f"{argument}\n", "by name\n", "refused"]


@pytest.mark.parametrize(
    ("spawn", "options"),
    [
        ("[]", {"programs": ["true"]}),
        ('["true"]', {}),
        ('["true"]', {"programs": ["false"]}),
        ('["true", "no-such-program"]', {"sandbox": "strict", "programs": ["true"]}),
    ],
)
def test_no_program_that_is_not_both_wanted_and_allowed(tmp_path: Path, spawn: str, options: dict[str, Any]) -> None:
    require("strict")
    listing = listing_of(written(tmp_path, SPAWNING.replace('["PROGRAM"]', spawn)))
    command = listing.command(os.environ, **options)
    assert isinstance(command, HostCommand)
    assert command.argv[command.argv.index("--sandbox") + 1] == "strict"
    outputs = finished(calling(command, listing.catalogue, ("START", {"program": ["/bin/true"]})))
    assert outputs == ["refused"]


def test_a_program_may_be_allowed_by_its_place(tmp_path: Path) -> None:
    require("strict")
    place = program(tmp_path / "bin", "tool")
    listing = listing_of(written(tmp_path, SPAWNING.replace("PROGRAM", "tool")))
    command = listing.command({"PATH": f"{tmp_path}/bin"}, programs=[str(place)])
    assert isinstance(command, HostCommand)
    assert command.argv[command.argv.index("--executable") + 1] == str(place)


@pytest.mark.parametrize("name", ["no-such-program", "/no/such/program", "plugin.py"])
def test_a_program_that_is_not_there_is_named_with_its_action(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that is there only from where one stands."""
    require("strict")
    monkeypatch.chdir(tmp_path)
    plugin = written(tmp_path, SPAWNING.replace("PROGRAM", name))
    Path(plugin).chmod(0o755)
    listing = listing_of(plugin)
    error = listing.command({"PATH": ".:plugins:/usr/bin"}, programs=[name])
    assert error == {
        "error": True,
        "aid": "AID.PLUGIN.START.v1",
        "type": "not_found",
        "detail": f"AID.PLUGIN.START.v1 names the program {name!r}, which is not installed",
    }


# ---- what is declared -----------------------------------------------------------------------------------------------


def test_what_an_action_declares_is_listed(tmp_path: Path) -> None:
    text = PLAIN + (
        '\n@action(effects=["filesystem"], mutates=False, deterministic=True, replay_inputs=["path_fingerprint"])\n'
        "def look(path: str) -> str:\n    return path\n"
    )
    command = [sys.executable, "-I", "-m", "manglecp.toolhost.host", "--list", written(tmp_path, text)]
    tools = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)["tools"]
    said = {tool["name"]: (tool["deterministic"], tool["tags"], tool["replay_inputs"]) for tool in tools}
    assert said == {
        "double": (True, ["tag.text"], []),
        "look": (True, [], ["path_fingerprint"]),
        "write": (False, [], []),
    }


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ({"deterministic": True, "effects": ["filesystem"]}, "replay_inputs has to name"),
        ({"tags": "tag.text"}, "tags is a list of strings"),
        ({"replay_inputs": "path"}, "replay_inputs is a list of strings"),
        ({"spawn": ["bin/sh"]}, "'bin/sh' is neither a name nor an absolute path"),
        ({"spawn": [""]}, "'' is neither a name nor an absolute path"),
    ],
)
def test_a_declaration_that_makes_no_sense(said: dict[str, Any], error: str) -> None:
    with pytest.raises((TypeError, ValueError), match=error):
        action(**({"effects": ["none"]} | said))
