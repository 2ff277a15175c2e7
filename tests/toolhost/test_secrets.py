"""Secrets at the hosts of a pack: which process gets which value, and when."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from manglecp.mangle import Program
from manglecp.pack import Pack, SecretProvider, SecretSource, SecretUse, read_pack
from manglecp.toolhost.action_hosts import serve_actions
from manglecp.toolhost.dispatch.catalogue import ActionProfile, list_plugin
from manglecp.toolhost.dispatch.dispatcher import Dispatcher, ServedPlugin
from manglecp.toolhost.dispatch.messages import ActionResult, DispatchError
from manglecp.toolhost.external_hosts import serve_externals
from manglecp.toolhost.generator_hosts import serve_facts
from manglecp.toolhost.passes import PassError
from tests.toolhost.dispatch.hosts import command, error, nothing_left
from tests.toolhost.sandbox.confined import require

HEAD = (
    "import gc, os, urllib.request\nfrom typing import Annotated\n"
    "from manglecp import Secret, action, external, facts\n"
)
ACTIONS = (
    HEAD
    + '''
A = Annotated[str, Secret("A")]
B = Annotated[str, Secret("B")]
kept = []


@action(effects=["none"])
def plain() -> int:
    return os.getpid()


@action(effects=["none"])
def first(a: A, *, keep: bool = False) -> list[int]:
    kept.append(a)
    return [os.getpid(), len(a)]


@action(effects=["none"])
def again(text: str, other: A) -> list[str]:
    """Say what this process knows."""
    return [str(os.getpid()), *kept, text]


@action(effects=["none"])
def second(b: B) -> list[int]:
    return [os.getpid(), len(b), len([each for each in gc.get_objects() if each == "value-of-a"])]


@action(effects=["none"])
def die(a: A, how: str, pad: int) -> None:
    if how == "stderr":
        os.write(2, (a + "x" * pad).encode())
        os._exit(3)
    for descriptor in range(3, 70_000):  # one of them is the pipe of the protocol
        try:
            os.write(descriptor, ("x" * pad + a + "\\n").encode())
        except OSError:
            continue


@action(effects=["none"])
def peek(pids: list[int]) -> list[str]:
    found = []
    for pid in (os.getppid(), *pids):
        for name in ("environ", "mem", "maps"):
            try:
                open(f"/proc/{pid}/{name}", "rb").close()
                found.append(f"{pid} {name}")
            except OSError:
                continue
    return found


@action(effects=["network"], egress=["api.test:443"], mutates=False)
def reach(a: A, url: str) -> str:
    return urllib.request.urlopen(url.format(a)).read().decode()


@action(effects=["none"])
def both(a: A, b: B = "") -> list[int]:
    return [os.getpid(), len(a), len(b)]
'''
)


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Pack:
    folder = tmp_path_factory.mktemp("secrets") / "pack"
    folder.mkdir()
    (folder / "pack.toml").write_text("[secrets.A]\n[secrets.B]\n")
    (folder / "actions.py").write_text(ACTIONS)
    return read_pack(folder)


def serving(
    pack: Pack, work: Callable[[Callable[..., Awaitable[Any]]], Awaitable[None]], secrets: SecretProvider | None = None
) -> None:
    async def main() -> None:
        async with serve_actions(pack, size=1, secrets=secrets) as dispatcher:

            async def call(name: str, **inputs: Any) -> Any:
                result = await dispatcher.call(f"AID.PACK.{name.upper()}.v1", inputs=inputs)
                return json.loads(result.output_json) if isinstance(result, ActionResult) else result

            await work(call)

    with nothing_left():
        asyncio.run(main())


def files(folder: Path, **values: str) -> SecretProvider:
    for name, text in values.items():
        (folder / name).write_text(text)
    return SecretProvider({name: SecretSource("file", (str(folder / name),)) for name in ("A", "B")})


def test_a_process_gets_the_secrets_of_one_group_of_actions(pack: Pack, tmp_path: Path) -> None:
    async def work(call: Callable[..., Awaitable[Any]]) -> None:
        answers = [await call("plain"), *[(await call(name))[0] for name in ("first", "second", "both")]]
        assert len(set(answers)) == 4
        assert int((await call("again", text="x"))[0]) == answers[1], "it takes the same secrets"
        assert await call("second") == [answers[2], 10, 0], "the value of the other group is not in its memory"
        assert await call("both") == [answers[3], 10, 10]

    serving(pack, work, files(tmp_path, A="value-of-a", B="value-of-b"))


def test_a_host_reads_neither_the_server_nor_another_host(pack: Pack, tmp_path: Path) -> None:
    require("strict")

    async def work(call: Callable[..., Awaitable[Any]]) -> None:
        pid, _ = await call("first")
        assert await call("peek", pids=[os.getpid(), pid]) == []

    serving(pack, work, files(tmp_path, A="value-of-a"))


def test_callers_cannot_supply_a_secret(pack: Pack, tmp_path: Path) -> None:
    async def work(call: Callable[..., Awaitable[Any]]) -> None:
        refused = await call("first", a="of-the-caller")
        assert error(refused) == ("tool_error", None)
        assert "'a' is not a member" in refused["detail"]

    serving(pack, work, files(tmp_path, A="value-of-a", B="value-of-b"))


def test_a_rotation_needs_no_restart_and_the_old_value_stays_redacted(pack: Pack, tmp_path: Path) -> None:
    secrets = files(tmp_path, A="old-value-of-a")

    async def work(call: Callable[..., Awaitable[Any]]) -> None:
        pid, length = await call("first")
        assert length == 14
        for number in range(12):  # more than are redacted without a host
            (tmp_path / "A").write_text(f"rotated-value-{number:09}")
            assert await call("first") == [pid, 23]
        assert await call("again", text="x") == [str(pid), *["[secret A]"] * 13, "x"]
        os.kill(pid, signal.SIGKILL)
        (tmp_path / "A").write_text("value-after-the-end")
        while isinstance(answer := await call("first"), dict):  # the end of the host may not be noticed yet
            assert answer["type"] == "crash"
        assert (answer[0] != pid, answer[1]) == (True, 19)

    serving(pack, work, secrets)


def test_a_host_that_has_received_many_values_is_replaced(pack: Pack, tmp_path: Path) -> None:
    secrets = files(tmp_path, A="old-value-of-a")

    async def work(call: Callable[..., Awaitable[Any]]) -> None:
        pid, _ = await call("first")
        for number in range(64):
            (tmp_path / "A").write_text(f"rotated-value-{number:09}")
            await call("first")
        async with asyncio.timeout(60):
            while (await call("first"))[0] == pid:
                await asyncio.sleep(0.05)

    serving(pack, work, secrets)


def test_the_error_that_names_a_destination_has_no_value(pack: Pack, tmp_path: Path) -> None:
    require("strict")

    async def work(call: Callable[..., Awaitable[Any]]) -> None:
        as_user = await call("reach", url="http://{}@other.test/")
        assert 'egress=["other.test:80", …]' in as_user["detail"]
        as_label = await call("reach", url="http://{}.other.test/")
        assert 'egress=["[secret A].other.test:80", …]' in as_label["detail"]
        assert "abcdef" not in json.dumps([as_user, as_label]).lower()

    serving(pack, work, files(tmp_path, A="ghp_AbCdEf0123456789"))


@pytest.mark.parametrize(("how", "pad"), [("stderr", 0), ("stderr", 8_180), ("protocol", 0), ("protocol", 195)])
def test_the_error_of_a_host_that_was_lost_has_no_value(how: str, pad: int, pack: Pack, tmp_path: Path) -> None:
    async def work(call: Callable[..., Awaitable[Any]]) -> None:
        lost = await call("die", how=how, pad=pad)
        assert lost["type"] in ("crash", "parse_error")
        assert "[secret" in lost["detail"] or pad == 195
        assert not any(f"{number:03}:" in lost["detail"] for number in range(20)), lost["detail"]

    serving(pack, work, files(tmp_path, A="".join(f"{number:03}:" for number in range(20))))


def test_without_a_value_a_call_is_not_sent(pack: Pack, tmp_path: Path) -> None:
    secrets = files(tmp_path, A="value-of-a")

    async def work(call: Callable[..., Awaitable[Any]]) -> None:
        refused = await call("second")
        assert error(refused) == ("exception", "no_secret")
        assert refused["detail"] == f"the secret B has no value: the file {tmp_path / 'B'} is missing or empty"
        assert "sent" not in refused
        assert (await call("both"))[1:] == [10, 0], "the parameter has a default"
        (tmp_path / "B").write_text("short")
        assert "less than 8 characters" in (await call("second"))["detail"]
        assert error(await call("both")) == ("exception", "no_secret")
        (tmp_path / "B").write_text("value-of-b")
        assert (await call("second"))[1] == 10

    serving(pack, work, secrets)


def test_a_command_that_hangs_ends_with_the_call(pack: Pack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("manglecp.pack.secrets._COMMAND_SECONDS", 1.0)

    async def main() -> DispatchError | ActionResult:
        async with serve_actions(pack, size=1, secrets=secrets) as dispatcher:
            return await dispatcher.call("AID.PACK.FIRST.v1", timeout=0.2)

    secrets = SecretProvider({"A": SecretSource("command", ("sleep", "600"))})
    refused = asyncio.run(main())
    secrets.executor.shutdown()  # ends the command while its time limit is that of this test
    assert error(refused) == ("timeout", None)
    assert "while the secrets were read" in refused["detail"]  # type: ignore[index]  # error() has checked it


def test_external_predicates_and_generators_take_secrets(tmp_path: Path) -> None:
    folder = tmp_path / "pack"
    (folder / "rules").mkdir(parents=True)
    (folder / "pack.toml").write_text("[secrets.A]\n[secrets.B]\n")
    (folder / "rules" / "a.mg").write_text(
        'Decl near(A, B) descr [external(), mode("+", "-")] bound [/string, /string].\n'
        'Decl pid(A) descr [external(), mode("-")] bound [/number].\n'
        "Decl one(A, B) bound [/number, /string].\nDecl two(A, B) bound [/number, /string].\n"
    )
    (folder / "externals.py").write_text(
        HEAD
        + '@external("near(A, B)", mode="+-", batch=True, seconds=60)\n'
        + 'def near(questions, *, a: Annotated[str, Secret("A")]):\n'
        + '    return [[str(len(a))], [f"{a} {os.getpid()}"]]\n'
        + '@external("pid(A)", mode="-", seconds=60)\ndef pid():\n    yield os.getpid()\n'
    )
    (folder / "facts.py").write_text(
        "from __future__ import annotations\n"
        + HEAD
        + "".join(
            f'@facts("{name}")\ndef {name}(secret: Annotated[str, Secret("{secret}")] = "none"):\n'
            f'    yield ("{name}", os.getpid(), secret)\n    yield ("{name}", 0, str(len(secret)))\n'
            for name, secret in (("one", "A"), ("two", "B"))
        )
    )
    pack, secrets = read_pack(folder), files(tmp_path, A="value-of-a")
    with serve_externals(pack, size=1, secrets=secrets) as externals:
        length, said = (rows[0][0] for rows in externals["near"].answer([("x",), ("y",)]))
        assert length == "10"
        assert isinstance(said, str)
        assert said.startswith("[secret A] ")
        assert externals["pid"].answer([()]) != [[(int(said.split()[-1]),)]]
    predicates = Program.load(pack.sources).predicates
    with serve_facts(pack, cache=False, secrets=secrets) as generators:
        assert generators is not None
        found = {(fact.predicate, *fact.args) for fact in generators.begin(predicates)}
        pids = {fact[0]: fact[1] for fact in found if fact[1]}
        assert pids["one"] != pids["two"]
        assert found >= {("one", 0, "10"), ("one", pids["one"], "[secret A]"), ("two", pids["two"], "none")}
        (tmp_path / "A").write_text("a-longer-value-of-a")
        result = generators.run_pass("one")
        assert {fact.args for fact in result.added} == {(0, "19")}
        generators.commit(result)
        (tmp_path / "A").write_text("short")
        with pytest.raises(PassError, match="the secret A has less than 8 characters"):
            generators.run_pass("one")


def test_a_plugin_without_a_pack_gets_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plugin = tmp_path / "tool.py"
    plugin.write_text(ACTIONS)
    monkeypatch.setenv("A", "value-of-a")
    listing = list_plugin(str(plugin), {})
    assert not isinstance(listing, dict)
    assert listing.catalogue["AID.TOOL.BOTH.v1"].secrets == (SecretUse("A", True), SecretUse("B", False))
    host = listing.command({})
    assert not isinstance(host, dict)

    async def main() -> None:
        async with Dispatcher([ServedPlugin(listing.catalogue, host)], size=1) as dispatcher:
            result = await dispatcher.call("AID.TOOL.FIRST.v1")
            assert isinstance(result, ActionResult), result
            assert json.loads(result.output_json)[1] == 10

    asyncio.run(main())


def test_a_host_of_others_gets_no_secrets() -> None:
    profile = ActionProfile(aid="AID.ECHO.v1", tier=0, secrets=(SecretUse("A", True),))
    with pytest.raises(ValueError, match=r"AID\.ECHO\.v1 takes secrets, which only hosts of manglecp receive"):
        Dispatcher([ServedPlugin({"AID.ECHO.v1": profile}, command())])
