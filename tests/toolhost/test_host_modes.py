"""Conversations with real host processes: exit status, framing and every member that the contract fixes."""

import hashlib
import json
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.toolhost.conversation import HOST, WORKSPACE, host, request, serve

ECHO = "AID.WORKSPACE.ECHO.v1"
EMPTY_DELTA = {"delta": True, "slots": {}, "removed_slots": []}
MAX = 10 * 1024 * 1024


def ok(output: str, ds_state: Any = EMPTY_DELTA) -> dict[str, Any]:
    return {"ok": True, "status": "OK", "output_json": output, "error": "", "ds_state": ds_state}


def refused(error: str, status: str = "TOOL_ERROR") -> bytes:
    """Every member, also of an answer to no request at all."""
    return f'{{"ok":false,"status":"{status}","output_json":"{{}}","error":"{error}","ds_state":{{}}}}'.encode()


# ------------------------------------------------------------------------------------------------ list


def test_a_listing_is_sorted_and_says_everything() -> None:
    done = host("--list", WORKSPACE)
    assert done.returncode == 0
    assert not done.stdout.endswith(b"\n")
    listing = json.loads(done.stdout)
    assert listing["ok"] is True
    assert listing["plugin_sha256"] == hashlib.sha256(Path(WORKSPACE).read_bytes()).hexdigest()
    tools = {tool["aid"]: tool for tool in listing["tools"]}
    assert list(tools) == sorted(tools)
    assert tools[ECHO] == {
        "aid": ECHO,
        "name": "echo",
        "deterministic": False,
        "tags": [],
        "side_effects": ["none"],
        "replay_inputs": [],
        "description": "Say it again.",
        "inputs_schema": {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "properties": {
                "text": {"type": "string", "description": "what to say", "default": ""},
                "times": {"type": "integer", "minimum": 1, "maximum": 3, "default": 1},
            },
            "required": [],
            "additionalProperties": False,
        },
        "outputs_schema": {"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "string"},
        "tier": 0,
        "capabilities": {"spawn": []},
        "reversible": False,
        "idempotent": True,
        "mutates": True,
        "timeout": None,
    }
    find = tools["AID.WORKSPACE.FIND.v1"]
    assert (find["side_effects"], find["tier"], find["timeout"]) == (["filesystem"], 0, 5)
    assert find["outputs_schema"]["properties"]["lines"] == {"type": "array", "items": {"type": "integer"}}
    assert tools["AID.WORKSPACE.WRITE.v1"]["tier"] == 1
    assert tools["AID.WORKSPACE.PID.v2"]["capabilities"] == {"spawn": ["/bin/true"]}
    assert set(tools["AID.WORKSPACE.NOISY.v1"]["inputs_schema"]["properties"]) == set()


@pytest.mark.parametrize(
    ("arguments", "status", "error"),
    [
        (["--run", WORKSPACE], 2, "missing aid"),
        (["--walk", WORKSPACE], 2, "unknown mode: --walk"),
        (["--walk", "/nowhere.py"], 3, "plugin not found: /nowhere.py"),
        (["--list", "no.such.module"], 3, "cannot find plugin no.such.module: No module named 'no'"),
        (["--run", WORKSPACE, "AID.X"], 4, "tool not found in plugin: AID.X"),
    ],
)
def test_what_the_command_line_can_get_wrong(arguments: list[str], status: int, error: str) -> None:
    done = host(*arguments)
    answer = json.loads(done.stdout)
    assert (done.returncode, answer["ok"], answer["error"]) == (status, False, error)
    assert not done.stdout.endswith(b"\n")


@pytest.mark.parametrize("arguments", [[], ["--list"], ["--list", WORKSPACE, "--progress-fd", "99"], ["--sha256"]])
def test_too_few_arguments_say_how_to_use_it(arguments: list[str]) -> None:
    done = host(*arguments)
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"usage:" in done.stderr


@pytest.mark.parametrize("source", ["import nothing_such", "exit(0)", "def f(:", "print(1); 1 / 0"])
def test_a_plugin_that_cannot_be_loaded(tmp_path: Path, source: str) -> None:
    plugin = tmp_path / "broken.py"
    plugin.write_text(source)
    done = host("--list", str(plugin))
    answer = json.loads(done.stdout)
    assert done.returncode == 3
    assert answer["error"].startswith(f"cannot load plugin {plugin}: ")
    assert list(tmp_path.iterdir()) == [plugin]


def test_only_the_pinned_plugin_is_run() -> None:
    pin = hashlib.sha256(Path(WORKSPACE).read_bytes()).hexdigest()
    assert host("--list", WORKSPACE, "--sha256", pin).returncode == 0
    done = host("--list", WORKSPACE, "--sha256", "0" * 64)
    assert done.returncode == 3
    assert b"plugin hash mismatch" in done.stdout


def test_a_plugin_may_be_a_module() -> None:
    done = host("--list", "tests.toolhost.plugins.workspace")
    assert (done.returncode, ECHO.encode() in done.stdout) == (0, True)


# ------------------------------------------------------------------------------------------------ run


@pytest.mark.req("IPC-08", "IPC-09", "IPC-19", "IPC-22")
def test_run_answers_with_the_whole_state() -> None:
    kept = {"type": "t", "provenance": "p", "content_json": "{}", "size_bytes": 2}
    stdin = json.dumps({"input_json": '{"text":"hé"}', "ds_state": {"slots": {"3": kept}}})
    done = host("--run", WORKSPACE, ECHO, stdin=stdin.encode())
    assert done.returncode == 0
    assert not done.stdout.endswith(b"\n")
    answer = json.loads(done.stdout)
    assert answer == ok(answer["output_json"], {"slots": {"3": kept}})
    assert json.loads(answer["output_json"]) == "hé"


@pytest.mark.req("IPC-34")
def test_run_that_fails_is_still_a_run() -> None:
    done = host("--run", WORKSPACE, "AID.WORKSPACE.FAIL.v1", stdin=b'{"inputs":{"how":"badly"}}')
    expected = {"ok": True, "status": "TOOL_ERROR", "output_json": "{}", "error": "ValueError: badly"}
    answer = json.loads(done.stdout)
    assert "raise ValueError" in answer.pop("traceback")
    assert (done.returncode, answer) == (0, {**expected, "ds_state": {"slots": {}}})


@pytest.mark.parametrize("stdin", [b"", b"null", b"[]", b"{", b"{} {}", b"\xff", b'{"a":NaN}', b"\xef\xbb\xbf{}"])
def test_run_refuses_what_is_no_request(stdin: bytes) -> None:
    done = host("--run", WORKSPACE, ECHO, stdin=stdin)
    assert (done.returncode, done.stdout) == (5, refused("invalid JSON request on stdin"))


@pytest.mark.req("IPC-37")
def test_run_refuses_more_than_it_may_read() -> None:
    largest = b'{"inputs":{"text":"x"}}'.ljust(MAX)
    assert json.loads(host("--run", WORKSPACE, ECHO, stdin=largest).stdout) == ok('"x"', {"slots": {}})
    assert host("--run", WORKSPACE, ECHO, stdin=largest + b"\n").returncode == 0
    assert host("--run", WORKSPACE, ECHO, stdin=largest + b"\n\n").returncode == 5
    done = host("--run", WORKSPACE, ECHO, stdin=largest + b" ")
    assert (done.returncode, done.stdout) == (5, refused("stdin exceeds 10MB limit"))


# ------------------------------------------------------------------------------------------------ serve


@pytest.mark.req("IPC-10", "IPC-11", "IPC-12", "IPC-19", "IPC-20", "IPC-21", "IPC-22", "IPC-40")
def test_each_line_has_one_answer_in_order() -> None:
    deep = b"[" * 100_000
    answers = serve(
        request("echo", {"text": "a"}),
        b" ",
        b"\r",
        b"null",
        b"[1]",
        b"{}",
        b'{"aid":7}',
        b'{"aid":""}',
        deep,
        b'{"aid":"AID.X"}{}',
        b'{"aid":"AID.X"}',
        b'{"aid":"_lease.issue"}',
        f'{{"aid":"{ECHO}"}}\r'.encode(),
        request("echo", {"text": "\u2028\x00\ud800"}),
    )
    invalid, missing = json.loads(refused("invalid JSON")), json.loads(refused("missing aid"))
    assert answers[:8] == [ok('"a"'), *[invalid] * 3, *[missing] * 4]
    assert answers[8:10] == [invalid] * 2
    assert answers[10] == json.loads(refused("tool not found: AID.X", "INVALID_PICK"))
    assert answers[11] == json.loads(refused("tool not found: _lease.issue", "INVALID_PICK"))
    assert answers[12] == ok('""')
    assert json.loads(answers[13]["output_json"]) == "\u2028\x00\ud800"


@pytest.mark.req("IPC-17", "IPC-18")
def test_input_is_text_or_an_object_and_never_both() -> None:
    aid = f'"aid":"{ECHO}"'
    answers = serve(
        f'{{{aid},"inputs":{{"text":"a"}}}}'.encode(),
        f'{{{aid},"input_json":"{{}}","inputs":{{}}}}'.encode(),
        f'{{{aid},"input_json":{{}}}}'.encode(),
        f'{{{aid},"inputs":[]}}'.encode(),
        f'{{{aid},"input_json":""}}'.encode(),
        request("echo", {"text": 1}),
        request("echo", {"times": 4}),
        request("echo", {"other": 4}),
        request("find", {}),
    )
    assert answers[0] == ok('"a"')
    assert all(answer["ok"] is False and answer["status"] == "INVALID_PICK" for answer in answers[1:])
    assert answers[5]["error"] == "invalid input: /text: 1 is not a string"
    assert answers[8]["error"] == "invalid input: 'path' is missing"


def test_a_last_line_needs_no_newline_and_an_empty_one_ends() -> None:
    done = host("--serve", WORKSPACE, stdin=request("echo", {"text": "a"}))
    assert (done.returncode, json.loads(done.stdout), done.stdout[-1:]) == (0, ok('"a"'), b"\n")
    assert len(serve(request("echo"), b"", request("echo"))) == 1


@pytest.mark.req("IPC-37")
def test_a_line_that_is_too_long_is_refused_and_skipped() -> None:
    largest = request("echo", {"text": "x"}).ljust(MAX)
    answers = serve(largest, largest + b" ", largest * 2, request("echo", {"text": "b"}))
    too_long = json.loads(refused("stdin exceeds 10MB limit"))
    assert answers == [ok('"x"'), too_long, too_long, ok('"b"')]


def test_a_call_is_named_in_its_answer() -> None:
    answers = serve(request("echo", call_id="c1"), request("nothing", call_id="c2"), request("echo", call_id=3))
    assert [answer.get("call_id") for answer in answers] == ["c1", "c2", None]


def test_tools_cannot_touch_the_protocol() -> None:
    assert serve(request("noisy"), request("echo", {"text": "a"})) == [ok('""'), ok('"a"')]


@pytest.mark.parametrize("how", ["exit", "interrupt", "recursion", "object", "nan", "other"])
def test_no_failure_ends_the_host(how: str) -> None:
    failed, after = serve(request("fail", {"how": how}), request("echo", {"text": "a"}))
    assert (failed["ok"], failed["status"], failed["ds_state"]) == (True, "TOOL_ERROR", EMPTY_DELTA)
    assert failed["error"]
    assert after == ok('"a"')


def test_async_actions_and_typed_results() -> None:
    answers = serve(
        request("later", {"seconds": 0.001}), request("later", {"seconds": 0}), request("find", {"path": "p"})
    )
    assert answers == [ok('"done"'), ok('"done"'), ok('{"path":"p:fast","lines":[1,2]}')]


def test_a_host_leaves_at_once() -> None:
    with subprocess.Popen([*HOST, "--serve", WORKSPACE], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(request("fail", {"how": "thread"}) + b"\n")
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["status"] == "OK"
        start = time.monotonic()
        process.stdin.write(b"\n")
        process.stdin.flush()
        assert process.wait(5) == 0
        # 50 ms is what a client of upstream waits; a loaded machine is slow, not wrong.
        assert time.monotonic() - start < 1


# --------------------------------------------------------------------------------------------- other clients


@pytest.mark.parametrize(
    ("options", "environ"),
    [(("--ignore-extra-inputs",), {}), ((), {"MANGLECP_TOOLHOST_IGNORE_EXTRA_INPUTS": "1"})],
)
def test_inputs_without_a_parameter_are_dropped_where_that_is_wanted(
    options: tuple[str, ...], environ: dict[str, str]
) -> None:
    lines = [request("echo", {"text": "a", "plugin_relative_path": "x.py"}), request("echo", {"text": 7, "other": 1})]
    assert [answer["status"] for answer in serve(*lines)] == ["INVALID_PICK", "INVALID_PICK"]
    dropped, wrong = serve(*lines, options=options, environ=environ)
    assert (dropped["status"], dropped["output_json"]) == ("OK", '"a"')
    assert (wrong["status"], "/text: 7 is not a string" in wrong["error"]) == ("INVALID_PICK", True)


def tool_exec(*arguments: str, stdin: bytes = b"{}", plugin: str = WORKSPACE) -> tuple[int, bytes]:
    done = host("tool_exec", *arguments, stdin=stdin, environ={"MANGLECP_TOOLHOST_PLUGIN": plugin})
    return done.returncode, done.stdout


@pytest.mark.req("IPC-08")
def test_the_command_line_of_upstreams_dispatch() -> None:
    code, answer = tool_exec(ECHO, stdin=b'{"input_json":"{\\"text\\":\\"a\\"}","ds_state":{"slots":{"5":{}}}}')
    assert (code, json.loads(answer)["output_json"], set(json.loads(answer)["ds_state"]["slots"])) == (0, '"a"', {"5"})
    unknown = {"ok": True, "status": "TOOL_ERROR", "output_json": "{}", "error": "MISSING_TOOL: AID.X", "ds_state": {}}
    code, answer = tool_exec("AID.X")
    assert (code, json.loads(answer)) == (0, unknown)
    assert tool_exec(ECHO, stdin=b"{") == (5, refused("invalid JSON on stdin"))
    assert tool_exec() == (2, refused("missing aid"))
    assert tool_exec(ECHO, plugin="/no/such.py")[0] == 3
    without = host("tool_exec", ECHO)
    assert (without.returncode, b"MANGLECP_TOOLHOST_PLUGIN" in without.stderr, without.stdout) == (2, True, b"")
