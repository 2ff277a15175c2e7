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
    from manglecp.harness.states import MutationReady
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
    help="The mutation policy in force, whatever the evidence says of it.",
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
    @actor
    @as_json
    @database
    @wraps(change)
    def verb(
        *, evidence_file: str, active_policy: str | None, actor: str, as_json: bool, db: Path | None, **given: Any
    ) -> None:
        with opened(db) as memory:
            changed = change(Gate(memory, _right(evidence_file, active_policy), actor), **given)
        text.print_issue(changed, as_json)

    return verb


def _right(file: str, active_policy: str | None) -> MutationReady:
    """The right that a turn's evidence carries, or the end of the command with everything that it lacks."""
    from manglecp.cli import files
    from manglecp.harness.errors import InvalidEvidence
    from manglecp.harness.replay import ready_from
    from manglecp.harness.states import Blocked
    from manglecp.wire.decoding import decode
    from manglecp.wire.faults import Fault

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
