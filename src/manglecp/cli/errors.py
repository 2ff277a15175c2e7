"""Errors that verbs do not handle themselves: their text and their exit status."""

from __future__ import annotations

from typing import Any, Final

import click

from manglecp import server, store
from manglecp.base.diagnostic import DiagnosticError
from manglecp.base.extras import missing_extra
from manglecp.cli.output import print_json, print_stderr, report

_EXTRAS: Final = {"httpx": "client", "websockets": "client", "mcp": "mcp", "mcp_types": "mcp", "anyio": "mcp"}
"""The extra that installs a missing module; modules not listed here are in the extra ``server``."""


class InvalidFile(Exception):
    """An error at a JSON pointer of a file, of a turn, or of a line of a log; ``name`` names that in the message."""

    def __init__(self, name: str, path: str, message: str, line: int | None = None) -> None:
        super().__init__(f"{name}: {'' if line is None else f'line {line}: '}{path or '/'}: {message}")
        self.path = path
        self.message = message
        self.line = line

    def as_json(self) -> dict[str, Any]:
        line = {} if self.line is None else {"line": self.line}
        return {"result": "invalid", **line, "path": self.path, "message": self.message}


def report_error(error: Exception, *, as_json: bool) -> int:
    """Print an error, with ``as_json`` as a document if it has one, and return the exit status.

    Raises an unknown error again.
    """
    from manglecp.harness.policy import PolicyError

    if isinstance(error, click.exceptions.Exit):
        return error.exit_code
    if isinstance(error, store.Invalid | server.ServeError):
        error = click.UsageError(str(error))
    elif isinstance(error, ModuleNotFoundError):
        extra = _EXTRAS.get((error.name or "").partition(".")[0], "server")
        error = click.ClickException(missing_extra(error.name, extra))
    if isinstance(error, click.ClickException):
        error.show()
        return error.exit_code
    if isinstance(error, InvalidFile):
        print_stderr(f"error: {error}")
        if as_json:
            print_json(error.as_json())
        return 2
    if isinstance(error, PolicyError):
        if as_json:
            problems = [{"file": d.file, "pointer": d.pointer, "message": d.message} for d in error.diagnostics]
            print_json({"result": "invalid", "problems": problems})
        else:
            click.echo(error.render(), err=True)
        return 2
    if isinstance(error, DiagnosticError):
        report(error.diagnostics)
        return 1
    if isinstance(error, store.StoreError):
        code = error.code if isinstance(error, store.ChangeRefused) else "store"
        print_stderr(f"error[{code}]: {error}")
        if code == "no_run":
            print_stderr("  `manglecp runs list` lists the runs")
        return 1
    raise error
