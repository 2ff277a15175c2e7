"""Credentials that are withdrawn while the server runs: what the file says counts at once, in every session."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed

from manglecp.intent import approval_waiver
from manglecp.server.auth import Auth, CombinedAuth
from manglecp.server.auth.tokens import TokensFile
from manglecp.server.config import ServerSettings
from manglecp.server.runtime import watch_credentials
from tests.server.desk import PATIENCE, authenticate, encoded, intent
from tests.server.house import ClientConnection, House, house
from tests.server.test_auth import checker, effects, entry, token, written


@asynccontextmanager
async def watched(auth: Auth, file: TokensFile | None, recheck: float = 60.0) -> AsyncIterator[House]:
    async with house(auth=auth, settings=ServerSettings(worker=False, recheck_interval=recheck)) as h:
        watching = asyncio.create_task(watch_credentials(h.desk.core, file, pause=0.01))
        try:
            yield h
        finally:
            watching.cancel()


def bearing(credential: str) -> dict[str, str]:
    return {"authorization": f"Bearer {credential}"}


async def asked(ws: ClientConnection, request: str) -> str:
    """The type of the answer."""
    await ws.send(encoded(intent(request)).decode())
    async with asyncio.timeout(PATIENCE):
        while (said := json.loads(await ws.recv()))["id"] != request:
            pass
    return str(said["type"])


async def closed(ws: ClientConnection) -> tuple[int | None, str | None]:
    async with asyncio.timeout(PATIENCE):
        with contextlib.suppress(ConnectionClosed):
            while True:
                await ws.recv()
    return ws.close_code, ws.close_reason


@pytest.mark.req("SEC-24")
async def test_waivers_change_with_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, entry("t", auto_confirm_effects='["network"]'))
    file = TokensFile(path)
    ann = await file.identify("bearer", "t")
    assert ann is not None
    assert approval_waiver(file.current(ann), effects("network")) is not None
    assert not file.reload()
    path.write_text(entry("t"))
    assert file.reload()
    assert approval_waiver(file.current(ann), effects("network")) is None
    path.write_text(entry("u", "bob"))
    assert file.reload()
    assert "ann" not in file
    assert "bob" in file


async def test_a_broken_file_leaves_what_held_and_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = written(tmp_path, entry("t", permissions='["look"]'))
    file = TokensFile(path)
    caplog.set_level(logging.INFO)

    def told() -> list[str]:
        said = [record.getMessage() for record in caplog.records]
        caplog.clear()
        return said

    path.write_text("[[token]]\nidentity = 3")
    for _ in range(3):
        assert not file.reload()
    [said] = told()
    assert "token[0]" in said
    assert "identity" in said
    path.unlink()
    for _ in range(3):
        assert not file.reload()
    [said] = told()
    assert "cannot be read" in said
    assert not file.reload(force=True)  # whoever sends a signal wants to know
    assert len(told()) == 1
    ann = await file.identify("bearer", "t")
    assert ann is not None
    assert ann.permissions == {"look"}
    written(tmp_path, entry("t", permissions='["look"]'))
    assert not file.reload()  # what it holds is what held before
    assert "reloaded: it has 1" in told()[0]


@pytest.mark.req("SEC-10")
async def test_whoever_loses_their_token_loses_their_session(tmp_path: Path) -> None:
    path = written(tmp_path, entry("t-1"), entry("t-2", "bob"), entry("t-3", "eve"))
    file = TokensFile(path)
    async with watched(file, file) as h:
        one, two, three = (
            h.websocket(),
            h.websocket(additional_headers={"authorization": "Bearer t-2"}),
            h.websocket(),
        )
        async with one as ann, two as bob, three as eve:
            for ws, credential in ((ann, "t-1"), (eve, "t-3")):
                await ws.recv()
                await ws.send(encoded(authenticate("a", credential)).decode())
                assert json.loads(await ws.recv())["type"] == "authenticate_response"
            assert await asked(bob, "b") == "intent_response"
            path.write_text(entry("t-3", "eve"))
            assert await closed(ann) == (1008, "the credential is no longer valid")
            assert await closed(bob) == (1008, "the credential is no longer valid")
            assert await asked(eve, "c") == "intent_response"


async def test_a_session_has_the_permissions_that_the_file_gives_now(tmp_path: Path) -> None:
    path = written(tmp_path, entry("t-1"))
    file = TokensFile(path)
    async with watched(file, file) as h, h.desk.client() as client:
        client.session.set_credential("bearer", "t-1")
        assert (await client.session.identify()).permissions == frozenset()
        path.write_text(entry("t-1", permissions='["look"]'))
        async with asyncio.timeout(PATIENCE):
            while (await client.session.identify()).permissions != {"look"}:
                await asyncio.sleep(0.01)


async def test_a_token_that_expires_ends_its_session_unasked(tmp_path: Path) -> None:
    now = [1_000_000_000.0]
    file = TokensFile(written(tmp_path, entry("t", expires="2001-09-09T01:46:41Z")), clock=lambda: now[0])
    async with watched(file, file, recheck=0.02) as h, h.websocket(additional_headers=bearing("t")) as ws:
        assert await asked(ws, "a") == "intent_response"
        now[0] += 1
        assert (await closed(ws))[0] == 1008


async def test_a_name_of_the_file_is_nobodys_subject_from_then_on(tmp_path: Path) -> None:
    path = written(tmp_path, entry("t-1", "bob"))
    file = TokensFile(path)
    jwts = checker(taken=file)
    headers = bearing(token(sub="carl"))
    async with watched(CombinedAuth([file, jwts]), file) as h, h.websocket(additional_headers=headers) as ws:
        assert await asked(ws, "a") == "intent_response"
        path.write_text(entry("t-1", "bob") + entry("t-2", "carl"))
        assert (await closed(ws))[0] == 1008
