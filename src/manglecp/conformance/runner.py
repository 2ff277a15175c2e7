"""Run the checks that apply, one after the other, each with a time limit.

A server that does not answer fails that check; after several silent checks in a row the rest is skipped.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping, Set
from typing import Final

from manglecp.conformance.bench import Bench, Check, Target, Untested, encode, message
from manglecp.conformance.checks import CHECKS
from manglecp.conformance.connections import Connection, Disconnected, InvalidMessage, SessionConnection, Transport
from manglecp.conformance.message_rules import WATCHED, Watcher
from manglecp.conformance.plan import Plan
from manglecp.conformance.report import Report

_INSIDE: Final = "it cannot be seen from outside"
_CLIENT: Final = "it is the client's duty"
_CONNECTIONS: Final = "this run uses one transport"
_STATE: Final = "the server was ready all the time"

UNSEEN: Final[Mapping[str, tuple[int, str]]] = {
    **dict.fromkeys(("WIRE-07", "TRANS-03", "TRANS-08", "TRANS-12", "TRANS-35", "DATA-46"), (1, _CLIENT)),
    **dict.fromkeys(("MANI-28", "MANI-34", "TOOL-21", "PROG-07", "COV-02", "ERR-49"), (1, _CLIENT)),
    **dict.fromkeys(("EVAL-40", "EVAL-37", "SEC-01", "ERR-22", "ERR-31"), (1, _INSIDE)),
    **dict.fromkeys(("OBS-05", "OBS-07"), (2, _INSIDE)),
    **dict.fromkeys(("EVAL-23", "ERR-21", "MANI-21"), (2, _INSIDE)),
    **dict.fromkeys(("MANI-29", "MANI-31", "ERR-29", "TRANS-20"), (1, _STATE)),
    "DATA-18": (1, "a float64 of the same value looks alike"),
    "DATA-23": (1, "no message of a server has variables"),
    "ERR-30": (1, "no limit of requests was met"),
    "ERR-11": (1, "no request was refused for a missing permission"),
    "TRANS-09": (1, "it takes longer than a run"),
    "SEC-34": (1, "the address says whether there is TLS"),
    "WIRE-28": (1, "there is one version only"),
    "CONF-13": (3, _CONNECTIONS),
}

DEVIATIONS: Final[Mapping[str, str]] = {
    "INVK-03": "with x-approvals an invocation is judged at the server's clock; its eval_time is recorded only",
    "SEC-21": "with x-approvals an approver decides at the server; no client makes a token",
    "SEC-33": "with x-approvals session facts are stored with the offers that they prove, for no other evaluation",
    "DATA-47": "with x-approvals session facts are stored with the offers that they prove, for no other evaluation",
}
"""Deliberate deviations of servers that prove tools again when they are used (extension ``x-approvals``)."""

SECONDS: Final = 20.0
_GIVE_UP: Final = 3
_FIRST: Final[dict[Transport, tuple[str, ...]]] = {
    "http": ("TRANS-10", "TRANS-29"),
    "websocket": ("TRANS-02",),
    "stdio": ("TRANS-25", "TRANS-31"),
}
_GONE: Final = "the server did not answer"


def transport_of(target: Target) -> Transport:
    if not isinstance(target, str):
        return "stdio"
    return "websocket" if target.startswith(("ws://", "wss://")) else "http"


async def run(
    target: Target,
    *,
    level: int = 3,
    plan: Plan | None = None,
    seconds: float = SECONDS,
    rows: Set[str] | None = None,
) -> Report:
    """Test the server at an address, or the one that a command starts; ``rows`` selects checks by requirement.

    ``seconds`` limits each check; checks with many requests get a multiple of it.
    """
    transport = transport_of(target)
    report = Report(target if isinstance(target, str) else " ".join(target), transport, level)
    plan = plan or Plan()
    watcher = Watcher(report)
    watcher.secrets += filter(None, (plan.credentials.token, plan.credentials.approver_token))
    bench = Bench(target, plan, report, watcher, time.time())
    checks = [check for check in CHECKS if check.level <= level and (rows is None or bool(rows & set(check.rows)))]
    for id_, (row_level, reason) in UNSEEN.items():
        if row_level <= level and rows is None:
            report.leave((id_,), reason)
    try:
        if await _receive_manifest(bench, transport, seconds):
            if rows is None and bench.has_extension("x-approvals"):
                for id_, reason in DEVIATIONS.items():
                    report.leave((id_,), reason)
            await _run_checks(bench, checks, transport, seconds)
        else:
            for check in checks:
                report.leave(check.rows, _GONE)
    finally:
        await _close(bench, seconds)
    if rows is None:
        report.leave((row for row in WATCHED if row not in report), "no message showed it")
    return report


async def _receive_manifest(bench: Bench, transport: Transport, seconds: float) -> bool:
    """Receive the manifest, and wait until the server is ready."""
    first, seen = "the manifest comes first", ""
    expected = f"a manifest within {seconds * 3:g} s"
    try:
        async with asyncio.timeout(seconds * 3):
            connection = await bench.connection()
            kind = (
                connection.first.type
                if isinstance(connection, SessionConnection) and connection.first is not None
                else "manifest"
            )
            for row in _FIRST[transport]:
                bench.report.note(row, kind == "manifest", "the manifest as the first message", kind, first)
            if kind != "manifest":
                return False
            return await _wait_until_ready(bench, connection)
    except InvalidMessage as error:
        bench.report.note(error.row, False, error.expected, error.seen, first)
        seen = str(error)
    except Disconnected as error:
        seen = str(error)
    except TimeoutError:
        seen = "nothing in time"
    for row in _FIRST[transport]:
        bench.report.note(row, False, expected, seen, first)
    return False


async def _wait_until_ready(bench: Bench, connection: Connection) -> bool:
    """Wait until the server is ready; check that it evaluates nothing meanwhile."""
    name = "A server that is booting evaluates nothing"
    while bench.manifest.get("status") == "booting":
        answer = await connection.ask(encode(message("intent_request", {"intent": {"name": "conformance_booting"}})))
        if isinstance(connection, SessionConnection):
            bench.manifest = connection.manifests[-1].payload
        else:
            bench.manifest = (await connection.open()).payload
        if answer.code == "server_not_ready":
            bench.report.note("MANI-29", True, "", "", name)
            bench.report.note("ERR-29", True, "", "", name)
            await asyncio.sleep(0.1)
        elif answer.type == "intent_response" and bench.manifest.get("status") == "booting":
            bench.report.note("MANI-29", False, "server_not_ready while the status is booting", str(answer), name)
            return False
    return True


async def _run_checks(bench: Bench, checks: list[Check], transport: Transport, seconds: float) -> None:
    silent = 0
    has_access = not bench.auth_required or bench.plan.credentials.token is not None
    for check in checks:
        if transport not in check.transports:
            bench.report.leave(check.rows, f"only on {' and '.join(check.transports)}")
        elif silent >= _GIVE_UP:
            bench.report.leave(check.rows, f"{_GONE} {_GIVE_UP} times, and was given up")
        elif check.access and not has_access:
            bench.report.leave(check.rows, "the server wants a credential, and the plan has none")
        else:
            silent = 0 if await _run_check(bench, check, seconds * check.patience) else silent + 1


async def _run_check(bench: Bench, check: Check, seconds: float) -> bool:
    """Run one check, and return whether the server answered."""
    bench.check, bench.noted = check, set()
    bench.watcher.check = check.name
    answered, reason, expected, seen = True, "nothing showed it", "", ""
    try:
        async with asyncio.timeout(seconds):
            await check.run(bench)
        await _note_leftovers(bench)
    except Untested as error:
        reason = str(error)
    except InvalidMessage as error:
        bench.report.note(error.row, False, error.expected, error.seen, check.name)
        reason = "an answer could not be read"
        await _close(bench, seconds)
    except (TypeError, KeyError, ValueError, AttributeError, IndexError) as error:  # an answer of another form
        expected, seen = "answers as the specification has them", f"{type(error).__name__}: {error}"
    except (Disconnected, TimeoutError) as error:
        answered, expected, seen = False, f"an answer within {seconds:g} s", str(error) or "nothing"
    if expected:
        for row in check.rows:
            if row not in bench.noted:
                bench.note(row, False, expected, seen)
        await _close(bench, seconds)
    bench.report.leave([row for row in check.rows if row not in bench.noted], reason)
    return answered


async def _note_leftovers(bench: Bench) -> None:
    """Report messages that are left over after a check: a second terminal message, or late progress."""
    connection = bench.opened
    if not isinstance(connection, SessionConnection):
        return
    name = bench.watcher.check
    for answer in (*connection.unread, *connection.repeated):
        bench.report.note("TRANS-33", False, "one terminal message for each request", f"one more: {answer}", name)
    for late in connection.late:
        bench.report.note("PROG-08", False, "no progress after the terminal message", late, name)
    if connection.unread or connection.repeated or connection.late:
        await bench.drop()


async def _close(bench: Bench, seconds: float) -> None:
    with contextlib.suppress(Disconnected, TimeoutError, OSError):
        async with asyncio.timeout(max(seconds, 20.0)):
            await bench.drop()
