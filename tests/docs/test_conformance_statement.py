"""The project says which level of which version it conforms to, and its manifest says the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from manglecp.intent import Domain, manifest
from manglecp.wire.messages import VERSION
from tests.intent.packs import pack


@pytest.mark.req("CONF-02")
def test_the_first_page_states_level_and_version() -> None:
    said = manifest(Domain.load(pack())).payload.protocol
    page = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    assert f"MangleCP Level {said.conformance_level}, version {VERSION}" in page
