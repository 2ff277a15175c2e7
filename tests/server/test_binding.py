"""What everybody can reach asks who they are: whoever begins to serve is told, not only the command line."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import pytest

from manglecp.invoke import PackOptions
from manglecp.server.auth_config import AuthConfig
from manglecp.server.binding import ListenOptions, ServeError, bind
from manglecp.server.runtime import serve_http
from manglecp.store import open_store
from tests.deadlines import patience
from tests.server.desk import Tokens


@pytest.mark.req("SEC-08")
async def test_nobody_serves_others_by_mistake_from_a_program_either(tmp_path: Path) -> None:
    options = PackOptions(tmp_path / "there-is-none")
    for listening, who, said in (
        (ListenOptions(host="0.0.0.0", port=0), AuthConfig(), "--open-demo"),
        (ListenOptions(host="127.0.0.1", port=0, origins=("*",)), AuthConfig(auth=Tokens({})), "named origins"),
    ):
        with bind("127.0.0.1", 0) as bound, pytest.raises(ServeError, match=said):
            async with asyncio.timeout(patience(60)):
                await serve_http(options, partial(open_store, ":memory:"), listening, who, bound)
