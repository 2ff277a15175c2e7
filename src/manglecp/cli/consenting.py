"""A person at the terminal, who is asked before something is done."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterable

import click

__all__ = ["agreed"]


def agreed(lines: Iterable[str]) -> bool | None:
    """What the person says who was shown these lines; None if nobody sits there."""
    from manglecp.base.text import escape_invisible

    for line in lines:
        click.echo(escape_invisible(line), err=True)
    if not (sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()):
        return None
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a question can be interrupted at once
    try:
        return click.confirm("Do it?", default=False, err=True)
    finally:
        signal.signal(signal.SIGINT, before)
