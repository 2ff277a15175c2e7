"""The options that several verbs of ``manglecp issue`` have."""

from __future__ import annotations

import click

from manglecp.cli.stores import user_name
from manglecp.store.issues import limits

__all__ = [
    "actor",
    "as_json",
    "as_of",
    "database",
    "description",
    "fence",
    "issue_id",
    "labels",
    "note",
    "priority",
    "ttl",
]


database = click.option(
    "--db",
    metavar="STORE",
    envvar="MANGLECP_ISSUES",
    help="The issue memory: a path, sqlite:///PATH or postgresql://…; by default .manglecp/issues.db here or in the "
    "nearest folder above.",
)
as_json = click.option("--json", "as_json", is_flag=True, help="Answer as one JSON document.")
actor = click.option(
    "--actor",
    metavar="NAME",
    envvar="MANGLECP_ACTOR",
    default=user_name,
    help="Who does it; by default $MANGLECP_ACTOR or the user.",
)
as_of = click.option("--as-of", metavar="N", type=click.IntRange(min=1), help="As it was just after event N.")
fence = click.option("--fence", metavar="N", type=int, help="The fencing token of the lease, if there is one.")
ttl = click.option(
    "--ttl", metavar="SECONDS", type=int, default=limits.DEFAULT_TTL, help="How long the lease lasts; 3,600 by default."
)
issue_id = click.option("--id", "issue", metavar="ID", help="The id of the new issue; by default a fresh one.")
description = click.option("--description", metavar="TEXT", default="", help="What it is about.")
priority = click.option(
    "--priority", metavar="0-4", type=int, default=limits.DEFAULT_PRIORITY, help="0 is the most urgent; 2 by default."
)
labels = click.option("--label", "labels", metavar="LABEL", multiple=True, help="May be given several times.")
note = click.option("--note", metavar="TEXT", default="", help="Added to the notes.")
