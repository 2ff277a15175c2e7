"""Processes that carry runs out, and die where they are told to.

    python -m tests.crash.coordinator PACK STORE BOOK

loads the pack once and forks a process for every line that it reads: a *victim* evaluates, invokes one tool under a
request key and kills itself at a named point; an *heir* takes over one run and kills itself; a *worker* takes over what
others left behind and invokes what it is asked to, until its input ends. What they have to say they append to files in
BOOK, which outlive them.

Named points are those of the invoker (``started:s2``), ``lease_granted:s2`` (it is made, and not sent yet), and
``uncommitted:<kind>:<n>``: the transaction with the nth entry of this kind is written and not committed.
``<when>:<label>`` with ``before`` or ``after`` is inside the action, where the host dies, alone or together with its
coordinator.
"""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from manglecp.base.hash_chain import Head
from manglecp.intent import Domain, Identity, OfferService
from manglecp.invoke import Invoker, InvokeSettings, Worker
from manglecp.pack import SandboxPolicy, read_pack
from manglecp.store import NewEntry, RunState, Store, Writer, open_store
from manglecp.store.decisions import Decisions
from manglecp.store.ledger import Ledger
from manglecp.toolhost import Dispatcher
from manglecp.toolhost.dispatch.catalogue import Listing, list_plugin
from manglecp.toolhost.dispatch.dispatcher import ServedPlugin
from manglecp.toolhost.dispatch.launch import HostCommand
from manglecp.wire import WireError, receive
from manglecp.wire.messages import IntentRequest, InvokeRequest
from tests.deadlines import patience

ME = Identity("me", frozenset(), "local", auto_confirm_effects=("filesystem",))
CLAIM_MS = int(os.environ.get("CRASH_CLAIM_MS") or patience(600))
"""Longer on a busy machine, where a heartbeat comes late. All processes of a test have the same."""
At = Callable[[str], None]


class _Watched(Ledger):
    """Tells of every entry before its transaction is committed."""

    def __init__(self, at: At) -> None:
        self._at = at
        self._counts: dict[str, int] = {}

    def append_all(self, tx: Any, entries: Sequence[NewEntry]) -> Head:
        head = super().append_all(tx, entries)
        for entry in entries:
            self._count(entry.kind)
        return head

    def _count(self, kind: str) -> None:
        self._counts[kind] = self._counts.get(kind, 0) + 1
        self._at(f"uncommitted:{kind}:{self._counts[kind]}")


class Site:
    """What all processes of a test share: the pack, how its hosts are started, where things are."""

    def __init__(self, pack: Path, store: str, book: Path) -> None:
        self.domain = Domain.load(read_pack(pack, sandbox=SandboxPolicy(degrade=True)))
        self.store = store
        self.book = book
        listing = list_plugin(f"{self.domain.pack.folder}/actions.py", os.environ, sandbox="none")
        assert isinstance(listing, Listing), listing
        command = listing.command(os.environ, sandbox="none")
        assert isinstance(command, HostCommand), command
        self.served = ServedPlugin(listing.catalogue, command)

    def write(self, name: str, said: Mapping[str, Any]) -> None:
        """One line, whole, whoever else writes."""
        file = os.open(self.book / name, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        os.write(file, json.dumps(said).encode() + b"\n")
        os.close(file)

    @asynccontextmanager
    async def opened(self, at: At, hosts: int = 2) -> AsyncIterator[tuple[Invoker, Store]]:
        ledger, store = _Watched(at), open_store(self.store, patience=60.0)
        decisions = Decisions(ledger, store.seals)  # an admission is appended together with its decision
        writer = Writer(store.database, ledger, decisions)
        store = replace(store, ledger=ledger, decisions=decisions, writer=writer)
        settings = InvokeSettings(claim_ms=CLAIM_MS)

        def audit(event: str, details: Mapping[str, object]) -> None:
            at(f"{event}:{str(details['call_id']).split('/')[1]}")

        async with (
            Dispatcher([self.served], size=hosts, audit=audit) as dispatcher,
            Invoker(OfferService(self.domain, store), store, dispatcher, settings=settings, point=at) as invoker,
        ):
            yield invoker, store

    async def invoke(self, invoker: Invoker, case: str, tool: str) -> dict[str, Any]:
        """Ask for the tool and invoke it, under the key that belongs to the case."""
        asked = _received("intent_request", {"intent": {"name": "go"}, "facts": []})
        assert isinstance(asked, IntentRequest)
        answer = await invoker.offers.evaluate(asked, ME)
        macro_id = next(one.macro_id for one in answer.payload.macro_tools if one.name == tool)
        payload = {"macro_id": macro_id, "args": {"case": case, "book": str(self.book)}, "x-request_key": case}
        request = _received("invoke_request", payload)
        assert isinstance(request, InvokeRequest)
        try:
            return {"ok": msgspec.to_builtins((await invoker.invoke(request, ME)).payload)}
        except WireError as error:
            return {"error": error.code, "details": error.details}


def _received(kind: str, payload: Mapping[str, Any]) -> object:
    message = {"type": kind, "id": "c", "manglecp": "2026-02-draft", "payload": payload}
    return receive(json.dumps(message).encode(), 1 << 20)


# --- victims ---------------------------------------------------------------------------------------------------------


async def victim(site: Site, case: str, tool: str, point: str, who: str, how: str) -> None:
    """``who`` dies at the point: coordinator, host or both. ``how``: kill, or stop for a while."""

    def at(reached: str) -> None:
        if reached == point:
            site.write("deaths", {"case": case, "at_ms": round(time.time() * 1_000), "pid": os.getpid()})
            if how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            # Between two heartbeats: who falls asleep in the middle of one would keep the store locked meanwhile.
            invoker._ownership._thread.submit(os.kill, os.getpid(), signal.SIGSTOP).result()

    when, _, label = point.partition(":")
    if when in ("before", "after"):
        pids = [os.getpid()] if who == "both" else []
        (site.book / f"{case}.{label}.{when}").write_text(" ".join(map(str, pids)))
    # Only one of the chains has effects side by side; every host takes a while to start.
    async with site.opened(at, hosts=2 if tool == "side" else 1) as (invoker, _):
        answer = await site.invoke(invoker, case, tool)
        site.write("answers", {"case": case, "by": "victim", **answer})


async def heir(site: Site, case: str, point: str) -> None:
    """Take over the run of this case, and die at the point."""

    def at(reached: str) -> None:
        if reached == point:
            os.kill(os.getpid(), signal.SIGKILL)

    async with site.opened(at, hosts=1) as (invoker, store):
        with store.read_transaction() as tx:
            run = store.runs.by_key(tx, ME.name, case)
        assert run is not None
        while run.state == RunState.RUNNING and await invoker.take_over(run.run_id) is None:
            await asyncio.sleep(0.01)
            with store.read_transaction() as tx:
                run = store.runs.run(tx, run.run_id)


# --- workers ---------------------------------------------------------------------------------------------------------


async def worker(site: Site, name: str, inbox: str) -> None:
    seen: set[tuple[str, int]] = set()

    def at(reached: str) -> None:
        if reached == "claimed":
            with store.read_transaction() as tx:
                for run in store.runs.list(tx, limit=50):
                    if run.owner is not None and run.fence > 1 and (run.run_id, run.fence) not in seen:
                        seen.add((run.run_id, run.fence))
                        told = {"run": run.run_id, "case": run.request_key, "fence": run.fence, "at_ms": run.touched_ms}
                        site.write("claims", {**told, "by": name, "owner": run.owner})

    async with site.opened(at) as (invoker, store):
        working = Worker([invoker], at_once=2, pause=0.02)
        under_way = asyncio.create_task(working.run())
        asked: set[asyncio.Task[None]] = set()
        site.write("answers", {"case": name, "by": name})
        lines = await _lines(inbox)
        while line := await lines.readline():
            asked.add(asyncio.create_task(_asked(site, invoker, name, **json.loads(line))))
        await asyncio.gather(*asked)
        working.stop()
        await under_way


async def _asked(site: Site, invoker: Invoker, name: str, case: str, tool: str) -> None:
    site.write("answers", {"case": case, "by": name, **await site.invoke(invoker, case, tool)})


async def _lines(inbox: str) -> asyncio.StreamReader:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    file = await loop.run_in_executor(None, partial(Path(inbox).open, "rb", buffering=0))
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), file)
    return reader


# --- the process that the others come from ---------------------------------------------------------------------------


def _say(said: Mapping[str, Any]) -> None:
    os.write(1, json.dumps(said).encode() + b"\n")


def _fork(site: Site, role: str, given: Mapping[str, Any]) -> int:
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        os.setpgid(0, 0)
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        os.dup2(2, 1)
        roles: Mapping[str, Callable[..., Coroutine[Any, Any, None]]]
        roles = {"victim": victim, "heir": heir, "worker": worker}
        asyncio.run(roles[role](site, **given))
        status = 0
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        os._exit(status)


def main() -> None:
    pack, store, book = sys.argv[1:]
    site = Site(Path(pack), store, Path(book))
    children: dict[int, str] = {}
    waiting = b""
    _say({"ready": True})
    while True:
        if select.select([0], [], [], 0.005)[0]:
            read = os.read(0, 65_536)
            if not read:
                break
            *lines, waiting = (waiting + read).split(b"\n")
            for line in lines:
                asked = json.loads(line)
                name, role = asked.pop("id"), asked.pop("role")
                pid = _fork(site, role, asked)
                children[pid] = name
                _say({"id": name, "pid": pid})
        while children:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                break
            _say({"id": children.pop(pid), "status": status})
    for pid in children:
        os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
