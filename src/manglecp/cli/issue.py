"""``manglecp issue``: issue memory from the command line.

The verbs are in :mod:`.issue_questions`, :mod:`.issue_work`, :mod:`.issue_changes` and :mod:`.issue_log`.

Exit status: 0 done, 1 refused (by the state of the memory, a lease, the evidence, or nothing was there to claim; an
audit that found something), 2 the command line or a file was wrong.
"""

from __future__ import annotations

import click

from manglecp.cli.issue_changes import close, dep, discover, update
from manglecp.cli.issue_log import export, import_, verify
from manglecp.cli.issue_questions import blocked, history, list_, ready, show
from manglecp.cli.issue_work import add, claim, release, renew

__all__ = ["command"]


@click.group("issue")
def command() -> None:
    """Work that is known of: issues, what they wait for, who is on them.

    update, discover, close and dep change what is known: they take the evidence of a turn, and no other way exists.
    """


_QUESTIONS = (list_, ready, blocked, show, history)
_WORK = (add, claim, renew, release)
_CHANGES = (update, discover, close, dep)
_LOG = (export, import_, verify)
for _verb in (*_QUESTIONS, *_WORK, *_CHANGES, *_LOG):
    command.add_command(_verb)
