"""Every attack again, made by a plugin in a real host: it works without a sandbox, and `--sandbox strict` stops it."""

import json
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from .attacks import ATTACKS, NEEDS_PRIVILEGE, Scene
from .confined import Identity, require
from .hosted import folder_of, host, request

pytestmark = pytest.mark.no_cover

HERE = Path(__file__).parent
HARMLESS = [name for name in ATTACKS if name not in NEEDS_PRIVILEGE]


@pytest.fixture(scope="session")
def hostile(identity: Identity) -> Iterator[str]:
    with folder_of(identity) as folder:
        for script in ("hostile.py", "attacks.py"):
            shutil.copy(HERE / script, folder)
            (Path(folder) / script).chmod(0o644)
        yield f"{folder}/hostile.py"


@pytest.fixture(scope="session")
def in_strict(scene: Scene, identity: Identity, hostile: str) -> dict[str, str]:
    require("strict")
    return assault(scene, identity, hostile, "strict", list(ATTACKS))


@pytest.fixture(scope="session")
def in_none(scene: Scene, identity: Identity, hostile: str) -> dict[str, str]:
    return assault(scene, identity, hostile, "none", HARMLESS)


def assault(scene: Scene, identity: Identity, hostile: str, profile: str, names: list[str]) -> dict[str, str]:
    """A host for each attack: one that was stopped half-way may leave its host without descriptors or memory."""
    with folder_of(identity) as folder, ThreadPoolExecutor(2) as pool:

        def attempt(name: str) -> str:
            own = prepared(scene, Path(folder) / name, identity)
            options = () if profile == "none" else ("--sandbox", profile, "--workspace", own.workspace)
            line = request("AID.HOSTILE.ATTEMPT.v1", name=name, scene=list(own))
            outcome = host(identity, "--serve", hostile, *options, stdin=line)
            if "worked" in outcome.stderr.split():  # it became another program, which could say so
                return "worked"
            assert outcome.returncode == 0, outcome
            answer = json.loads(outcome.stdout)
            return str(json.loads(answer["output_json"]) if answer["status"] == "OK" else answer)

        return dict(zip(names, pool.map(attempt, names), strict=True))


def prepared(scene: Scene, folder: Path, identity: Identity) -> Scene:
    for part in ("workspace", "outside"):
        (folder / part).mkdir(parents=True)
    for file in ("secret", "victim"):
        (folder / "outside" / file).write_bytes(b"the secret")
    for path in (folder, *folder.rglob("*")):
        shutil.chown(path, identity.uid, identity.uid)
    return scene._replace(workspace=str(folder / "workspace"), outside=str(folder / "outside"))


@pytest.mark.parametrize("name", ATTACKS)
def test_a_strict_host_stops(name: str, in_strict: dict[str, str]) -> None:
    assert in_strict[name].startswith("stopped by ")


@pytest.mark.parametrize("name", HARMLESS)
def test_in_a_host_without_a_sandbox_it_works(name: str, in_none: dict[str, str], scene: Scene) -> None:
    """Otherwise the test above would show nothing."""
    if name == "connect_by_ipv6" and not scene.tcp6:
        pytest.skip("this machine has no IPv6 loopback")
    assert in_none[name] == "worked"
