"""Case 36: actions with egress that connect elsewhere, by addresses, names, other sockets, or when no call is open."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from manglecp.toolhost.sandbox.kernel import number
from tests.adversarial import _egress_lab as lab
from tests.deadlines import patience
from tests.toolhost.sandbox.confined import Identity, identities, require
from tests.toolhost.sandbox.hosted import argv, folder_of, host as hosted, plugin

pytestmark = pytest.mark.no_cover
ROOT = Path(__file__).parents[2]
Attempt = list[str | int]

ALLOWED: list[Attempt] = [
    ["get", "http://api.test/allowed"],
    ["get", "http://API.Test/case"],
    ["get", "http://listed.test/listed"],  # private, and permitted by the operator
    ["get", "http://127.0.0.1:8001/literal"],  # private, and named by the pack
    ["get", "http://10.1.2.3:8001/literal"],
    ["get", "http://rebound.test/first"],
]
NAMED_IN_THE_ERROR: dict[str, Attempt] = {  # destinations that are not declared
    "other.test:80": ["get", "http://other.test/"],
    "api.test:82": ["get", "http://api.test:82/"],
    "93.184.215.14:80": ["get", "http://93.184.215.14/"],
    "93.184.215.14:8001": ["dial", "93.184.215.14", 8001],
    "127.0.0.1:80": ["dial", "127.0.0.1", 80],
    "10.1.2.3:80": ["dial", "10.1.2.3", 80],
    "169.254.169.254:80": ["get", "http://169.254.169.254/latest/meta-data/"],
    "api.test.:80": ["get", "http://api.test./"],
    "xn--pi-7ib.test:80": ["get", "http://xn--pi-7ib.test/"],
    "2130706433:80": ["get", "http://2130706433/"],
    "0x7f000001:80": ["get", "http://0x7f000001/"],
    "[::ffff:127.0.0.1]:80": ["dial_ipv6", "::ffff:127.0.0.1", 80],
    "[::ffff:93.184.215.14]:80": ["dial_ipv6", "::ffff:93.184.215.14", 80],
    "[2606:4700::1]:443": ["dial_ipv6", "2606:4700::1", 443],
}
REDIRECTED: dict[str, Attempt] = {
    "other.test:80": ["get", "http://api.test/to/other.test/"],
    "169.254.169.254:80": ["get", "http://api.test/to/169.254.169.254/"],
}
REFUSED: list[Attempt] = [
    ["fast_open", "93.184.215.15", 80],
    ["open_socket", 2, 2],  # UDP
    ["open_socket", 10, 2],
    ["open_socket", 2, 3, 1],  # raw
    ["open_socket", 2, 1, 262],  # MPTCP
    ["open_socket", 2, 1, 132],  # SCTP
    ["open_socket", 2, 5],
    ["open_socket", 1, 1],  # Unix
    ["open_socket", 1, 2],
    ["open_socket", 16, 3],  # netlink
    ["open_socket", 17, 3],  # packets
    ["open_socket", 40, 1],  # to the hypervisor
    ["connect_pair", "/run/socket"],
    ["connect_pair", "\0socket"],
    ["unix_pair_datagram", "/run/socket"],
    ["listen"],
    ["kill_neighbours"],
    ["read_neighbours"],
    ["leave_namespace"],
    ["resolver"],
    ["write_hosts"],
]


class Host:
    """Who runs the host, and with which privileges taken away."""

    def __init__(self, identity: Identity, without: str = "") -> None:
        self.identity = identity
        self.name = f"{identity.name}{f' without {without}' if without else ''}"
        self._without = without

    @property
    def prefix(self) -> list[str]:
        setpriv = shutil.which("setpriv") or "setpriv"
        if self._without:
            return [setpriv, f"--bounding-set=-{self._without}", f"--inh-caps=-{self._without}"]
        if self.identity.uid != os.getuid():
            return [setpriv, f"--reuid={self.identity.uid}", f"--regid={self.identity.uid}", "--clear-groups"]
        return []


def hosts() -> list[Host]:
    everyone = [Host(identity) for identity in identities()]
    if os.getuid() == 0:
        everyone += [Host(identities()[0], "net_admin"), Host(identities()[0], "sys_admin")]
    return everyone


HOSTS = hosts()


@pytest.fixture(scope="module", params=HOSTS, ids=lambda host: host.name)
def host(request: pytest.FixtureRequest) -> Host:
    require("strict")
    chosen: Host = request.param
    return chosen


def attempt(
    host: Host, attempts: list[Attempt], *options: str, profile: str = "strict", egress: tuple[str, ...] = lab.EGRESS
) -> dict[str, Any]:
    """Return what the laboratory prints about these attempts."""
    user = () if os.getuid() == 0 else ("--map-root-user",)
    with plugin(host.identity, lab.PLUGIN) as path:
        words = [word for destination in egress for word in ("--egress", destination)]
        options = ("--sandbox", profile, *words, "--private", "listed.test:80", *options)
        command = [*host.prefix, *argv(host.identity, "--serve", path, *options)]
        document = {"command": command, "attempts": attempts, "contained": profile == "spawn"}
        done = subprocess.run(
            ["unshare", "--mount", "--net", *user, sys.executable, "-m", "tests.adversarial._egress_lab"],
            input=json.dumps(document),
            capture_output=True,
            text=True,
            cwd=ROOT,
            timeout=patience(120),
            check=False,
        )
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def refused(name: str) -> Attempt:
    return ["get", f"http://{name}/refused"]


@cache
def everything(host: Host) -> dict[str, Any]:
    """Return the outcomes by attempt, and the rest that the laboratory prints, of one host that tries everything."""
    attempts: list[Attempt] = [
        *ALLOWED,
        *NAMED_IN_THE_ERROR.values(),
        *REDIRECTED.values(),
        *map(refused, [*lab.REFUSED, "rebound.test"]),
        *REFUSED,
    ]
    answer = attempt(host, attempts)
    return {**answer, **{json.dumps(each): outcome for each, outcome in zip(attempts, answer["outcomes"], strict=True)}}


def test_declared_destinations_are_reached(host: Host) -> None:
    for each in ALLOWED:
        assert everything(host)[json.dumps(each)] == "ok", each


@pytest.mark.parametrize("name", lab.REFUSED)
def test_a_name_never_leads_to_an_address_that_is_not_public(host: Host, name: str) -> None:
    outcome = everything(host)[json.dumps(refused(name))]
    assert outcome.startswith("failed: "), outcome
    reason = "No address" if name == "unknown.test" else "which is not public; the operator permits it with"
    assert f"no connection to {name}:80: " in outcome
    assert reason in outcome


def test_a_name_is_resolved_and_checked_for_each_connection(host: Host) -> None:
    outcome = everything(host)[json.dumps(refused("rebound.test"))]
    assert "rebound.test has the address 10.1.2.3, which is not public" in outcome


@pytest.mark.parametrize(
    ("destination", "each"),
    [*NAMED_IN_THE_ERROR.items(), *REDIRECTED.items()],
    ids=[*NAMED_IN_THE_ERROR, *(f"redirected to {name}" for name in REDIRECTED)],
)
def test_an_undeclared_destination_is_refused_and_named(host: Host, destination: str, each: Attempt) -> None:
    outcome = everything(host)[json.dumps(each)]
    assert outcome.startswith("failed: "), outcome
    assert f"to connect to {destination}" in outcome
    assert f'declare @action(effects=["network"], egress=["{destination}", ' in outcome


@pytest.mark.parametrize("each", REFUSED, ids=lambda each: " ".join(map(str, each)).replace("\0", "@"))
def test_no_other_way_out(host: Host, each: Attempt) -> None:
    assert everything(host)[json.dumps(each)].startswith("failed: "), everything(host)[json.dumps(each)]


def test_nothing_but_the_allowed_arrives_and_every_connection_is_logged(host: Host) -> None:
    assert sorted(everything(host)["received"]) == sorted(
        [
            "93.184.215.14:80/allowed",
            "93.184.215.14:80/case",
            "10.1.2.3:80/listed",
            "127.0.0.1:8001/literal",
            "10.1.2.3:8001/literal",
            "93.184.215.14:80/first",
            "93.184.215.14:80/to/other.test/",
            "93.184.215.14:80/to/169.254.169.254/",
        ]
    )
    log = everything(host)["log"]
    assert "connected to listed.test:80 at 10.1.2.3" in log
    for name in lab.REFUSED:
        assert any(line.startswith(f"no connection to {name}:80: ") for line in log), name


def test_a_thread_that_a_call_has_left_behind_reaches_nothing_between_calls() -> None:
    host = HOSTS[0]
    with folder_of(host.identity) as workspace:
        note = f"{workspace}/note"
        attempts: list[Attempt] = [["keep", note], ["wait for", note], ["resume"]]
        answer = attempt(host, attempts, "--workspace", workspace)
    left, between, resumed = answer["outcomes"]
    assert left == "left a thread"
    assert between in ("ConnectionResetError; received []", "closed; received []"), "nothing was sent, or connected to"
    assert resumed.startswith("HTTP/1.1 200"), "the connection lives on, and its data are sent in the next call"
    assert answer["received"] == ["93.184.215.14:80/late"]


def test_another_group_reaches_nothing_of_this_one() -> None:
    answer = attempt(HOSTS[0], [["get", "http://api.test/"], ["get", "http://other.test/"]], egress=("other.test:80",))
    assert answer["outcomes"][0].startswith("failed: ")
    assert answer["received"] == ["93.184.215.15:80/"]


def test_programs_reach_what_their_host_reaches_and_nothing_else() -> None:
    host = HOSTS[min(1, len(identities()) - 1)]
    python = os.path.realpath(host.identity.python)
    degrade = ("--degrade",) if host.identity.uid == 0 else ()  # the kernel does not limit the processes of root
    code = "import socket, sys; print(socket.create_connection((sys.argv[1], int(sys.argv[2]))).getpeername())"
    attempts: list[Attempt] = [
        ["by_program", code, "api.test", 80],
        ["by_program", code, "other.test", 80],
        ["by_program", code, "127.0.0.1", 80],
        ["by_program", "import os\nfor pid in range(1, 9):\n  pid == os.getpid() or os.kill(pid, 9)"],
    ]
    texts = [[str(word) for word in each] for each in attempts]
    libraries = ("--readable", "/usr/lib", *degrade)
    answer = attempt(host, [list(each) for each in texts], "--executable", python, *libraries, profile="spawn")
    assert answer["outcomes"][0].startswith("('127.80.0."), answer
    assert all(outcome.startswith("failed: ") for outcome in answer["outcomes"][1:]), answer


@pytest.mark.parametrize("profile", ["strict", "spawn"])
def test_without_user_namespaces_it_is_refused_with_the_kernel_setting(profile: str) -> None:
    require("strict")
    identity, unshare = identities()[-1], number("unshare")
    if identity.uid == 0:
        pytest.skip("root needs no user namespace")
    assert unshare is not None
    new_user_namespace = 0x1000_0000
    with plugin(identity, lab.PLUGIN) as path:
        options = ("--sandbox", profile, "--egress", "api.test:80")
        refused = hosted(identity, "--list", path, *options, without=(unshare, new_user_namespace))
        weakened = hosted(identity, "--list", path, *options, "--degrade", without=(unshare, new_user_namespace))
    assert refused.returncode == 6
    assert "user_namespace: [Errno 38] unshare" in refused.stdout
    assert "kernel.unprivileged_userns_clone=1" in refused.stdout
    assert weakened.returncode == 0, "and less will do"
    assert {"user_namespace", "network_namespace", "egress"} <= json.loads(weakened.stdout)["sandbox"]["missing"].keys()
