"""The gate of issue memory on the command line: no change of what is known without the evidence of a turn.

A verb that changes something is written as a function of the :class:`Gate`, which is only made of evidence that carries
the change. What such verbs have in common, their options and what they print, is here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from manglecp.cli import issue_text as text
from manglecp.cli.issue_memory import opened, refusal
from manglecp.cli.issue_options import actor, as_json, database

if TYPE_CHECKING:
    from manglecp.harness import MutationReady
    from manglecp.store.issues import Issue, IssueMemory

__all__ = ["Gate", "gated"]

_evidence = click.option(
    "--evidence",
    "evidence_file",
    metavar="FILE",
    required=True,
    type=click.Path(exists=True, dir_okay=False, allow_dash=True),
    help="The turn that carries the change, as `manglecp harness check` takes it; - is standard input.",
)
_active_policy = click.option(
    "--active-policy",
    metavar="DIGEST",
    envvar="MANGLECP_ACTIVE_POLICY",
    help="The digest of the mutation policy in force.",
)
_pin = click.option(
    "--pin",
    "pin_file",
    metavar="FILE",
    envvar="MANGLECP_PIN",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The pin of the policy package in force, instead of --active-policy.",
)


class Gate(NamedTuple):
    """What a change is made with: the memory, the right to change it, and who does it."""

    memory: IssueMemory
    right: MutationReady
    actor: str


def gated(change: Callable[..., Issue]) -> Callable[..., None]:
    """The verb that makes this change, given the evidence for it, and prints the issue that it leads to."""

    @_evidence
    @_active_policy
    @_pin
    @actor
    @as_json
    @database
    @wraps(change)
    def verb(
        *,
        evidence_file: str,
        active_policy: str | None,
        pin_file: Path | None,
        actor: str,
        as_json: bool,
        db: str | None,
        **given: Any,
    ) -> None:
        in_force = _in_force(active_policy, pin_file)
        with opened(db) as memory:
            changed = change(Gate(memory, _right(evidence_file, in_force), actor), **given)
        text.print_issue(changed, as_json)

    return verb


def _in_force(active_policy: str | None, pin_file: Path | None) -> str:
    """The mutation policy that a turn has to be made under. Evidence is not asked: it would speak for itself."""
    from manglecp.cli.policy_files import load_pin
    from manglecp.harness.policy import PolicyError

    if active_policy is not None:
        return active_policy
    if pin_file is None:
        raise click.UsageError(
            "say which mutation policy is in force: --pin FILE (MANGLECP_PIN) names the pin of the policy package, "
            "--active-policy DIGEST (MANGLECP_ACTIVE_POLICY) the policy itself"
        )
    try:
        pin = load_pin(pin_file)
    except PolicyError as error:
        raise click.UsageError(str(error)) from None
    assert pin is not None  # the file is there
    return pin.package.digests["mutation"]


def _right(file: str, active_policy: str) -> MutationReady:
    """The right that a turn's evidence carries, or the end of the command with everything that it lacks."""
    from manglecp.cli import files
    from manglecp.harness import Blocked, InvalidEvidence, ready_from
    from manglecp.wire import Fault, decode

    try:
        return ready_from(decode(files.read(file)), active_policy)
    except Fault as fault:
        raise click.UsageError(f"{files.source_name(file)}: {fault.message}") from None
    except InvalidEvidence as error:
        raise click.UsageError(f"{files.source_name(file)}: {error}") from None
    except Blocked as blocked:
        for finding in blocked.findings:
            click.echo(
                f"  {finding.failure.name} at {finding.where}: {finding.message}; {finding.failure.remedy}", err=True
            )
        why = "the evidence does not carry the change" if blocked.findings else "the turn asks for no mutation"
        raise refusal(f"error[blocked]: {blocked.state.title} is not reached: {why}") from None
