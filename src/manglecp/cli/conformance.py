"""``manglecp conformance``: test a server as a client, and report by requirement."""

from __future__ import annotations

import asyncio
import shlex
from pathlib import Path

import click

from manglecp import conformance
from manglecp.cli import VerbError
from manglecp.cli.files import EXISTING_FILE, option
from manglecp.cli.options import URL_SCHEMES, json_option
from manglecp.cli.output import ProgressLine, print_result


@click.command("conformance")
@click.argument("url", metavar="[URL]", required=False)
@option("--stdio CMD", help="Start the server with this command, and test its standard streams.")
@option("--level", type=click.IntRange(1, 3), default=3, show_default=True, help="The level of conformance to test.")
@option(
    "--plan FILE",
    "plan_file",
    type=EXISTING_FILE,
    help="Intents, facts, credentials and the tools that may be invoked, in TOML.",
)
@option(
    "--timeout SECONDS",
    type=click.FloatRange(min=0.1),
    default=20.0,
    show_default=True,
    help="The time limit of a check; checks with many requests have a multiple of it.",
)
@option("--row ID", "rows", multiple=True, help="Run only checks of this requirement.")
@json_option("Print the report as JSON.")
@click.pass_context
def command(
    ctx: click.Context,
    url: str | None,
    stdio: str | None,
    level: int,
    plan_file: Path | None,
    timeout: float,
    rows: tuple[str, ...],
    as_json: bool,
) -> None:
    """Test the MangleCP server at URL, and print the outcome of each requirement.

    URL begins with http://, https://, ws:// or wss://. Only tools that the plan names are invoked. The exit status is
    0 if no requirement failed, else 1.
    """
    if (url is None) == (stdio is None):
        raise click.UsageError("Give either a URL or --stdio CMD.")
    if url is not None and not url.startswith(URL_SCHEMES):
        raise click.BadParameter(f"{url} does not begin with {', '.join(URL_SCHEMES)}.", param_hint="URL")
    try:
        words = [] if stdio is None else shlex.split(stdio)
    except ValueError as error:
        raise click.BadParameter(f"{error}.", param_hint="--stdio") from None
    if stdio is not None and not words:
        raise click.BadParameter("A command has at least one word.", param_hint="--stdio")
    try:
        plan = None if plan_file is None else conformance.read_plan(plan_file)
    except conformance.PlanError as error:
        raise VerbError(str(error)) from None
    with ProgressLine("testing"):
        selected_rows = frozenset(rows) or None
        report = asyncio.run(conformance.run(url or words, level=level, plan=plan, seconds=timeout, rows=selected_rows))
    print_result(report.document(), _lines(report), as_json=as_json)
    ctx.exit(0 if report.conforms else 1)


def _lines(report: conformance.Report) -> list[str]:
    """Return the report; of a server that never responded, a sentence in place of the untested requirements."""
    lines = report.lines()
    if report.of("passed") or not any("the server did not answer" in row.reasons for row in report.rows):
        return lines
    explanation = "Nothing else was tested: the server did not answer. Is it running, and is the address right?"
    return [*lines[: lines.index("Not tested:")], explanation]
