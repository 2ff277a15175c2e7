"""What a shell or a server opens: the secret of this machine's user, and packs that share a store."""

from __future__ import annotations

import sqlite3
import stat
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from manglecp.intent import Identity
from manglecp.invoke import PackOptions, open_packs
from manglecp.invoke.confirmation_secret import SECRET_FILE, local_secrets
from manglecp.pack import PackError
from manglecp.store import Unusable, open_store
from tests.intent.packs import request

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_the_secret_is_made_once_and_for_its_owner_only(tmp_path: Path) -> None:
    first = local_secrets(tmp_path)
    assert first.of("local") == local_secrets(tmp_path).of("local")
    assert first.of("local") != first.of("somebody")
    assert stat.S_IMODE((tmp_path / SECRET_FILE).stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == [SECRET_FILE]
    other = tmp_path / "other"
    other.mkdir()
    assert local_secrets(other).of("local") != first.of("local")


def test_whoever_makes_it_at_the_same_time_gets_the_same(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as threads:
        made = list(threads.map(lambda _: local_secrets(tmp_path).of("local"), range(32)))
    assert len(set(made)) == 1


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_a_secret_that_others_could_read_is_none(tmp_path: Path, mode: int) -> None:
    local_secrets(tmp_path)
    (tmp_path / SECRET_FILE).chmod(mode)
    with pytest.raises(Unusable, match="can be read by other users; remove it"):
        local_secrets(tmp_path)


def test_a_damaged_secret_is_not_used(tmp_path: Path) -> None:
    local_secrets(tmp_path)
    (tmp_path / SECRET_FILE).write_bytes(b"")
    with pytest.raises(Unusable, match="is damaged"):
        local_secrets(tmp_path)


def test_a_secret_that_cannot_be_made(tmp_path: Path) -> None:
    with pytest.raises(Unusable, match="cannot be created"):
        local_secrets(tmp_path / "nowhere")


async def test_packs_share_a_store_and_are_closed_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MANGLECP_STATE_DIR", str(tmp_path / "state"))
    me = Identity("local", frozenset(), "local")
    packs = [PackOptions(EXAMPLES / "incident")] * 2
    async with open_packs(packs, partial(open_store, tmp_path / "store.db")) as opened:
        first, second = opened.invokers
        answer = await first.offers.evaluate(request("observe"), me)
        assert [tool.name for tool in answer.payload.macro_tools] == ["list_failures"]
        assert second.domain.digest == first.domain.digest
        store = opened.store
    with pytest.raises(sqlite3.ProgrammingError), store.read_transaction():
        pass


async def test_what_is_wrong_with_a_pack_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MANGLECP_STATE_DIR", str(tmp_path / "state"))
    with pytest.raises(PackError):
        async with open_packs([PackOptions(tmp_path)], partial(open_store, ":memory:")):
            raise AssertionError("there is no pack")
