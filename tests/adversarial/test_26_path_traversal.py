"""Case 26: paths and addresses that lead elsewhere. What is not below a named folder is not opened, nobody is followed
out of it, and an address that somebody names is told and never fetched."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from itertools import cycle
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from manglecp.client import RequestRefused
from manglecp.client.transports.session import origin, resolve_address
from manglecp.intent import Domain, Identity
from manglecp.intent.responder import answer_bytes
from manglecp.pack import Folder, PackError, Problems, SkillText
from manglecp.pack.folder import open_inside
from manglecp.testing import Pack as Governed
from tests.intent.packs import clock, pack, request
from tests.pack.folders import SMALL, problems, read, write
from tests.workspace.governed import governed
from tests.workspace.repositories import layered

pytestmark = pytest.mark.no_cover

SECRET: Final = "hunter2-of-somebody-else"
LEADING_OUT: Final = [
    "../outside/secret.txt",
    "rules/../../outside/secret.txt",
    "file://../outside/secret.txt",
    "file:../outside/secret.txt",
    "%2e%2e/outside/secret.txt",
    "..%2foutside%2fsecret.txt",
    "%252e%252e/outside/secret.txt",
    "..\\outside\\secret.txt",
    "..\u2215outside\u2215secret.txt",
    "\uff0e\uff0e/outside/secret.txt",
    "....//outside/secret.txt",
    "./../outside/secret.txt",
    "link/secret.txt",
    "link",
    "straight.txt",
    "/proc/self/root/etc/passwd",
    "/dev/fd/0",
    "//etc/passwd",
    "~/secret.txt",
    "\\\\host\\share",
    "C:\\secret.txt",
]


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    return write(tmp_path / "outside", {"secret.txt": SECRET})


def with_links(folder: Path, outside: Path) -> Path:
    (folder / "link").symlink_to(outside)
    (folder / "straight.txt").symlink_to(outside / "secret.txt")
    return folder


# --- the folder of a pack --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*LEADING_OUT, "rules/a.mg\0.txt"])
def test_no_name_leads_out_of_a_pack(tmp_path: Path, outside: Path, name: str) -> None:
    root = with_links(write(tmp_path / "pack", {"rules/a.mg": "p(1)."}), outside)
    with pytest.raises((OSError, ValueError)):
        open_inside(root, name)
    with pytest.raises((OSError, ValueError)):
        open_inside(root, str(outside / "secret.txt"))


@pytest.mark.parametrize("place", ["skills/leak.md", "rules/domain/leak.mg", "facts/leak.csv", "actions/leak.py"])
def test_a_link_out_of_a_pack_keeps_it_from_being_read(tmp_path: Path, outside: Path, place: str) -> None:
    root = write(tmp_path / "pack", SMALL)
    (root / place).parent.mkdir(parents=True, exist_ok=True)
    (root / place).symlink_to(outside / "secret.txt")
    found = problems(root, {})
    assert ("the link leads out of the pack", place) in [(one.message, one.file) for one in found]
    assert SECRET not in str(found)


def test_a_folder_that_becomes_a_link_again_and_again_is_never_followed(tmp_path: Path, outside: Path) -> None:
    root = write(tmp_path / "pack", {"skills/secret.txt": "ours"})
    walked = Folder(root, Problems())
    with swapping(root / "skills", outside):
        seen = {walked.read("skills/secret.txt", 100) for _ in range(2_000)}
    assert seen <= {b"ours", None}


@pytest.mark.parametrize("value", ["a\0b", "\udcff", "x" * 100_000])
def test_a_setting_is_text(tmp_path: Path, value: str) -> None:
    files = {**SMALL, "pack.toml": '[params.root]\ndescription = "a folder"\nkind = "folder"\n'}
    with pytest.raises(PackError, match="root"):
        read(tmp_path / "pack", files, root=value)


# --- addresses that rules, skills and clients name -------------------------------------------------------------------


class Listening:
    """A server of this machine that nobody has a reason to call."""

    def __enter__(self) -> Listening:
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.socket.setblocking(False)
        self.port = self.socket.getsockname()[1]
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def was_called(self) -> bool:
        try:
            self.socket.accept()[0].close()
        except BlockingIOError:
            return False
        return True


RULES: Final = """
macro("peek", "Looks.") :- intent("observe").
macro_step("peek", 1, "look") :- intent("observe").
mandatory("peek") :- intent("observe").
needs_skill("peek", "care") :- intent("observe").
needs_resource("peek", Address, "somebody named it", 50) :- worth_reading(Address).
"""


def answered(addresses: list[str], skill: list[str]) -> dict[str, Any]:
    domain = Domain.load(
        pack(
            schema='Decl worth_reading(Address) descr [direction("input")] bound [/string].',
            domain=RULES,
            intents=["observe"],
            skills=[
                SkillText(
                    skill_id="care",
                    name="Care",
                    description="How.",
                    content="Be careful.",
                    resources=tuple({"uri": a} for a in skill),
                )
            ],
        )
    )
    facts = [{"pred": "worth_reading", "args": [address]} for address in addresses]
    data = msgspec.json.encode(request("observe", facts))
    message: dict[str, Any] = msgspec.json.decode(answer_bytes(domain, data, Identity("mallory"), clock))
    return message


def test_an_address_is_told_and_never_fetched(outside: Path) -> None:
    with Listening() as listening:
        port = listening.port
        addresses = [
            f"http://127.0.0.1:{port}/latest/meta-data/",
            f"http://[::ffff:127.0.0.1]:{port}/",
            f"http://[64:ff9b::7f00:1]:{port}/",
            f"http://2130706433:{port}/",
            f"http://0x7f.1:{port}/",
            f"http://localhost.:{port}/",
            f"gopher://127.0.0.1:{port}/_x",
            f"ftp://127.0.0.1:{port}/",
            (outside / "secret.txt").as_uri(),
            str(outside / "secret.txt"),
            f"file://localhost{outside}/secret.txt",
        ]
        message = answered(addresses, addresses)
        assert not listening.was_called()
    assert message["type"] == "intent_response"
    assert SECRET not in str(message)


@pytest.mark.parametrize(
    "address",
    [
        *("javascript:alert(1)", "JaVaScRiPt:alert(1)", "vbscript:x", "java\nscript:x"),
        *("data:text/html,<script:x>", "Data:image/svg+xml;utf8,<svg script:x>", "data:text/html;base64,script:x"),
    ],
)
def test_code_is_no_address(address: str) -> None:
    (tool,) = answered([address], [address])["payload"]["macro_tools"]
    assert "script:" not in str(tool).lower()


def test_whoever_is_named_in_an_address_is_left_out() -> None:
    (tool,) = answered(["https://ada:hunter2@example.org/a"], [])["payload"]["macro_tools"]
    assert "hunter2" not in str(tool)


@pytest.mark.parametrize(
    "address",
    [
        "http://169.254.169.254/latest",
        "https://169.254.169.254/latest",
        "https://[::ffff:169.254.169.254]/",
        "https://[64:ff9b::a9fe:a9fe]/",
        "//elsewhere.example/x",
        "https://here.example@elsewhere.example/",
        "https://here.example:8443/",
        "https://here.example.elsewhere.example/",
        "http://here.example/",
        "file:///etc/passwd",
        "file://../etc/passwd",
        "\\\\elsewhere.example\\x",
        "../../../etc/passwd",
        "%2e%2e/x",
        "/x?next=https://elsewhere.example/",
    ],
)
def test_no_server_leads_a_client_to_another_host(address: str) -> None:
    base = "https://here.example/mangle/manifest"
    try:
        url = resolve_address(base, address, ("http", "https"), hosts=(), insecure=True)
    except RequestRefused:
        return
    assert origin(url) == origin(base)


# --- a repository that is worked on ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Governed, Path]]:
    folder = tmp_path_factory.mktemp("case")
    outside = write(folder / "outside", {"secret.txt": SECRET, "more.py": f"WORD = '{SECRET}'\n"})
    root = with_links(layered(folder / "repository").root, outside)
    write(root, {"swapped/secret.txt": "ours\n"})
    with governed(root) as pack:
        yield pack, root


def swapping(place: Path, outside: Path) -> Any:
    """While it lasts, a folder is a link to another one every other moment."""
    return _Swapping(place, outside)


class _Swapping:
    def __init__(self, place: Path, outside: Path) -> None:
        self._place, self._aside, self._link = place, place.with_name("aside"), place.with_name("a-link")
        self._link.symlink_to(outside)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._swap)

    def _swap(self) -> None:
        for inwards in cycle((True, False)):
            if self._over.is_set() and inwards:
                return
            if inwards:
                self._place.rename(self._aside)
                self._link.rename(self._place)
            else:
                self._place.rename(self._link)
                self._aside.rename(self._place)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        with suppress(FileNotFoundError):
            self._link.unlink()


def test_tools_read_nothing_outside_the_repository(there: tuple[Governed, Path]) -> None:
    pack, root = there
    answer = pack.intent("explore", facts=['topic("secret")', 'topic("../outside")', 'topic("file://../outside")'])
    assert "outside" not in str([one.uri for tool in answer.tools for one in tool.resources])
    for path in [*LEADING_OUT, str(root.parent / "outside/secret.txt"), ".git/config", ".GIT/config"]:
        lines = answer.invoke("read_lines", {"path": path}).result
        assert (lines["text"], lines["problem"] != "") == ("", True), path
        outline = answer.invoke("outline_file", {"path": f"{path.removesuffix('secret.txt')}more.py"}).result
        assert (outline["symbols"], outline["problem"] != "") == ([], True), path
        found = answer.invoke("find_text", {"text": "hunter2", "under": path}).result
        assert found["hits"] == [], path
    assert answer.invoke("find_text", {"text": "hunter2"}).result["hits"] == []


def test_a_link_that_comes_in_between_is_not_followed(there: tuple[Governed, Path]) -> None:
    pack, root = there
    answer = pack.intent("explore")
    with swapping(root / "swapped", root.parent / "outside"):
        told = [answer.invoke("read_lines", {"path": "swapped/secret.txt"}).result["text"] for _ in range(25)]
    assert set(told) <= {"ours\n", ""}
    assert answer.invoke("read_lines", {"path": "swapped/secret.txt"}).result["text"] == "ours\n"


@pytest.mark.parametrize("path", ["%2e%2e/outside/secret.txt", "link/secret.txt", "swapped/../../outside/new.txt"])
def test_nothing_is_written_outside_the_repository(there: tuple[Governed, Path], path: str) -> None:
    """Whatever the rules let through by its name, the action and its sandbox do not."""
    pack, root = there
    outside = {file.name: file.read_bytes() for file in (root.parent / "outside").iterdir()}
    answer = pack.intent("change", facts=['to_change("swapped/other.txt")'])
    run = answer.invoke("safe_change", {"edits": [{"path": path, "old": "", "new": "x"}]}, confirm=True)
    assert [one["path"] for one in run.result["problems"]] == [path]
    assert {file.name: file.read_bytes() for file in (root.parent / "outside").iterdir()} == outside
