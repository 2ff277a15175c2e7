"""Output of verbs: results to standard output, diagnostics and progress to standard error."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Final, NoReturn, Self

import click

from manglecp.cli import VerbError

if TYPE_CHECKING:
    from manglecp.base.diagnostic import Diagnostic, DiagnosticError
    from manglecp.toolhost import PassProgress


PROGRESS_DELAY: Final = 2.0  # seconds before progress is shown
_LINE_INTERVAL: Final = 5.0  # seconds between two lines of progress without a terminal
_BAR_WIDTH: Final = 24


def write_text(text: str) -> None:
    """Write to standard output, as UTF-8 in every locale."""
    _write([text])


def write_lines(lines: Iterable[str]) -> None:
    _write(f"{line}\n" for line in lines)


def print_json(document: object) -> None:
    _write([json_text(document) + "\n"])


def _write(texts: Iterable[str]) -> None:
    if sys.stdout is None:  # closed by the parent process
        return
    out = sys.stdout.buffer
    try:
        out.writelines(text.encode(errors="surrogateescape") for text in texts)  # file names may be any bytes
        out.flush()
    except BrokenPipeError:  # the verb ends with the status that it would have had
        _discard_output()
    except OSError as error:
        sys.stdout = None  # a second flush at exit would fail again
        raise VerbError(f"cannot write the result: {error.strerror}") from None


def _discard_output() -> None:
    """Redirect standard output to /dev/null; otherwise the interpreter would flush into the broken pipe at exit."""
    null = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(null, sys.stdout.fileno())
    finally:
        os.close(null)


class _Encoded(str):
    """A part of the document that is already JSON text."""

    __slots__ = ()


def json_text(document: object) -> str:
    """Encode on one line. ``json.dumps`` would recurse: a proof may be nested deeper than Python's limit."""
    out: list[str] = []
    work = [document]
    while work:
        value = work.pop()
        if isinstance(value, _Encoded):
            out.append(value)
        elif isinstance(value, Mapping):
            members = ((_Encoded(f", {_scalar(key)}: "), part) for key, part in value.items())
            work += _reversed("{", [item for member in members for item in member], "}")
        elif isinstance(value, list | tuple):
            work += _reversed("[", [item for part in value for item in (_Encoded(", "), part)], "]")
        else:
            out.append(_scalar(value))
    return "".join(out)


def _reversed(start: str, items: list[object], end: str) -> list[object]:
    """Return the items between brackets, the last one first; the comma before the first item is removed."""
    if items:
        items[0] = _Encoded(str(items[0]).removeprefix(", "))
    return [_Encoded(end), *items[::-1], _Encoded(start)]


def _scalar(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def report(diagnostics: Iterable[Diagnostic]) -> None:
    for diagnostic in sorted(diagnostics, key=lambda d: d.severity != "error"):
        click.echo(diagnostic.render(), err=True)


def refuse(error: DiagnosticError, warnings: Iterable[Diagnostic] = ()) -> NoReturn:
    """Report the errors, then the warnings, and end the verb with status 1."""
    report([*error.diagnostics, *warnings])
    raise click.exceptions.Exit(1)


def count(number: int, noun: str) -> str:
    """Return ``1 fact``, ``2 facts``, ``1,000 facts``: for nouns whose plural ends in s."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def columns(rows: Sequence[Sequence[str]], right: int | None = None) -> Iterator[str]:
    """Lay rows out in columns two spaces apart; column ``right`` is aligned to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (c.rjust(w) if n == right else c.ljust(w) for n, (c, w) in enumerate(zip(row, widths, strict=True)))
        yield "  ".join(cells).rstrip()


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return " Did you mean …?" if a known word is similar, else an empty text."""
    from manglecp.base.suggestions import closest_match

    similar = closest_match(word, known)
    return f" Did you mean {similar!r}?" if similar else ""


class ProgressLine:
    """A context manager that shows the current activity on the terminal after a while, and removes it at the end."""

    active: ClassVar[ProgressLine | None] = None  # the one on the terminal; GeneratorProgress sets its ``about``

    def __init__(self, doing: str) -> None:
        self.doing = doing
        self.about = ""
        self._done = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            self._thread = threading.Thread(target=self._show, daemon=True)
            self._thread.start()
            ProgressLine.active = self
        return self

    def __exit__(self, *_: object) -> None:
        if self._thread is not None:
            ProgressLine.active = None
            self._done.set()
            self._thread.join()

    def _show(self) -> None:
        started = time.monotonic()
        if self._done.wait(PROGRESS_DELAY):
            return
        while True:
            seconds = round(time.monotonic() - started)
            sys.stderr.write(f"\r{self.about or self.doing} … {seconds} s\x1b[K")
            sys.stderr.flush()
            if self._done.wait(1.0):
                break
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()


def generator_text(looking: PassProgress, *, bar: bool = True) -> str:
    """Return, for example, ``scan: [######..................] 1,250 of 5,000 files``."""
    from manglecp.base.text import escape_invisible

    if looking.done is None:
        return escape_invisible(f"{looking.generator}: {looking.facts:,} facts")
    what = f" {looking.what}" if looking.what else ""
    if not looking.total:
        return escape_invisible(f"{looking.generator}: {looking.done:,}{what}")
    done = min(max(looking.done, 0), looking.total)
    filled = _BAR_WIDTH * done // looking.total
    shown_bar = f"[{'#' * filled}{'.' * (_BAR_WIDTH - filled)}] " if bar else ""
    return escape_invisible(f"{looking.generator}: {shown_bar}{done:,} of {looking.total:,}{what}")


class GeneratorProgress:
    """Shows the progress of fact generators, from any thread: a bar on a terminal, else a line every few seconds."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last: PassProgress | None = None
        self._last_line_at = 0.0
        self._bar_visible = False

    def __call__(self, looking: PassProgress) -> None:
        with self._lock:
            last = self._last
            if looking.done is None and last is not None and last.generator == looking.generator:
                looking = looking._replace(done=last.done, total=last.total, what=last.what)
            self._last = None if looking.over else looking
            if looking.seconds >= PROGRESS_DELAY or self._bar_visible:
                self._show(looking)

    def _show(self, looking: PassProgress) -> None:
        progress = ProgressLine.active
        if progress is not None:
            progress.about = "" if looking.over else generator_text(looking)
        elif sys.stderr.isatty():
            self._bar_visible = not looking.over
            sys.stderr.write("\r\x1b[K" if looking.over else f"\r{generator_text(looking)}\x1b[K")
            sys.stderr.flush()
        elif looking.over or time.monotonic() - self._last_line_at >= _LINE_INTERVAL:
            self._last_line_at = time.monotonic()
            text = generator_text(looking, bar=False)
            if looking.over:
                text = f"{looking.generator}: {looking.facts:,} facts in {looking.seconds:.1f} s"
            _log_or_echo(text)


def _log_or_echo(text: str) -> None:
    import logging

    log = logging.getLogger("manglecp.facts")
    if log.hasHandlers():
        log.info("%s", text)
    else:
        click.echo(text, err=True)
