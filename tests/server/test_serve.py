"""``manglecp serve`` and ``manglecp dev`` as processes: signals, several processes on one socket, streams, logs."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import re
import resource
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner, Result
from cryptography.hazmat.primitives import serialization

from manglecp.cli import cli
from manglecp.cli.serve import announce_callback
from manglecp.server.logs import configure_logging
from tests.processes import Logging
from tests.server.certificates import certificate
from tests.server.desk import PATIENCE, encoded, intent, invoke

INCIDENT = Path(__file__).parents[2] / "examples" / "incident"
MANIFEST = "/.well-known/manglecp/manifest.json"
JSON = {"content-type": "application/json"}


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    folder = tmp_path / "pack"
    (folder / "rules").mkdir(parents=True)
    (folder / "pack.toml").write_text(
        '[pack]\nname = "small"\nversion = "1.0.0"\n[[intents]]\nname = "go"\ndescription = "Go"\n'
    )
    (folder / "rules" / "a.mg").write_text("seen(X) :- intent(X).\n")
    return folder


def served_at(said: str) -> str:
    """The address that a server names, in a line or in a record."""
    found = re.search(r'serving at ([^\s"]+)', said)
    assert found is not None, said
    return found[1]


class Process(Logging):
    def __init__(self, folder: Path, *args: str) -> None:
        self.log = folder / "stderr"
        with self.log.open("wb") as stderr:
            self.popen = subprocess.Popen(
                [sys.executable, "-m", "manglecp", *args],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env={**os.environ, "MANGLECP_STATE_DIR": str(folder / "state")},
                # A test run in the background ignores interrupts, and its children would inherit that.
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            )

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.said().splitlines() if line.startswith("{")]

    def url(self) -> str:
        """Once it serves."""
        self.until(lambda: "serving at " in self.said())
        url = served_at(self.said())

        def ready() -> bool:
            with contextlib.suppress(httpx.TransportError):
                return httpx.get(f"{url}/ready", timeout=PATIENCE, trust_env=False).status_code == 200
            return False

        self.until(ready)
        return url

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.popen.send_signal(number)
        return self.popen.wait(PATIENCE)


@contextlib.contextmanager
def process(folder: Path, *args: str) -> Iterator[Process]:
    made = Process(folder, *args)
    try:
        yield made
    finally:
        if made.popen.poll() is None:
            made.popen.kill()
            made.popen.wait(PATIENCE)
        for stream in (made.popen.stdin, made.popen.stdout):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):
                stream.close()


def run(*args: str) -> Result:
    return CliRunner().invoke(cli, args)


def evaluated(url: str, **headers: str) -> httpx.Response:
    return httpx.post(
        f"{url}/evaluate",
        content=encoded(intent("r-1")),
        headers={**JSON, **headers},
        timeout=PATIENCE,
        trust_env=False,
    )


@pytest.mark.req("TRANS-24", "SEC-35")
def test_a_server_on_this_machine_until_a_signal(pack: Path, tmp_path: Path) -> None:
    with process(tmp_path, "serve", str(pack), "--http", "127.0.0.1:0", "--store", ":memory:") as p:
        url = p.url()
        answer = evaluated(url)
        assert (answer.status_code, answer.json()["type"]) == (200, "intent_response")
        with httpx.Client(base_url=url, timeout=PATIENCE, trust_env=False) as kept:  # a connection that stays open
            assert kept.get("/health").status_code == 200
            assert p.end() == 0
        assert p.popen.stdout is not None
        assert p.popen.stdout.read() == b""
        [logged] = [one for one in p.lines() if one.get("request_id") == "r-1"]
        assert (logged["level"], logged["session"], logged["identity"]) == ("info", "http-2", "anonymous") or logged[
            "session"
        ]
        assert logged["milliseconds"] > 0
        assert p.lines()[-1]["message"] == "drained"
        assert len(p.lines()) == len(p.said().splitlines())
        assert [one["url"] for one in p.lines() if "url" in one] == [url]


@pytest.mark.parametrize(
    ("form", "terminal", "as_record"), [("json", False, True), ("json", True, False), ("text", False, False)]
)
def test_where_it_serves_is_said_as_everything_else_is(
    form: str, terminal: bool, as_record: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    monkeypatch.setattr(logging.getLogger(), "level", logging.WARNING)
    monkeypatch.setattr(logging.getLogger("manglecp"), "level", logging.NOTSET)
    configure_logging("error", as_json=form == "json")
    announce_callback(form)("http://127.0.0.1:1")
    said = capsys.readouterr().err
    if as_record:
        record = json.loads(said)
        assert (record["level"], record["message"]) == ("info", "serving at http://127.0.0.1:1")
        assert record["url"] == "http://127.0.0.1:1"
    else:
        assert said == "serving at http://127.0.0.1:1\n"


@pytest.mark.req("SEC-08", "MANI-25", "MANI-26")
def test_nothing_is_open_to_others_by_mistake(pack: Path, tmp_path: Path) -> None:
    for at in ("0.0.0.0:0", "[::]:0", "192.0.2.1:0"):
        refused = run("serve", str(pack), "--http", at)
        assert refused.exit_code == 2
        assert "--open-demo" in refused.stderr
    tokens = tmp_path / "tokens.toml"
    tokens.write_text(f'[[token]]\nsha256 = "{hashlib.sha256(b"good").hexdigest()}"\nidentity = "ann"\n')
    starred = run("serve", str(pack), "--http", "0.0.0.0:0", "--tokens", str(tokens), "--origin", "*")
    assert starred.exit_code == 2
    assert "named origins" in starred.stderr
    with process(
        tmp_path, "serve", str(pack), "--http", "0.0.0.0:0", "--tokens", str(tokens), "--store", ":memory:"
    ) as p:
        url = p.url().replace("0.0.0.0", "127.0.0.1")
        shown = httpx.get(f"{url}{MANIFEST}", timeout=PATIENCE, trust_env=False).json()["payload"]
        assert shown["auth"] == {"required": True, "schemes": ["bearer"]}
        assert evaluated(url).status_code == 401
        assert evaluated(url, authorization="Bearer good").status_code == 200
        assert evaluated(url, authorization="Bearer good", host="evil.example").status_code == 421
        assert "good" not in p.said()
        tokens.write_text("[[token]]")
        p.popen.send_signal(signal.SIGHUP)
        p.until(lambda: "cannot be reloaded" in p.said())
        assert evaluated(url, authorization="Bearer good").status_code == 200
        tokens.write_text("")
        p.popen.send_signal(signal.SIGHUP)
        p.until(lambda: "it has 0" in p.said())
        assert evaluated(url, authorization="Bearer good").status_code == 401
        assert p.end(signal.SIGINT) == 0
    with process(tmp_path, "serve", str(pack), "--http", "0.0.0.0:0", "--open-demo", "--store", ":memory:") as p:
        assert evaluated(p.url().replace("0.0.0.0", "127.0.0.1")).status_code == 200
        assert p.end() == 0


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--http", "nowhere"), "HOST:PORT"),
        (("--http", "127.0.0.1:99999"), "HOST:PORT"),
        (("--stdio", "--http", "127.0.0.1:0"), "--stdio"),
        (("--stdio", "--workers", "2"), "--stdio"),
        (("--workers", "2", "--store", ":memory:"), "share"),
        (("--jwt-issuer", "https://login.example"), "--jwt-audience"),
        (("--trusted-proxy", "proxy.example"), "not an address"),
        (("--trusted-proxy", "0.0.0.0/0"), "all addresses"),
        (("--drain-seconds", "0"), "--drain-seconds"),
    ],
)
def test_command_lines_that_make_no_sense(pack: Path, args: tuple[str, ...], said: str) -> None:
    refused = run("serve", str(pack), *args)
    assert refused.exit_code == 2
    assert said in refused.stderr


def test_a_broken_pack_is_not_served(pack: Path, tmp_path: Path) -> None:
    (pack / "rules" / "a.mg").write_text("p(X) :- q(Y).")
    for args in (("--http", "127.0.0.1:0", "--store", ":memory:"), ("--http", "127.0.0.1:0", "--workers", "2")):
        with process(tmp_path, "serve", str(pack), *args) as p:
            assert p.popen.wait(PATIENCE) == 1
            assert "a.mg:1" in p.said()
            assert "serving at" not in p.said()
            assert "is replaced" not in p.said()
    with process(tmp_path, "serve", str(pack), "--stdio", "--store", ":memory:") as p:
        assert p.popen.wait(PATIENCE) == 1
        assert p.popen.stdout is not None
        assert [json.loads(line)["payload"]["status"] for line in p.popen.stdout] == ["booting"]
        assert "a.mg:1" in p.said()
    (pack / "pack.toml").write_text("[pack]\nnames = 3\n")
    with process(tmp_path, "serve", str(pack), "--stdio") as p:
        assert p.popen.wait(PATIENCE) == 1
        assert p.popen.stdout is not None
        assert p.popen.stdout.read() == b""
        assert "names" in p.said()


def test_a_store_that_cannot_be_opened_is_told_and_nothing_is_served(pack: Path, tmp_path: Path) -> None:
    with process(tmp_path, "serve", str(pack), "--http", "127.0.0.1:0", "--store", "files://x") as p:
        assert p.popen.wait(PATIENCE) == 1
        assert "error[store]: there is no store of the kind files://; it is a path" in p.said()
        assert "serving at" not in p.said()


def test_an_address_that_cannot_be_listened_at_is_told_with_what_to_do(pack: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        for verb in ("serve", "dev"):
            refused = run(verb, str(pack), "--http", f"127.0.0.1:{taken.getsockname()[1]}")
            assert refused.exit_code == 1
            assert "another process uses this port. Choose another with --http" in refused.stderr
    for at, said in (
        ("192.0.2.1:0", "does not have this address"),
        ("nobody.invalid:0", "a name or an address"),
    ):
        refused = run("serve", str(pack), "--http", at, "--open-demo")
        assert refused.exit_code == 1
        assert said in refused.stderr


@pytest.mark.req("SEC-34")
def test_files_of_tls_that_are_none_are_told_before_anything_listens(pack: Path, tmp_path: Path) -> None:
    certified, key = certificate(tmp_path)
    (tmp_path / "other").mkdir()
    _, another = certificate(tmp_path / "other")
    secret = serialization.load_pem_private_key(key.read_bytes(), None).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"x")
    )
    (tmp_path / "secret.pem").write_bytes(secret)
    (tmp_path / "damaged.pem").write_bytes(certified.read_bytes()[:200] + certified.read_bytes()[220:])
    for cert, its, said in (
        (key, None, "contains no certificate in PEM form"),
        (certified, None, "contains no key in PEM form"),
        (certified, another, "is not that of the certificate"),
        (certified, tmp_path / "secret.pem", "protected by a password"),
        (tmp_path / "damaged.pem", key, "damaged"),
    ):
        args = () if its is None else ("--tls-key", str(its))
        refused = run("serve", str(pack), "--http", "127.0.0.1:0", "--tls-cert", str(cert), *args)
        assert (refused.exit_code, said in refused.stderr) == (2, True), refused.stderr


def test_a_process_that_says_what_is_wrong_is_not_replaced_and_one_that_crashes_is(tmp_path: Path) -> None:
    """However long it took to find out."""
    script = """
import os, sys
from manglecp.server import workers
workers._YOUNG = 0.0
def serve():
    lives = os.open(sys.argv[1], os.O_CREAT | os.O_APPEND | os.O_RDWR)
    os.write(lives, b"x")
    if os.fstat(lives).st_size == 1:
        raise RuntimeError("a crash")
    return 2
sys.exit(workers.run_workers(1, serve, lambda _: None))
"""
    ended = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "lives")], capture_output=True, timeout=PATIENCE, check=False
    )
    assert (ended.returncode, (tmp_path / "lives").read_text()) == (2, "xx")
    assert b"RuntimeError: a crash" in ended.stderr


def test_a_signal_while_processes_are_started_ends_all_of_them() -> None:
    """None is overlooked, and none passes on to itself what was meant for it."""
    script = """
import os, signal, sys, time
from manglecp.server import workers
fork = os.fork
def forked():
    parent, pid = os.getpid(), fork()
    if pid == 0:
        os.kill(parent, signal.SIGTERM)
        time.sleep(0.2)
    return pid
os.fork = forked
def serve():
    time.sleep(600)
sys.exit(workers.run_workers(2, serve, lambda _: None))
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=PATIENCE, check=False)
    assert ended.returncode == signal.SIGTERM


def test_limits_come_from_a_file(pack: Path, tmp_path: Path) -> None:
    config = tmp_path / "server.toml"
    config.write_text('[http]\nbase = "/api"\n[rates]\npeer = { per_second = 1, burst = 2 }\n')
    with process(
        tmp_path, "serve", str(pack), "--http", "127.0.0.1:0", "--store", ":memory:", "--config", str(config)
    ) as p:
        url = p.url()
        shown = httpx.get(f"{url}{MANIFEST}", timeout=PATIENCE, trust_env=False).json()["payload"]
        assert shown["endpoints"] == {
            "intent_eval": "/api/evaluate",
            "macro_invoke": "/api/invoke",
            "x-approvals": "/api/approvals",
            "x-decide": "/api/decide",
            "x-skills": "/api/skills",
            "x-facts": "/api/facts",
        }
        assert evaluated(url).status_code == 404
        assert 429 in [evaluated(f"{url}/api").status_code for _ in range(20)]
        assert p.end() == 0
    config.write_text("[http]\nbasis = 3\n")
    refused = run("serve", str(pack), "--http", "127.0.0.1:0", "--config", str(config))
    assert refused.exit_code == 1
    assert "basis" in refused.stderr


@pytest.mark.req("MANI-30")
def test_a_store_that_takes_nothing_degrades_the_server_until_it_does(tmp_path: Path) -> None:
    """A full disk can still be read."""
    config, store = tmp_path / "server.toml", tmp_path / "store.db"
    config.write_text("[states]\nprobe_ms = 50\n")
    where = ("--http", "127.0.0.1:0", "--store", str(store), "--config", str(config))
    with process(tmp_path, "serve", str(INCIDENT), *where) as p:
        url = p.url()

        def observed(number: int) -> int:
            asked = encoded(intent(f"r-{number}", "observe", eval_time=f"2026-02-19T14:{number:02}:00Z"))
            answer = httpx.post(f"{url}/evaluate", content=asked, headers=JSON, timeout=PATIENCE, trust_env=False)
            return answer.status_code

        def status() -> str:
            manifest = httpx.get(f"{url}{MANIFEST}", timeout=PATIENCE, trust_env=False).json()["payload"]
            assert ("store" in manifest["extensions"].get("x-degraded", {})) == (manifest["status"] == "degraded")
            return str(manifest["status"])

        assert (observed(0), status()) == (200, "ready")
        _, hard = resource.prlimit(p.popen.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(p.popen.pid, resource.RLIMIT_FSIZE, (0, hard))
        assert (observed(1), status()) == (500, "degraded")
        time.sleep(0.5)  # looked at some times meanwhile
        assert status() == "degraded"
        resource.prlimit(p.popen.pid, resource.RLIMIT_FSIZE, (hard, hard))
        p.until(lambda: status() == "ready")
        assert observed(2) == 200
        assert p.end() == 0


@pytest.mark.req("MANI-30")
def test_a_server_without_hosts_says_so_and_no_effect_is_in_doubt(pack: Path, tmp_path: Path) -> None:
    (pack / "actions.py").write_text(
        'import sys\nfrom manglecp import action\n\nif "--serve" in sys.argv:\n    raise OSError("no licence")\n\n'
        '@action(effects=["filesystem"], idempotent=True)\ndef again() -> dict:\n    """A."""\n    return {}\n\n'
        '@action(effects=["filesystem"])\ndef once() -> dict:\n    """B."""\n    return {}\n'
    )
    (pack / "rules" / "a.mg").write_text(
        "".join(
            f'macro("t_{name}", "T."). mandatory("t_{name}") :- intent("go"). macro_step("t_{name}", 1, "{name}").\n'
            for name in ("again", "once")
        )
    )
    with process(tmp_path, "serve", str(pack), "--http", "127.0.0.1:0", "--store", ":memory:", "--degrade") as p:
        url = p.url()
        with httpx.Client(base_url=url, headers=JSON, timeout=PATIENCE, trust_env=False) as client:
            tools = evaluated(url).json()["payload"]["macro_tools"]
            assert {tool["name"] for tool in tools} == {"t_again", "t_once"}
            for tool in tools:
                answer = client.post("/invoke", content=encoded(invoke("i", tool["macro_id"], {}))).json()["payload"]
                assert (answer["code"], answer["recoverable"]) == ("internal_error", False)
                assert answer["message"] == "The server cannot start its tool hosts"
            p.until(lambda: client.get("/health").json()["status"] == "degraded")
            manifest = client.get(MANIFEST).json()["payload"]
            assert (manifest["status"], list(manifest["extensions"]["x-degraded"])) == ("degraded", ["hosts"])
            assert "no host can be started" in p.said()
            assert "no licence" in p.said()
            assert "no licence" not in json.dumps(manifest)
        assert p.end() == 0


def test_several_processes_share_an_address(pack: Path, tmp_path: Path) -> None:
    store = str(tmp_path / "store.db")
    with process(tmp_path, "serve", str(pack), "--http", "127.0.0.1:0", "--workers", "2", "--store", store) as p:
        url = p.url()
        p.until(lambda: p.said().count("serving at") == 2)
        children = Path(f"/proc/{p.popen.pid}/task/{p.popen.pid}/children")
        first = [int(one) for one in children.read_text().split()]
        assert len(first) == 2
        p.until(lambda: all(evaluated(url).status_code == 200 for _ in range(8)))
        os.kill(first[0], signal.SIGKILL)
        p.until(lambda: p.said().count("serving at") == 3)
        second = [int(one) for one in children.read_text().split()]
        assert first[1] in second
        assert len(second) == 2

        def counted() -> bool:
            shown = httpx.get(f"{url}/metrics", timeout=PATIENCE, trust_env=False).text
            labels = 'error_type="",intent="go",message_type="intent_request",tool="",transport="http"'
            return f"manglecp_server_operation_duration_seconds_count{{{labels}}}" in shown

        p.until(counted)
        assert p.end() == 0
        assert not any(Path(f"/proc/{one}").exists() for one in second)


def test_a_rate_is_of_all_processes_and_of_the_client_behind_a_proxy(pack: Path, tmp_path: Path) -> None:
    config = tmp_path / "server.toml"
    config.write_text("[rates]\npeer = { per_second = 1, burst = 20 }\n")
    args = ("--http", "127.0.0.1:0", "--workers", "2", "--store", str(tmp_path / "store.db"))
    limits = ("--config", str(config), "--trusted-proxy", "127.0.0.1")
    with process(tmp_path, "serve", str(pack), *args, *limits) as p:
        url = p.url()
        p.until(lambda: p.said().count("serving at") == 2)
        began = time.monotonic()
        # Each request is on a connection of its own, which either process may take.
        found = [evaluated(url, **{"x-forwarded-for": "198.51.100.1"}).status_code for _ in range(60)]
        most = 20 + (time.monotonic() - began) + 2
        assert 10 <= found.count(200) <= most
        assert found.count(429) >= 60 - most
        p.until(lambda: evaluated(url, **{"x-forwarded-for": "198.51.100.2"}).status_code == 200)
        assert {one["peer"] for one in p.lines() if "peer" in one} == {"198.51.100.1", "198.51.100.2"}
        assert p.end() == 0


def asked(client: httpx.Client, url: str, message: dict[str, Any]) -> dict[str, Any]:
    answer = client.post(url, content=encoded(message), headers=JSON)
    assert answer.status_code == 200, answer.text
    payload: dict[str, Any] = answer.json()["payload"]
    return payload


def test_a_tool_of_one_process_is_a_tool_of_the_others(tmp_path: Path) -> None:
    folder = tmp_path / "drafts"
    assert run("new", str(folder)).exit_code == 0
    args = ("--http", "127.0.0.1:0", "--workers", "2", "--store", str(tmp_path / "store.db"), "--degrade")
    with process(tmp_path, "serve", str(folder), *args) as p, contextlib.ExitStack() as stack:
        url = p.url()
        p.until(lambda: p.said().count("serving at") == 2)
        clients = [stack.enter_context(httpx.Client(timeout=PATIENCE, trust_env=False)) for _ in range(8)]

        def ready() -> bool:  # each connection belongs to one of the processes
            return all(one.get(f"{url}/ready").status_code == 200 for one in clients)

        p.until(ready)
        [tool] = asked(clients[0], f"{url}/evaluate", intent("a", "review"))["macro_tools"]
        for n, client in enumerate(clients):
            told = asked(client, f"{url}/invoke", invoke(f"b-{n}", tool["macro_id"], {"text": "One two. Three."}))
            assert told["result"]["words"] == 3
        assert p.end() == 0


def test_tls_from_the_command_line(pack: Path, tmp_path: Path) -> None:
    certified, key = certificate(tmp_path)
    args = ("--http", "127.0.0.1:0", "--tls-cert", str(certified), "--tls-key", str(key), "--store", ":memory:")
    with process(tmp_path, "serve", str(pack), *args) as p:
        p.until(lambda: "serving at https://" in p.said())
        url = served_at(p.said())

        def reached() -> bool:
            """With the certificate that is in the file now."""
            trusting = ssl.create_default_context(cafile=certified)
            try:
                answer = httpx.get(f"{url}{MANIFEST}", verify=trusting, timeout=PATIENCE, trust_env=False)
            except httpx.ConnectError:
                return False
            return answer.status_code == 200

        assert reached()
        before = certified.read_text()
        certified.write_text("nothing")
        p.popen.send_signal(signal.SIGHUP)
        p.until(lambda: "contains no certificate" in p.said())
        certified.write_text(before)
        assert reached()
        certificate(tmp_path)
        assert not reached()
        p.popen.send_signal(signal.SIGHUP)
        p.until(lambda: "the certificate is reloaded" in p.said())
        assert reached()
        assert p.end() == 0


def test_an_edit_is_served_on_a_signal_and_a_broken_one_is_not(pack: Path, tmp_path: Path) -> None:
    with process(tmp_path, "serve", str(pack), "--http", "127.0.0.1:0", "--store", ":memory:") as p:
        url = p.url()

        def manifest() -> dict[str, Any]:
            payload: dict[str, Any] = httpx.get(f"{url}{MANIFEST}", timeout=PATIENCE, trust_env=False).json()["payload"]
            return payload

        settings = (pack / "pack.toml").read_text()
        (pack / "pack.toml").write_text(settings.replace("1.0.0", "2.0.0"))
        p.popen.send_signal(signal.SIGHUP)
        p.until(lambda: manifest()["server_version"] == "2.0.0")
        (pack / "pack.toml").write_text("[pack")
        p.popen.send_signal(signal.SIGHUP)
        p.until(lambda: manifest()["status"] == "degraded")
        assert manifest()["server_version"] == "2.0.0"
        assert evaluated(url).status_code == 200
        assert p.end() == 0


def test_dev_serves_every_edit(pack: Path, tmp_path: Path) -> None:
    with process(tmp_path, "dev", str(pack), "--http", "127.0.0.1:0", "--store", ":memory:") as p:
        url = p.url()
        settings = (pack / "pack.toml").read_text()
        (pack / "pack.toml").write_text(settings.replace("1.0.0", "2.0.0"))
        p.until(lambda: "serving the new pack revision" in p.said())
        shown = httpx.get(f"{url}{MANIFEST}", timeout=PATIENCE, trust_env=False).json()["payload"]
        assert shown["server_version"] == "2.0.0"
        (pack / "rules" / "a.mg").write_text("p(X) :- q(Y).")
        p.until(lambda: "still serving the old pack revision" in p.said())
        assert evaluated(url).status_code == 200
        assert p.end(signal.SIGINT) == 0
    with process(tmp_path, "dev", str(pack), "--http", "127.0.0.1:0", "--store", ":memory:") as p:
        p.until(lambda: "waiting for a valid pack" in p.said())
        assert "a.mg:1" in p.said()
        (pack / "rules" / "a.mg").write_text("seen(X) :- intent(X).")
        assert evaluated(p.url()).status_code == 200
        assert p.end() == 0
    with process(tmp_path, "dev", str(pack), "--http", "0.0.0.0:0") as p:
        assert p.popen.wait(PATIENCE) == 2


@pytest.mark.req("TRANS-24", "TRANS-25", "TRANS-26", "TRANS-27", "TRANS-31", "CONF-13")
def test_the_standard_streams_of_a_process(pack: Path, tmp_path: Path) -> None:
    with process(tmp_path, "serve", str(pack), "--stdio", "--store", ":memory:") as p:
        assert p.popen.stdout is not None
        assert p.popen.stdin is not None
        booting = json.loads(p.popen.stdout.readline())  # nothing was said yet
        assert (booting["type"], booting["payload"]["status"]) == ("manifest", "booting")
        ready = json.loads(p.popen.stdout.readline())["payload"]
        assert ready["status"] == "ready"
        p.popen.stdin.write(encoded(intent("a")) + b"\n")
        p.popen.stdin.close()
        rest = [json.loads(line) for line in p.popen.stdout.read().splitlines()]
        assert [(one["type"], one["id"]) for one in rest] == [("intent_response", "a")]
        assert ready["protocol"]["conformance_level"] == booting["payload"]["protocol"]["conformance_level"]
        assert p.popen.wait(PATIENCE) == 0
        assert any(one.get("request_id") == "a" for one in p.lines())


@pytest.mark.req("TRANS-28")
def test_streams_may_ask_for_a_credential_too(pack: Path, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.toml"
    tokens.write_text(f'[[token]]\nsha256 = "{hashlib.sha256(b"good").hexdigest()}"\nidentity = "ann"\n')
    said = b"\n".join(
        encoded(one)
        for one in (
            intent("a"),
            {
                "type": "authenticate",
                "id": "b",
                "manglecp": "2026-02-draft",
                "payload": {"scheme": "bearer", "token": "good"},
            },
            intent("c"),
        )
    )
    with process(tmp_path, "serve", str(pack), "--stdio", "--store", ":memory:", "--tokens", str(tokens)) as p:
        assert p.popen.stdout is not None
        while json.loads(p.popen.stdout.readline())["payload"]["status"] != "ready":
            pass
        heard, _ = p.popen.communicate(said, timeout=PATIENCE)
        told = {one["id"]: one for one in map(json.loads, heard.splitlines())}
        assert told["a"]["payload"]["code"] == "auth_required"
        assert told["b"]["payload"]["identity"] == "ann"
        assert told["c"]["type"] == "intent_response"
