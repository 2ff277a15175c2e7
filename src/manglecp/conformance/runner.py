"""Run the checks one after the other, each with a time limit. A *row* is the id of a requirement.

A check fails if the server does not answer. After several unanswered checks in succession, the other checks are
skipped.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping, Set
from typing import Final

from manglecp.client import ClientError
from manglecp.conformance.checks import CHECKS
from manglecp.conformance.connections import Connection, InvalidMessage, SessionConnection, TransportName
from manglecp.conformance.message_rules import WATCHED, Watcher
from manglecp.conformance.plan import Plan
from manglecp.conformance.report import REQUIREMENTS, Report
from manglecp.conformance.server_test import Check, ServerTest, Target, Untested, encode, message, transport_of

UNTESTED: Final[Mapping[str, tuple[int, str]]] = {
    row: (table["level"], table["reason"]) for table in REQUIREMENTS["untested"] for row in table["rows"]
}
"""The requirements that no check tests, each with its lowest conformance level and the reason."""
DEVIATIONS: Final[Mapping[str, str]] = REQUIREMENTS["deviations"]
"""The deliberate deviations of a server with the extension x-approvals, with the reasons."""

_MAX_SILENT_CHECKS: Final = 3
_MIN_CLOSE_SECONDS: Final = 20.0  # the least time limit of a disconnection, even if checks have a shorter limit
_MANIFEST_TIME_FACTOR: Final = 3  # a server may still be starting
_MANIFEST_ROWS: Final[
    Mapping[TransportName, tuple[str, ...]]
] = {  # the rows that require the manifest as the first message
    "http": ("TRANS-10", "TRANS-29"),
    "websocket": ("TRANS-02",),
    "stdio": ("TRANS-25", "TRANS-31"),
}
_NO_ANSWER: Final = "the server did not answer"


async def run(
    target: Target, *, level: int = 3, plan: Plan | None = None, seconds: float = 20.0, rows: Set[str] | None = None
) -> Report:
    """Test the server at a URL, or the server that a command starts, against the requirements up to ``level``.

    ``seconds`` is the time limit of each check, multiplied by the ``time_factor`` of the check. ``rows`` selects the
    checks of these requirements; without ``rows``, the report also lists every requirement that is not tested.
    """
    report = Report(target if isinstance(target, str) else " ".join(target), transport_of(target), level)
    plan = plan or Plan()
    watcher = Watcher(report)
    watcher.secrets += filter(None, (plan.credentials.token, plan.credentials.approver_token))
    test = ServerTest(target, plan, report, watcher, time.time())
    checks = [check for check in CHECKS if check.level <= level and (rows is None or bool(rows & set(check.rows)))]
    if rows is None:
        for row, (row_level, reason) in UNTESTED.items():
            if row_level <= level:
                report.skip((row,), reason)
    try:
        if await _receive_manifest(test, _MANIFEST_ROWS[transport_of(target)], seconds * _MANIFEST_TIME_FACTOR):
            if rows is None and test.has_extension("x-approvals"):
                for row, reason in DEVIATIONS.items():
                    report.skip((row,), reason)
            await _run_checks(test, checks, seconds)
        else:
            for check in checks:
                report.skip(check.rows, _NO_ANSWER)
    finally:
        await _disconnect(test, seconds)
    if rows is None:
        report.skip((row for row in WATCHED if row not in report), "no message showed it")
    return report


async def _receive_manifest(test: ServerTest, rows: tuple[str, ...], seconds: float) -> bool:
    """Open the shared connection, and return whether the server sent a manifest and became ready."""
    test.report.check = "the manifest comes first"
    try:
        async with asyncio.timeout(seconds):
            connection = await test.connection()
            type_ = test.first_message.type
            for row in rows:
                test.report.note(row, type_ == "manifest", "the manifest as the first message", type_)
            return type_ == "manifest" and await _wait_until_ready(test, connection)
    except InvalidMessage as error:
        test.report.note(error.row, False, error.expected, error.seen)
        seen = str(error)
    except ClientError as error:
        seen = str(error)
    except TimeoutError:
        seen = "nothing in time"
    for row in rows:
        test.report.note(row, False, f"a manifest within {seconds:g} s", seen)
    return False


async def _wait_until_ready(test: ServerTest, connection: Connection) -> bool:
    """Wait until the server is ready; return False if it evaluates an intent while it is booting."""
    test.report.check = "A server that is booting evaluates nothing"
    while test.manifest.get("status") == "booting":
        request = message("intent_request", {"intent": {"name": "conformance_booting"}})
        answer = await connection.request(encode(request))
        if isinstance(connection, SessionConnection):
            test.manifest = connection.manifests[-1].payload
        else:
            test.manifest = (await connection.open()).payload
        if answer.code == "server_not_ready":
            test.report.note("MANI-29", True)
            test.report.note("ERR-29", True)
            await asyncio.sleep(0.1)
        elif answer.type == "intent_response" and test.manifest.get("status") == "booting":
            test.report.note("MANI-29", False, "server_not_ready while the status is booting", str(answer))
            return False
    return True


async def _run_checks(test: ServerTest, checks: list[Check], seconds: float) -> None:
    silent_count = 0  # the number of checks without an answer since the last answer
    has_access = not test.auth_required or test.plan.credentials.token is not None
    for check in checks:
        if test.report.transport not in check.transports:
            test.report.skip(check.rows, f"only on {' and '.join(check.transports)}")
        elif silent_count >= _MAX_SILENT_CHECKS:
            test.report.skip(check.rows, f"{_NO_ANSWER} {_MAX_SILENT_CHECKS} times, and was given up")
        elif check.needs_credential and not has_access:
            test.report.skip(check.rows, "the server requires a credential, and the plan has none")
        else:
            has_answered = await _run_check(test, check, seconds * check.time_factor)
            silent_count = 0 if has_answered else silent_count + 1


async def _run_check(test: ServerTest, check: Check, seconds: float) -> bool:
    """Run one check, and return whether the server answered. Rows that the check did not note are skipped or fail."""
    test.check, test.noted, test.report.check = check, set(), check.name
    has_answered, skip_reason, expected, seen = True, "nothing showed it", "", ""
    try:
        async with asyncio.timeout(seconds):
            await check.run(test)
        await _note_unexpected(test)
    except Untested as error:
        skip_reason = str(error)
    except InvalidMessage as error:
        test.report.note(error.row, False, error.expected, error.seen)
        skip_reason = "an answer could not be read"
        await _disconnect(test, seconds)
    except (TypeError, LookupError, ValueError, AttributeError) as error:
        # Checks read answers without testing every member: the server sent JSON of an unexpected shape.
        expected, seen = "answers as the specification has them", f"{type(error).__name__}: {error}"
    except (ClientError, TimeoutError) as error:
        has_answered, expected, seen = False, f"an answer within {seconds:g} s", str(error) or "nothing"
    if expected:  # the check did not finish
        for row in check.rows:
            if row not in test.noted:
                test.note(row, False, expected, seen)
        await _disconnect(test, seconds)
    test.report.skip([row for row in check.rows if row not in test.noted], skip_reason)
    return has_answered


async def _note_unexpected(test: ServerTest) -> None:
    """Report messages that no check expected: a second terminal message, or progress after a terminal message."""
    connection = test.shared_connection
    if not isinstance(connection, SessionConnection):
        return
    unexpected_messages = await connection.unexpected()
    for answer in unexpected_messages:
        test.report.note("TRANS-33", False, "one terminal message for each request", f"one more: {answer}")
    for progress in connection.late_progress:
        test.report.note("PROG-08", False, "no progress after the terminal message", progress)
    if unexpected_messages or connection.late_progress:
        await test.disconnect()


async def _disconnect(test: ServerTest, seconds: float) -> None:
    with contextlib.suppress(ClientError, TimeoutError, OSError):
        async with asyncio.timeout(max(seconds, _MIN_CLOSE_SECONDS)):
            await test.disconnect()
