"""Run the checks one after the other, each with a time limit. A *row* is the id of a requirement.

A check fails if the server does not answer. After several such checks in succession the remaining ones are skipped.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping, Set
from typing import Final

from manglecp.conformance.bench import Bench, Check, Target, Untested, encode, message, transport_of
from manglecp.conformance.checks import CHECKS
from manglecp.conformance.connections import Connection, Disconnected, InvalidMessage, SessionConnection, Transport
from manglecp.conformance.message_rules import WATCHED, Watcher
from manglecp.conformance.plan import Plan
from manglecp.conformance.report import Report

_INSIDE: Final = "it cannot be seen from outside"
_CLIENT: Final = "it is a requirement of clients"
_STATE: Final = "the server was ready all the time"

# Rows that no check tests: the lowest conformance level that has them, and why they are not tested. The watcher may
# still observe some of them.
UNSEEN: Final[Mapping[str, tuple[int, str]]] = {
    **dict.fromkeys(("WIRE-07", "TRANS-03", "TRANS-08", "TRANS-12", "TRANS-35", "DATA-46"), (1, _CLIENT)),
    **dict.fromkeys(("MANI-28", "MANI-34", "TOOL-21", "PROG-07", "COV-02", "ERR-49"), (1, _CLIENT)),
    **dict.fromkeys(("EVAL-40", "EVAL-37", "SEC-01", "ERR-22", "ERR-31"), (1, _INSIDE)),
    **dict.fromkeys(("OBS-05", "OBS-07"), (2, _INSIDE)),
    **dict.fromkeys(("EVAL-23", "ERR-21", "MANI-21"), (2, _INSIDE)),
    **dict.fromkeys(("MANI-29", "MANI-31", "ERR-29", "TRANS-20"), (1, _STATE)),
    "DATA-18": (1, "an integer and a float64 of the same value look alike"),
    "DATA-23": (1, "no message of a server has variables"),
    "ERR-30": (1, "no limit of requests was reached"),
    "ERR-11": (1, "no request was refused for a missing permission"),
    "TRANS-09": (1, "it takes longer than a run"),
    "SEC-34": (1, "the URL shows whether there is TLS"),
    "WIRE-28": (1, "there is one version only"),
    "CONF-13": (3, "this run uses one transport"),
}

DEVIATIONS: Final[Mapping[str, str]] = {
    "INVK-03": "with x-approvals an invocation is judged at the server's clock; its eval_time is recorded only",
    "SEC-21": "with x-approvals an approver decides at the server; no client makes a token",
    "SEC-33": "with x-approvals session facts are stored with the offers that they prove, for no other evaluation",
    "DATA-47": "with x-approvals session facts are stored with the offers that they prove, for no other evaluation",
}
"""Deliberate deviations with the extension ``x-approvals``: the server proves a tool again when it is invoked."""

_MAX_SILENT_CHECKS: Final = 3
_MIN_CLOSE_SECONDS: Final = 20.0  # the time limit of a disconnection, even if that of checks is shorter
_MANIFEST_TIME_FACTOR: Final = 3  # a server may still be starting
_MANIFEST_ROWS: Final[dict[Transport, tuple[str, ...]]] = {  # the rows that demand the manifest as the first message
    "http": ("TRANS-10", "TRANS-29"),
    "websocket": ("TRANS-02",),
    "stdio": ("TRANS-25", "TRANS-31"),
}
_NO_ANSWER: Final = "the server did not answer"


async def run(
    target: Target, *, level: int = 3, plan: Plan | None = None, seconds: float = 20.0, rows: Set[str] | None = None
) -> Report:
    """Test the server at a URL, or the one that a command starts, against the requirements up to ``level``.

    ``seconds`` is the time limit of each check; checks with many requests get a multiple of it. ``rows`` selects the
    checks of these requirements; without it, the report also lists every requirement that is not tested.
    """
    report = Report(target if isinstance(target, str) else " ".join(target), transport_of(target), level)
    plan = plan or Plan()
    watcher = Watcher(report)
    watcher.secrets += filter(None, (plan.credentials.token, plan.credentials.approver_token))
    bench = Bench(target, plan, report, watcher, time.time())
    checks = [check for check in CHECKS if check.level <= level and (rows is None or bool(rows & set(check.rows)))]
    for row, (row_level, reason) in UNSEEN.items():
        if row_level <= level and rows is None:
            report.skip((row,), reason)
    try:
        if await _receive_manifest(bench, _MANIFEST_ROWS[transport_of(target)], seconds * _MANIFEST_TIME_FACTOR):
            if rows is None and bench.has_extension("x-approvals"):
                for row, reason in DEVIATIONS.items():
                    report.skip((row,), reason)
            await _run_checks(bench, checks, seconds)
        else:
            for check in checks:
                report.skip(check.rows, _NO_ANSWER)
    finally:
        await _disconnect(bench, seconds)
    if rows is None:
        report.skip((row for row in WATCHED if row not in report), "no message showed it")
    return report


async def _receive_manifest(bench: Bench, rows: tuple[str, ...], seconds: float) -> bool:
    """Open the shared connection, and return whether the server sent a manifest and became ready."""
    check = "the manifest comes first"
    try:
        async with asyncio.timeout(seconds):
            connection = await bench.connection()
            type_ = "manifest"  # on HTTP the client requests it
            if isinstance(connection, SessionConnection) and connection.first is not None:
                type_ = connection.first.type
            for row in rows:
                bench.report.note(row, type_ == "manifest", "the manifest as the first message", type_, check)
            return type_ == "manifest" and await _wait_until_ready(bench, connection)
    except InvalidMessage as error:
        bench.report.note(error.row, False, error.expected, error.seen, check)
        seen = str(error)
    except Disconnected as error:
        seen = str(error)
    except TimeoutError:
        seen = "nothing in time"
    for row in rows:
        bench.report.note(row, False, f"a manifest within {seconds:g} s", seen, check)
    return False


async def _wait_until_ready(bench: Bench, connection: Connection) -> bool:
    """Wait until the server is ready; return False as soon as it evaluates an intent while it is booting."""
    check = "A server that is booting evaluates nothing"
    while bench.manifest.get("status") == "booting":
        request = message("intent_request", {"intent": {"name": "conformance_booting"}})
        answer = await connection.request(encode(request))
        if isinstance(connection, SessionConnection):
            bench.manifest = connection.manifests[-1].payload
        else:
            bench.manifest = (await connection.open()).payload
        if answer.code == "server_not_ready":
            bench.report.note("MANI-29", True, "", "", check)
            bench.report.note("ERR-29", True, "", "", check)
            await asyncio.sleep(0.1)
        elif answer.type == "intent_response" and bench.manifest.get("status") == "booting":
            bench.report.note("MANI-29", False, "server_not_ready while the status is booting", str(answer), check)
            return False
    return True


async def _run_checks(bench: Bench, checks: list[Check], seconds: float) -> None:
    silent_count = 0  # checks without an answer since the last answer
    has_access = not bench.auth_required or bench.plan.credentials.token is not None
    for check in checks:
        if bench.report.transport not in check.transports:
            bench.report.skip(check.rows, f"only on {' and '.join(check.transports)}")
        elif silent_count >= _MAX_SILENT_CHECKS:
            bench.report.skip(check.rows, f"{_NO_ANSWER} {_MAX_SILENT_CHECKS} times, and was given up")
        elif check.needs_credential and not has_access:
            bench.report.skip(check.rows, "the server requires a credential, and the plan has none")
        else:
            has_answered = await _run_check(bench, check, seconds * check.time_factor)
            silent_count = 0 if has_answered else silent_count + 1


async def _run_check(bench: Bench, check: Check, seconds: float) -> bool:
    """Run one check, and return whether the server answered. Rows that the check did not note are skipped or fail."""
    bench.check, bench.noted = check, set()
    bench.watcher.check = check.name
    has_answered, skip_reason, expected, seen = True, "nothing showed it", "", ""
    try:
        async with asyncio.timeout(seconds):
            await check.run(bench)
        await _note_leftovers(bench)
    except Untested as error:
        skip_reason = str(error)
    except InvalidMessage as error:
        bench.report.note(error.row, False, error.expected, error.seen, check.name)
        skip_reason = "an answer could not be read"
        await _disconnect(bench, seconds)
    except (TypeError, KeyError, ValueError, AttributeError, IndexError) as error:
        # Checks read answers without testing every member: the server sent JSON of an unexpected shape.
        expected, seen = "answers as the specification has them", f"{type(error).__name__}: {error}"
    except (Disconnected, TimeoutError) as error:
        has_answered, expected, seen = False, f"an answer within {seconds:g} s", str(error) or "nothing"
    if expected:
        for row in check.rows:
            if row not in bench.noted:
                bench.note(row, False, expected, seen)
        await _disconnect(bench, seconds)
    bench.report.skip([row for row in check.rows if row not in bench.noted], skip_reason)
    return has_answered


async def _note_leftovers(bench: Bench) -> None:
    """Report messages that no check expected: a second terminal message, or progress after a terminal message."""
    connection = bench.shared_connection
    if not isinstance(connection, SessionConnection):
        return
    check = bench.watcher.check
    for answer in (*connection.unread, *connection.repeated):
        bench.report.note("TRANS-33", False, "one terminal message for each request", f"one more: {answer}", check)
    for progress in connection.late_progress:
        bench.report.note("PROG-08", False, "no progress after the terminal message", progress, check)
    if connection.unread or connection.repeated or connection.late_progress:
        await bench.disconnect()


async def _disconnect(bench: Bench, seconds: float) -> None:
    with contextlib.suppress(Disconnected, TimeoutError, OSError):
        async with asyncio.timeout(max(seconds, _MIN_CLOSE_SECONDS)):
            await bench.disconnect()
