"""Every attack works without a sandbox and is stopped by `strict`, as ourselves and as nobody."""

from pathlib import Path

import pytest

from .attacks import ATTACKS, NEEDS_PRIVILEGE, Scene
from .confined import Identity, assault, require

HARMLESS = [name for name in ATTACKS if name not in NEEDS_PRIVILEGE]


@pytest.fixture(scope="session")
def in_strict(scene: Scene, identity: Identity) -> dict[str, str]:
    require("strict")
    return assault("strict", _beside(scene, "strict"), list(ATTACKS), identity)


@pytest.fixture(scope="session")
def in_none(scene: Scene, identity: Identity) -> dict[str, str]:
    return assault("none", _beside(scene, "none"), HARMLESS, identity)


def _beside(scene: Scene, name: str) -> Scene:
    return scene._replace(workspace=str(Path(scene.workspace) / name))


@pytest.mark.parametrize("name", ATTACKS)
def test_strict_stops(name: str, in_strict: dict[str, str]) -> None:
    assert in_strict[name].startswith("stopped by ")


@pytest.mark.parametrize("name", HARMLESS)
def test_without_a_sandbox_it_works(name: str, in_none: dict[str, str], scene: Scene) -> None:
    """Otherwise the test above would show nothing."""
    if name == "connect_by_ipv6" and not scene.tcp6:
        pytest.skip("this machine has no IPv6 loopback")
    assert in_none[name] == "worked"
