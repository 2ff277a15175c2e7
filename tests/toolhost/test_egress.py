"""Declared egress: decorators, packs, the operator's limits, groups of hosts, and the life of a broker."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from manglecp.intent import Domain, manifest
from manglecp.mangle import Program
from manglecp.pack import Pack, PackError, Problems, SandboxPolicy, read_pack
from manglecp.server.config import ServerSettings, parse_server_settings
from manglecp.toolhost import ActionResult, HostCommand, action, diagnose_sandbox, external, facts
from manglecp.toolhost.action_hosts import group_actions
from manglecp.toolhost.actions import declaration, served_function
from manglecp.toolhost.dispatch.pool import Pool
from manglecp.toolhost.external_hosts import serve_externals
from manglecp.toolhost.generator_hosts import serve_facts
from manglecp.toolhost.host import broker
from manglecp.toolhost.host.broker import Broker, is_public
from tests.adversarial._leftovers import call_of, pool_of
from tests.deadlines import patience
from tests.toolhost.dispatch.hosts import nothing_left, pids_of, running
from tests.toolhost.sandbox.confined import require

# --- declarations ----------------------------------------------------------------------------------------------------


def declared(function: Callable[..., Any]) -> tuple[str, ...]:
    found = declaration(served_function(function))
    assert found is not None
    return found.egress


def test_every_kind_of_function_declares_its_destinations() -> None:
    egress = ["B.test:443", "a.test:443", "{database}"]
    expected = ("a.test:443", "b.test:443", "{database}")

    @action(effects=["network"], egress=egress)
    def act() -> None: ...

    @external("same(A, B)", mode="+-", egress=egress)
    def same(a: str) -> list[str]:
        return [a]

    @facts("seen", egress=egress)
    def scan() -> Iterable[tuple[str]]:
        return []

    assert declared(act) == declared(same) == declared(scan) == expected


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"effects": ["network"], "egress": "a.test:443"}, "egress is a list of strings"),
        ({"effects": ["network"], "egress": ["*.test:443"]}, "egress: '*.test:443' has a wildcard"),
        ({"effects": ["network"], "egress": ["{A b}"]}, "egress: '{A b}' has no port"),
        ({"effects": ["filesystem"], "egress": ["a.test:443"]}, "has the effect 'network'"),
    ],
)
def test_a_wrong_declaration_is_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises((TypeError, ValueError), match=r".") as caught:
        action(**options)
    assert problem in str(caught.value)


# --- packs -----------------------------------------------------------------------------------------------------------

ACTIONS = """
from manglecp import action

@action(effects=["network"], egress=["{api}", "b.test:443"], mutates=False)
def ask(text: str) -> str:
    return text

@action(effects=["network"], egress=["b.test:443"], mutates=False)
def tell(text: str) -> str:
    return text

@action(effects=["none"])
def think(text: str) -> str:
    return text
"""
SETTINGS = """
[params.api]
default = "A.test:443"
[params.proxy]
default = ""
"""


def read(folder: Path, actions: str = ACTIONS, settings: str = SETTINGS, **options: Any) -> Pack:
    folder.mkdir(exist_ok=True)
    (folder / "actions.py").write_text(actions)
    (folder / "pack.toml").write_text(settings)
    return read_pack(folder, **options)


def problems(folder: Path, *arguments: str, **options: Any) -> list[str]:
    with pytest.raises(PackError) as caught:
        read(folder, *arguments, **options)
    return [f"{each.message}; {each.fix}" for each in caught.value.diagnostics]


def test_a_param_names_a_destination(tmp_path: Path) -> None:
    pack = read(tmp_path / "a")
    assert pack.egress == {"ask": ("a.test:443", "b.test:443"), "tell": ("b.test:443",)}
    pack = read(tmp_path / "a", params={"api": "127.0.0.1:8000"})
    assert pack.egress["ask"] == ("127.0.0.1:8000", "b.test:443")
    assert read(tmp_path / "a", ACTIONS.replace("{api}", "{proxy}")).egress["ask"] == ("b.test:443",)
    (problem,) = problems(tmp_path / "a", params={"api": "https://a.test"})
    assert "leave out the scheme" in problem
    (problem,) = problems(tmp_path / "a", ACTIONS.replace("{api}", "{other}"))
    assert problem == "ask: egress: the pack has no param other; add [params.other] to pack.toml"


def test_the_effect_network_needs_egress(tmp_path: Path) -> None:
    (problem,) = problems(tmp_path / "a", ACTIONS.replace(', egress=["b.test:443"]', ""))
    assert problem.startswith("tell has the effect 'network', and no egress")
    assert problem.endswith('@action(effects=["network"], egress=["HOST:PORT"])')
    weaker = '[sandbox]\nprofile = "standard"\n' + SETTINGS
    assert read(tmp_path / "a", ACTIONS.replace(', egress=["b.test:443"]', ""), weaker).egress.keys() == {"ask"}


def test_the_operator_narrows_what_a_pack_declares(tmp_path: Path) -> None:
    assert read(tmp_path / "a", sandbox=SandboxPolicy(egress=("a.test:443", "b.test:443"))).egress
    found = problems(tmp_path / "a", sandbox=SandboxPolicy(egress=("b.test:443",)))
    refusal = "ask connects to a.test:443, which the operator does not allow"
    assert found == [f'{refusal}; add "a.test:443" to allow in [egress] of server.toml']
    assert len(problems(tmp_path / "a", sandbox=SandboxPolicy(egress=()))) == 3


def test_a_listing_cannot_forge_destinations(tmp_path: Path) -> None:
    forged = ACTIONS + 'ask.__manglecp_action__ = ask.__manglecp_action__._replace(egress=("*.test:1",))\n'
    (problem,) = problems(tmp_path / "a", forged)
    assert "'*.test:1' has a wildcard" in problem


def test_check_says_which_effects_a_writable_folder_covers(tmp_path: Path) -> None:
    settings = '[params.place]\nkind = "folder"\ndefault = ""\nwritable = true\n'
    source = "from manglecp import action\n\n@action(effects=[{}])\ndef act() -> None:\n    ...\n"
    (nothing,) = read(tmp_path / "a", source.format("'none'"), settings).warnings
    assert nothing.message == "params.place is writable for no action: only for those with the effect 'filesystem'"
    database, _ = read(tmp_path / "a", source.format("'database'"), settings).warnings
    assert database.message == "act: it cannot write params.place: its effects do not include 'filesystem'"
    assert not read(tmp_path / "a", source.format("'database', 'filesystem'"), settings).warnings


def test_only_actions_with_the_same_egress_share_a_host(tmp_path: Path) -> None:
    groups = group_actions(read(tmp_path / "a"), lambda _: False, anything_changeable=False)
    assert {rights.egress: len(aids) for rights, aids in groups.items()} == {
        (): 1,
        ("a.test:443", "b.test:443"): 1,
        ("b.test:443",): 1,
    }


def test_the_manifest_has_the_destinations(tmp_path: Path) -> None:
    extensions = manifest(Domain.load(read(tmp_path / "a"))).payload.extensions
    assert isinstance(extensions, dict)
    assert extensions["x-egress"] == {"destinations": ["a.test:443", "b.test:443"]}


def test_check_prints_the_destinations(tmp_path: Path) -> None:
    read(tmp_path / "a")
    shown = _manglecp("check", str(tmp_path / "a"))
    assert shown.splitlines()[-2:] == ["ask connects to a.test:443, b.test:443", "tell connects to b.test:443"]
    assert json.loads(_manglecp("check", "--json", str(tmp_path / "a")))["egress"]["tell"] == ["b.test:443"]


def _manglecp(*arguments: str) -> str:
    done = subprocess.run([sys.executable, "-m", "manglecp", *arguments], capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def test_the_settings_of_a_server() -> None:
    found = Problems()
    settings = parse_server_settings("s", '[egress]\nallow = ["A.test:1"]\nprivate = ["b.test:2"]\n', found)
    assert (settings.egress, settings.private) == (("a.test:1",), ("b.test:2",))
    assert settings.restrict(SandboxPolicy(private=("c.test:3",))) == SandboxPolicy(
        egress=("a.test:1",), private=("c.test:3", "b.test:2")
    )
    assert ServerSettings().restrict(SandboxPolicy()) == SandboxPolicy()
    assert parse_server_settings("s", "[egress]\nallow = []\n", found).egress == ()
    assert not found.any_error
    parse_server_settings("s", '[egress]\nallow = ["a.test"]\n', found)
    with pytest.raises(PackError, match=r"egress.allow: 'a.test' has no port: write a.test:443"):
        found.raise_if_errors()


def test_doctor_names_the_setting_that_helps() -> None:
    profiles = dict(diagnose_sandbox())
    assert list(profiles) == ["standard", "spawn", "strict"]
    assert {"egress", "network_namespace", "seccomp"} <= profiles["strict"].keys()
    assert "egress" not in profiles["standard"]
    setpriv = shutil.which("setpriv")
    without = [setpriv, "--bounding-set=-all", "--inh-caps=-all"] if os.getuid() == 0 and setpriv else []
    code = "import sys; from manglecp.cli import main; sys.argv = ['manglecp', 'doctor']; sys.exit(main())"
    done = subprocess.run([*without, sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "strict: " in done.stdout
    if without:
        assert done.returncode == 1
        assert "kernel.unprivileged_userns_clone=1" in done.stdout


# --- addresses -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("address", ["8.8.8.8", "2606:4700:4700::1111", "64:ff9b::808:808", "2002:808:808::1"])
def test_a_public_address(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "127.80.0.1", "0.0.0.0", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254"),
        *("100.64.0.1", "100.100.100.200", "168.63.129.16", "192.0.0.192", "192.0.2.1", "198.18.0.1", "224.0.0.1"),
        *("239.1.1.1", "240.0.0.1", "255.255.255.255"),
        *("::", "::1", "::7f00:1", "fe80::1", "fe80::1%lo", "fc00::1", "fd00:ec2::254", "ff02::1", "2001:db8::1"),
        *("::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "64:ff9b:1::1", "2002:7f00:1::1", "2001::1"),
    ],
)
def test_an_address_that_is_not_public(address: str) -> None:
    assert not is_public(address)


# The process of a broker ends with its sockets open.
OPEN_LISTENERS = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


class _Wire:
    """A broker in threads of this process, with a listening socket in the place of that of a host."""

    def __init__(self, destination: str) -> None:
        self.control, end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        channel, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with socket.create_server(("127.0.0.1", 0)) as listener, other:
            self.address = listener.getsockname()
            socket.send_fds(other, [b"listeners"], [listener.fileno()])
        self._ends = (end, channel)
        self._thread = threading.Thread(target=self._serve, args=(destination, end, channel))
        self._thread.start()

    def _serve(self, destination: str, end: socket.socket, channel: socket.socket) -> None:
        with end, channel:
            Broker([destination], [], end).serve(channel)

    def __enter__(self) -> _Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self.control.close()
        self._thread.join()

    def report(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.control.recv(65_536))
        return document


@pytest.fixture(autouse=True)
def _default_stack() -> Any:
    size = threading.stack_size()
    yield
    threading.stack_size(size)


@OPEN_LISTENERS
def test_connections_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker, "MAX_CONNECTIONS", 2)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with _Wire(f"127.0.0.1:{port}") as wire:
            wire.control.send(b"+one")
            kept = []
            for _ in range(2):
                kept.append(socket.create_connection(wire.address))
                assert wire.report() == {
                    "message": f"connected to 127.0.0.1:{port} at 127.0.0.1",
                    "failed": False,
                    "calls": ["one"],
                }
                kept.append(server.accept()[0])
            with socket.create_connection(wire.address) as refused:
                assert wire.report()["message"].endswith("the host has 2 connections already")
                with pytest.raises(ConnectionResetError):
                    refused.recv(1)
            for each in kept:
                each.close()


@OPEN_LISTENERS
def test_each_direction_ends_by_itself_and_a_slow_reader_slows_the_sender() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with _Wire(f"127.0.0.1:{port}") as wire:
            wire.control.send(b"+one")
            with socket.create_connection(wire.address) as client:
                wire.report()
                accepted, _ = server.accept()
                with accepted:
                    client.sendall(b"question")
                    client.shutdown(socket.SHUT_WR)
                    assert accepted.makefile("rb").read() == b"question"
                    accepted.setblocking(False)
                    sent = 0
                    deadline = time.monotonic() + patience(20)
                    while time.monotonic() < deadline:
                        try:
                            sent += accepted.send(bytes(1 << 20))
                        except BlockingIOError:
                            break
                    assert sent < 64 << 20, "the broker reads what nobody takes"
                    accepted.setblocking(True)
                    accepted.shutdown(socket.SHUT_WR)
                    assert len(client.makefile("rb").read()) == sent


def test_what_a_call_has_sent_does_not_wait_for_the_next_call() -> None:
    is_open, closing = threading.Event(), threading.Lock()
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as host:
        accepted, _ = listener.accept()
        connection = broker._Connection(accepted)
        with accepted:
            host.sendall(b"during the call")
            wait_until(lambda: len(accepted.recv(99, socket.MSG_PEEK)) == 15)
            connection.count_sent()
            host.sendall(b"after the call")
            assert connection.receive(is_open, closing) == b"during the call"
            received: list[bytes] = []
            thread = threading.Thread(target=lambda: received.append(connection.receive(is_open, closing)))
            thread.start()
            assert received == []
            is_open.set()
            thread.join()
            assert received == [b"after the call"]


@OPEN_LISTENERS
def test_idle_connections_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker, "IDLE_SECONDS", 1)
    with socket.create_server(("127.0.0.1", 0)) as server, _Wire(f"127.0.0.1:{server.getsockname()[1]}") as wire:
        wire.control.send(b"+one")
        with socket.create_connection(wire.address) as client:
            wire.report()
            accepted, _ = server.accept()
            with accepted:
                assert client.recv(1) == b""
                assert accepted.recv(1) == b""


# --- hosts -----------------------------------------------------------------------------------------------------------

PLUGIN = """
import os, socket, time
from manglecp import action


def answer(port, hang=False):
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(b"hello")
        text = connection.recv(99).decode()
        if hang:
            time.sleep(600)
        return text


@action(effects=["network"], egress=["127.0.0.1:1"])
def ask(port: int, hang: bool = False) -> str:
    return answer(port, hang)


@action(effects=["network", "process"], egress=["127.0.0.1:1"])
def leave(port: int) -> str:
    connection = socket.create_connection(("127.0.0.1", port), timeout=60)
    connection.sendall(b"hello")
    text = connection.recv(99).decode()
    if not os.fork():
        while True:
            connection.sendall(b"still here")
            time.sleep(0.01)
    return text
"""


class Echo(threading.Thread):
    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.server.getsockname()[1]
        self.open = 0
        self.heard: list[bytes] = []
        self.start()

    def run(self) -> None:
        while True:
            try:
                connection, _ = self.server.accept()
            except OSError:
                return
            threading.Thread(target=self._echo, args=(connection,), daemon=True).start()

    def _echo(self, connection: socket.socket) -> None:
        self.open += 1
        with connection:
            while data := connection.recv(99):
                self.heard.append(data)
                connection.sendall(data)
        self.open -= 1


@pytest.fixture
def echo() -> Any:
    server = Echo()
    yield server
    server.server.shutdown(socket.SHUT_RDWR)
    server.server.close()
    server.join()


def _command(folder: Path, port: int) -> HostCommand:
    require("strict")
    plugin = folder / "plugin.py"
    plugin.write_text(PLUGIN)
    return HostCommand.for_plugin(str(plugin), os.environ, egress=[f"127.0.0.1:{port}"])


def brokers(pool: Pool) -> list[int]:
    """Return the brokers of a pool: the children of its hosts."""
    files = (Path(f"/proc/{pid}/task/{pid}/children") for pid in pids_of(pool))
    return [int(child) for file in files for child in file.read_text().split()]


def wait_until(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + patience(20)
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.no_cover
def test_a_broker_ends_with_its_host_and_a_host_with_its_broker(tmp_path: Path, echo: Echo) -> None:
    async def main() -> None:
        async with pool_of(command) as pool:
            assert isinstance(await pool.call(call_of("ask", port=echo.port)), ActionResult)
            (first,) = brokers(pool)
            os.kill(pids_of(pool)[0], signal.SIGKILL)
            await asyncio.to_thread(wait_until, lambda: not running(first))
            assert isinstance(await pool.call(call_of("ask", port=echo.port)), ActionResult)
            (second,) = brokers(pool)
            host = pids_of(pool)[0]
            os.kill(second, signal.SIGKILL)
            while running(host):  # a health check or the next call finds that the broker is gone
                await pool.call(call_of("ask", port=echo.port))
            assert isinstance(await pool.call(call_of("ask", port=echo.port)), ActionResult)
            (third,) = brokers(pool)
        await asyncio.to_thread(wait_until, lambda: not running(third))

    command = _command(tmp_path, echo.port)
    with nothing_left():
        asyncio.run(main())


SERVER = """
import asyncio, pickle, sys
from tests.adversarial._leftovers import call_of, pool_of
from tests.toolhost.test_egress import brokers

async def main():
    command, port = pickle.loads(bytes.fromhex(sys.argv[1]))
    async with pool_of(command) as pool:
        task = asyncio.create_task(pool.call(call_of("ask", port=port, hang=True)))
        while not brokers(pool):
            await asyncio.sleep(0.01)
        print(brokers(pool)[0], flush=True)
        await task

asyncio.run(main())
"""


@pytest.mark.no_cover
def test_kill_9_of_the_server_ends_the_connections(tmp_path: Path, echo: Echo) -> None:
    import pickle

    argument = pickle.dumps((_command(tmp_path, echo.port), echo.port)).hex()
    with subprocess.Popen([sys.executable, "-c", SERVER, argument], stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        pid = int(server.stdout.readline())
        wait_until(lambda: echo.open == 1)
        server.kill()
    wait_until(lambda: not running(pid))
    wait_until(lambda: echo.open == 0)


@pytest.mark.no_cover
def test_a_process_that_a_call_leaves_behind_loses_its_connections(tmp_path: Path, echo: Echo) -> None:
    async def main() -> None:
        async with pool_of(command) as pool:
            result = await pool.call(call_of("leave", port=echo.port))
            assert isinstance(result, ActionResult), result
            await asyncio.to_thread(wait_until, lambda: echo.open == 0)

    plain = _command(tmp_path, echo.port)
    policy = SandboxPolicy(degrade=os.getuid() == 0)  # the kernel does not limit the processes of root
    egress = [f"127.0.0.1:{echo.port}"]
    command = HostCommand.for_plugin(plain.argv[5], os.environ, sandbox="spawn", egress=egress, policy=policy)
    with nothing_left():
        asyncio.run(main())


LIFESPAN = """

@lifespan
def session():
    with socket.create_connection(("127.0.0.1", PORT), timeout=60) as kept:
        kept.sendall(b"login")
        kept.recv(99)
        yield
        kept.sendall(b"logout")
        kept.recv(99)
    answer(PORT)
"""


@pytest.mark.no_cover
def test_the_end_of_a_lifespan_connects_as_its_start_does(tmp_path: Path, echo: Echo) -> None:
    async def main() -> None:
        async with pool_of(command) as pool:
            assert isinstance(await pool.call(call_of("ask", port=echo.port)), ActionResult)

    command = _command(tmp_path, echo.port)
    source = PLUGIN.replace("import action", "import action, lifespan") + LIFESPAN.replace("PORT", str(echo.port))
    (tmp_path / "plugin.py").write_text(source)
    asyncio.run(main())
    assert echo.heard == [b"login", b"hello", b"logout", b"hello"]


RESOLVING = """
import asyncio, socket
from manglecp import action


started = []


@action(effects=["none"], concurrency=2)
async def resolve(host: str, calls: int) -> None:
    started.append(host)
    while len(started) < calls:
        await asyncio.sleep(0.01)
    await asyncio.get_running_loop().getaddrinfo(host, 80)
"""


@pytest.mark.no_cover
def test_an_error_names_no_destinations_of_concurrent_calls(tmp_path: Path) -> None:
    require("strict")
    plugin = tmp_path / "plugin.py"
    plugin.write_text(RESOLVING)

    async def main() -> None:
        async with pool_of(HostCommand.for_plugin(str(plugin), os.environ, concurrency=2)) as pool:
            both = [pool.call(call_of("resolve", host=host, calls=2)) for host in ("one.test", "two.test")]
            for answer in await asyncio.gather(*both):
                assert "gaierror" in str(answer)
                assert "declare" not in str(answer)
            alone: Any = await pool.call(call_of("resolve", host="one.test", calls=3))
            assert "to connect to one.test:80, declare" in alone["detail"]

    asyncio.run(main())


@pytest.mark.no_cover
def test_externals_and_generators_have_egress(tmp_path: Path, echo: Echo) -> None:
    require("strict")
    source = PLUGIN[: PLUGIN.index("@action")].replace("action", "external, facts") + (
        f'@external("ask(Port, Text)", mode="+-", deterministic=False, seconds=60, egress=["127.0.0.1:{echo.port}"])\n'
        "def ask(port: int) -> list[str]:\n    return [answer(port)]\n\n\n"
        '@external("fail(Port, Text)", mode="+-", deterministic=False, seconds=60)\n'
        "def fail(port: int) -> list[str]:\n    return [answer(port)]\n"
    )
    generator = PLUGIN[: PLUGIN.index("@action")].replace("action", "facts") + (
        f'@facts("heard", egress=["127.0.0.1:{echo.port}"])\n'
        f'def hear():\n    """Hear."""\n    yield "heard", answer({echo.port})\n\n\n'
        '@facts("overheard", egress=["b.test:443"])\n'
        "def overhear():\n    try:\n"
        f'        yield "overheard", answer({echo.port})\n    except OSError:\n        yield "overheard", "nothing"\n'
    )
    (tmp_path / "externals.py").write_text(source)
    (tmp_path / "facts.py").write_text(generator)
    (tmp_path / "rules").mkdir()
    rules = "Decl heard(Text) bound [/string].\nDecl overheard(Text) bound [/string].\n"
    (tmp_path / "rules" / "a.mg").write_text(rules)
    pack = read_pack(tmp_path)
    assert set(pack.egress) == {"ask", "hear", "overhear"}
    with serve_externals(pack, size=1) as predicates:
        assert predicates["ask"].answer([(echo.port,)]) == [[("hello",)]]
        with pytest.raises(Exception, match="external predicate fail failed"):
            predicates["fail"].answer([(echo.port,)])
    with serve_facts(pack, cache=False) as generators:
        assert generators is not None
        found = generators.begin(Program.load(pack.sources).predicates)
        assert sorted(map(str, found)) == ['heard("hello")', 'overheard("nothing")'], "each has its own destinations"
