"""What verbs have to say: answers, diagnostics, and how it is going."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple, NoReturn, Self

import click

from manglecp.cli import Trouble

if TYPE_CHECKING:  # verbs that do not evaluate start without the language
    from manglecp.base.diagnostic import Diagnostic
    from manglecp.mangle import MangleError

__all__ = ["Progress", "count", "json_text", "refuse", "report", "write_lines", "write_text"]

PATIENCE: Final = 2.0
"""Seconds before anyone is told that it takes longer."""


def write_text(text: str) -> None:
    """To standard output, as UTF-8 wherever this runs."""
    _write([text])


def write_lines(lines: Iterable[str]) -> None:
    """To standard output, each with a line break."""
    _write(f"{line}\n" for line in lines)


def _write(texts: Iterable[str]) -> None:
    if sys.stdout is None:  # closed by whoever started us
        return
    out = sys.stdout.buffer
    try:
        out.writelines(text.encode(errors="surrogateescape") for text in texts)  # file names may be any bytes
        out.flush()
    except BrokenPipeError:  # whoever reads has seen enough, and the verb ends with the status that it would have had
        _write_nowhere()
    except OSError as error:
        sys.stdout = None  # there is no use in flushing it again at the end
        raise Trouble(f"cannot write the answer: {error.strerror}") from None


def _write_nowhere() -> None:
    """What was not written yet, and what follows, goes nowhere; else it would be tried again at the end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, sys.stdout.fileno())
    finally:
        os.close(nowhere)


def json_text(document: object) -> str:
    """One line of JSON. Not ``json.dumps``: a proof may be nested deeper than Python calls itself."""
    out: list[str] = []
    work: list[object] = [_Value(document)]
    while work:
        item = work.pop()
        if isinstance(item, str):
            out.append(item)
            continue
        assert isinstance(item, _Value)
        value = item.value
        if isinstance(value, Mapping):
            work += _enclosed("{", [[f"{_scalar(key)}: ", _Value(part)] for key, part in value.items()], "}")
        elif isinstance(value, list | tuple):
            work += _enclosed("[", [[_Value(part)] for part in value], "]")
        else:
            out.append(_scalar(value))
    return "".join(out)


def _scalar(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


class _Value(NamedTuple):
    """What is still to be written, as opposed to text that is."""

    value: object


def _enclosed(start: str, parts: Sequence[Sequence[object]], end: str) -> list[object]:
    """Reversed, as a stack wants it."""
    tokens: list[object] = [start]
    for number, part in enumerate(parts):
        tokens += [", ", *part] if number else part
    tokens.append(end)
    return tokens[::-1]


def report(diagnostics: Iterable[Diagnostic]) -> None:
    """Errors first, then warnings."""
    for diagnostic in sorted(diagnostics, key=lambda d: d.severity != "error"):
        click.echo(diagnostic.render(), err=True)


def refuse(error: MangleError, warnings: Iterable[Diagnostic] = ()) -> NoReturn:
    """Report the errors, then the warnings, and end the verb with status 1."""
    report([*error.diagnostics, *warnings])
    raise click.exceptions.Exit(1)


def count(number: int, noun: str) -> str:
    """``1 fact``, ``2 facts``, ``1,000 facts``: for nouns whose plural ends in s."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


class Progress:
    """After a while, a line on the terminal that says what is being done; gone when it is done."""

    active: ClassVar[Progress | None] = None
    """What draws on the terminal now, if anything does: who else has something to say there tells it."""

    def __init__(self, doing: str) -> None:
        self.doing = doing
        self.about = ""
        """More about it, as long as there is more to say."""
        self._done = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            self._thread = threading.Thread(target=self._show, daemon=True)
            self._thread.start()
            Progress.active = self
        return self

    def __exit__(self, *_: object) -> None:
        if self._thread is not None:
            Progress.active = None
            self._done.set()
            self._thread.join()

    def _show(self) -> None:
        started = time.monotonic()
        if self._done.wait(PATIENCE):
            return
        while True:
            seconds = round(time.monotonic() - started)
            sys.stderr.write(f"\r{self.about or self.doing} … {seconds} s\x1b[K")
            sys.stderr.flush()
            if self._done.wait(1.0):
                break
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()
