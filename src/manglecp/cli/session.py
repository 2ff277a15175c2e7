"""``manglecp harness session`` and ``work``: the work on issues as a chain of judged turns.

Documents are read and printed as JSON. Exit status: 0 done, 1 rejected or refused, 2 a file or the command line is
wrong, 3 no issue can be claimed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import click

from manglecp.cli import files, issue_memory as options
from manglecp.cli.issue_memory import IssueOptions
from manglecp.cli.output import fail, json_text, print_json, write_lines
from manglecp.cli.policy import default_pin, load_package, load_pin
from manglecp.harness.policy import HarnessCall
from manglecp.issues import FEATURE_STATUSES, Close, Session, SessionMemory
from manglecp.store import ChangeRefused

_issue = click.argument("issue", metavar="ISSUE")
_fence_option = partial(files.option, "--fence N", type=int, envvar="MANGLECP_FENCE")
_fence = _fence_option(required=True, help="The fencing token of `start`.")
_policy = files.option(
    "--policy PACKAGE", help="A policy package; by default that of the last start, or the built-in `work`."
)
_memory_options = files.option_group(
    "issues", lambda **values: IssueOptions(True, **values), options.actor_option, options.database_option
)


def _start(memory: SessionMemory, issues: IssueOptions, issue: str | None, ttl: int, policy: str | None) -> Session:
    """Start or resume the session of an issue, by default the next one; exit with status 3 if none can be claimed."""
    package = None if policy is None else load_package(policy)
    pin = None if policy is None else load_pin(default_pin(policy))
    session = memory.start(issues.actor, issue, ttl, package, None if pin is None else pin.digest)
    if session is None:
        fail("no issue can be claimed", status=3)
    return session


@click.group("session", short_help="Work on an issue in a chain of judged turns.")
def command() -> None:
    """The work on an issue: a lease, judged turns, features and a handoff, in a hash chain per issue.

    Begin with `start`, pass each turn to `turn`, and end with `stop`; `manglecp harness work` does it for a command.
    """


@command.command("start")
@click.argument("issue", metavar="[ISSUE]", required=False)
@_policy
@options.ttl_option
@_memory_options
def start(issue: str | None, policy: str | None, ttl: int, issues: IssueOptions) -> None:
    """Lease ISSUE, or the next one, and start its session or resume it from its handoff.

    Next: `turn ISSUE --fence N`, with the printed fencing token.
    """
    with issues.memory() as memory:
        print_json(_start(memory, issues, issue, ttl, policy).as_json())


@command.command("turn")
@_issue
@files.option("--input FILE", "file", type=files.FILE, required=True, help="The evidence; - is stdin.")
@files.option("--close", is_flag=True, help="Close the issue, if the accepted turn has that mutation.")
@_fence
@_memory_options
def turn(issue: str, file: str, close: bool, fence: int, issues: IssueOptions) -> None:
    """Judge a turn under the policy of the session, and record it.

    FILE is as for `harness check --input`; `harness ingest` extracts it from a log. An accepted turn advances the
    chain. A rejected one is recorded with the decision of the retry policy: try again, or see the escalation.
    Next: another `turn`, or `stop`.
    """
    from manglecp.harness import InvalidEvidence

    document = files.read_json(file)
    with issues.memory() as memory:
        try:
            step = memory.turn(issues.actor, issue, fence, document, Close(fence=fence) if close else None)
        except InvalidEvidence as error:
            raise click.UsageError(f"{files.source_name(file)}: {error}") from None
    print_json(step, ok=not step["failureClasses"])


@command.command("stop")
@_issue
@files.option("--summary TEXT", help="What was done; by default the last summary.")
@files.option("--next-step TEXT", "nextStep", help="What the next worker does; by default the last one.")
@files.option("--witness-ref REF", "witnessRefs", multiple=True, help="May be given several times.")
@_fence
@_memory_options
def stop(issue: str, fence: int, issues: IssueOptions, **handoff: Any) -> None:
    """Record the handoff, and release the lease. Next: `start ISSUE` resumes the session."""
    changes = {name: value for name, value in handoff.items() if value is not None}
    with issues.memory() as memory:
        print_json(memory.stop(issues.actor, issue, fence, changes).as_json())


@command.command("show")
@click.argument("issue", metavar="[ISSUE]", required=False)
@_memory_options
def show(issue: str | None, issues: IssueOptions) -> None:
    """Print the session of ISSUE with its handoff and its next feature, or all sessions, one per line."""
    with issues.memory() as memory:
        write_lines(json_text(session.as_json()) for session in memory.sessions(issue))


@command.command("feature", short_help="Add, change and check the features of an issue.")
@_issue
@click.argument("feature", metavar="[FEATURE]", required=False)
@files.option("--status", type=click.Choice(FEATURE_STATUSES), help="A new feature is pending; one is in progress.")
@files.option("--summary TEXT", help="What the feature is.")
@files.option("--verification-ref REF", "verificationRefs", multiple=True, help="`completed` needs one.")
@files.option("--require-closure", is_flag=True, help="Reject a ledger with a feature that is not completed.")
@_fence_option(help="The fencing token of `start`; a change of a leased issue needs it.")
@_memory_options
def feature(
    issue: str, feature: str | None, require_closure: bool, fence: int | None, issues: IssueOptions, **changes: Any
) -> None:
    """Add or change FEATURE, if given, and print the ledger of ISSUE with its verdict and its next feature."""
    with issues.memory() as memory:
        if feature is not None:
            _check_fence(memory, issues.actor, issue, fence)
            memory.set_feature(issues.actor, issue, feature, **changes)
        (session,) = memory.sessions(issue)
    findings = [] if session.features else ["harness_feature_ledger.empty"]
    if require_closure and not session.is_complete:
        findings.append("harness_feature_ledger.closure_incomplete")
    verdict = {"result": "rejected" if findings else "accepted", "failureClasses": findings}
    print_json(session.ledger() | verdict | {"nextFeatureId": session.next_feature}, ok=not findings)


def _check_fence(memory: SessionMemory, actor: str, issue: str, fence: int | None) -> None:
    """Raise :class:`.ChangeRefused` unless the actor holds the lease with this fencing token, or there is none."""
    with memory.view() as view:
        lease, now = view.show(issue).lease, view.now
    if lease is None or not lease.is_live(now):
        if fence is not None:
            raise ChangeRefused("lease_stale", f"the lease on {issue} has expired or was released; start again")
    elif (lease.fence, lease.owner) != (fence, actor):
        message = f"{issue} is leased to {lease.owner}; give --fence N, with the fencing token of `start`"
        raise ChangeRefused("lease_id_mismatch", message)


@command.command("trajectory")
@files.option("--mode", type=click.Choice(["latest", "failed", "retry-needed"]), default="latest", help="Which steps.")
@files.option("--limit N", type=click.IntRange(min=1), help="The number of steps; by default all.")
@_memory_options
def trajectory(mode: str, limit: int | None, issues: IssueOptions) -> None:
    """Print the steps of all sessions, the newest first, one per line."""
    with issues.memory() as memory:
        write_lines(map(json_text, memory.trajectory(mode, limit)))


@click.command(
    "work",
    short_help="Run a command for the next issue, and close it on evidence.",
    context_settings={"allow_interspersed_args": False},  # options after COMMAND are those of COMMAND
)
@click.argument("work_command", metavar="COMMAND...", nargs=-1, required=True, type=click.UNPROCESSED)
@files.option("--verify TEXT", "verification", help="A command of the shell that checks the work.")
@files.option("--no-verify", is_flag=True, help="Close the issue on the exit status of COMMAND alone.")
@_policy
@options.ttl_option
@_memory_options
def work(
    work_command: tuple[str, ...],
    verification: str | None,
    no_verify: bool,
    policy: str | None,
    ttl: int,
    issues: IssueOptions,
) -> None:
    """Claim the next issue, run COMMAND and the verification, and close the issue on their evidence.

    COMMAND has MANGLECP_ISSUE, MANGLECP_FENCE and MANGLECP_FEATURE in its environment; its output goes to standard
    error. The lease is renewed while it runs. Run it in a loop until the exit status is 3: no issue can be claimed.
    Next: `manglecp harness session trajectory`.
    """
    if no_verify == (verification is not None):
        raise click.UsageError("give --verify TEXT, a command that checks the work, or --no-verify")
    if shutil.which(work_command[0]) is None:
        raise click.UsageError(f"there is no command {work_command[0]}")
    with issues.memory() as memory:
        session = _start(memory, issues, None, ttl, policy)
        issue, fence, feature = session.issue, session.fence, session.next_feature
        if feature is not None:
            memory.set_feature(issues.actor, issue, feature, status="in_progress")
        environment = {"MANGLECP_ISSUE": issue, "MANGLECP_FENCE": str(fence), "MANGLECP_FEATURE": feature or ""}
        environment |= {"MANGLECP_ACTOR": issues.actor, "MANGLECP_ISSUES": issues.db or ""}

        def run(tool: str, argv: Sequence[str], error: str) -> HarnessCall:
            status = _run(argv, environment, ttl / 3, lambda: memory.renew(issues.actor, issue, fence, ttl))
            failure = error if status else None
            return HarnessCall(tool, f"exit status {status}", input={"argv": list(argv)}, error=failure)

        if feature is None and session.features and not session.is_complete:
            calls = [HarnessCall("harness.work", "every open feature is blocked", error="work_failed")]
        else:
            calls = [run("harness.work", work_command, "work_failed")]
        if verification is not None and calls[0].error is None:
            calls.append(run("harness.verify", ["sh", "-c", verification], "verify_failed"))
        step = memory.finish_work(issues.actor, issue, fence, calls, feature)
    print_json(step, ok=not step["failureClasses"])


def _run(argv: Sequence[str], environment: dict[str, str], interval: float, renew: Callable[[], object]) -> int:
    """Run a command and return its exit status. Renew the lease at each interval; if that fails, kill the command."""
    with subprocess.Popen(argv, env=os.environ | environment, stdout=2) as process:  # 2 is standard error
        while True:
            try:
                return process.wait(interval)
            except subprocess.TimeoutExpired:
                try:
                    renew()
                except ChangeRefused:  # the lease is lost, which finish_work() records
                    process.kill()
