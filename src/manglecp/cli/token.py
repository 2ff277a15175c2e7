"""``manglecp token``: make, list and revoke the tokens of a server's ``tokens.toml``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import click

from manglecp.cli.files import OUTPUT_FILE, option
from manglecp.cli.options import document_option
from manglecp.cli.output import count, print_result, table, write_lines
from manglecp.server import TokenEditor, TokensError

_HASH_DIGITS: Final = 12  # how many digits of each hash are shown
_file: Final = option(
    "--file FILE",
    envvar="MANGLECP_TOKENS",
    type=OUTPUT_FILE,
    default="tokens.toml",
    help="The file of `manglecp serve --tokens`; by default $MANGLECP_TOKENS or tokens.toml.",
)


@click.group("token")
def command() -> None:
    """Make, list and revoke the tokens of clients and approvers.

    The file has only the hashes of tokens. A server that uses it reloads it within a second.
    """


@contextmanager
def _open_editor(file: Path, *, create: bool = False) -> Iterator[TokenEditor]:
    """Yield an editor of the file, which must exist unless ``create``. A ``TokensError`` ends the process."""
    if not create and not file.exists():
        raise click.UsageError(f"there is no {click.format_filename(file)}; `manglecp token new` creates it")
    try:
        yield TokenEditor(file)
    except TokensError as error:
        raise click.ClickException(f"{error}; the file is unchanged") from None


def _parse_expiry(context: click.Context, parameter: click.Parameter, text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        expiry = datetime.fromisoformat(text)
    except ValueError:
        message = f"{text!r} is not a time such as 2030-01-31 or 2030-01-31T12:00:00Z."
        raise click.BadParameter(message, context, parameter) from None
    expiry = expiry.replace(tzinfo=UTC) if expiry.tzinfo is None else expiry
    if expiry <= datetime.now(UTC):
        raise click.BadParameter(f"{text} is in the past.", context, parameter)
    return expiry


@command.command("new", short_help="Make a token, and add its hash to the file.")
@click.argument("name", metavar="NAME")
@option("--permission P", "permissions", multiple=True, help="A permission of the identity.")
@option("--approver", is_flag=True, help="Permit to approve calls: for a person, never for an agent.")
@option("--expires TIME", callback=_parse_expiry, help="The end in RFC 3339; by default it does not expire.")
@_file
def new(name: str, permissions: tuple[str, ...], approver: bool, expires: datetime | None, file: Path) -> None:
    """Make a token for the identity NAME, add its hash to the file, and print the token once.

    The token is the only line on standard output. It is not stored: hand it over now.
    """
    with _open_editor(file, create=True) as editor:
        token = editor.add(name, [*permissions, *(["approve"] if approver else [])], expires)
    click.echo(f"added to {click.format_filename(file)}; this is the token of {name}, shown once:", err=True)
    write_lines([token])


@command.command("list")
@document_option
@_file
def list_(as_json: bool, file: Path) -> None:
    """List the tokens with identity, permissions and expiry."""
    with _open_editor(file) as editor:
        tokens = [
            {
                "hash": entry["sha256"][:_HASH_DIGITS],
                "identity": entry["identity"],
                "permissions": sorted(entry.get("permissions", ())),
                "expires": None if (at := entry.get("expires")) is None else at.isoformat().replace("+00:00", "Z"),
            }
            for entry in editor.entries()
        ]
    rows = [(t["hash"], t["identity"], ", ".join(t["permissions"]) or "-", t["expires"] or "-") for t in tokens]
    headings = ("HASH", "IDENTITY", "PERMISSIONS", "EXPIRES")
    print_result(tokens, table(headings, rows, empty="No tokens."), as_json=as_json)


@command.command("revoke", short_help="Remove tokens from the file.")
@click.argument("name", metavar="NAME|HASH")
@_file
def revoke(name: str, file: Path) -> None:
    """Remove all tokens of the identity NAME, or the one whose hash begins with HASH (6 digits or more)."""
    with _open_editor(file) as editor:
        revoked_tokens = editor.revoke(name)
    write_lines([f"revoked {count(len(revoked_tokens), 'token')} of {revoked_tokens[0]['identity']}"])
