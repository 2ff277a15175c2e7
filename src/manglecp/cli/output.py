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

from manglecp.base.text import escape_invisible
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


def print_stderr(*lines: str) -> None:
    """Print lines on standard error, with invisible characters escaped."""
    for line in lines:
        click.echo(escape_invisible(line), err=True)


def print_json(document: object, *, ok: bool = True) -> None:
    """Print a document as one line of JSON. Exits with status 1 if not ``ok``."""
    print_result(document, (), as_json=True, ok=ok)


def print_result(document: object, lines: Iterable[str], *, as_json: bool, ok: bool = True) -> None:
    """Print the result of a verb: a document as one line of JSON, or lines. Exits with status 1 if not ``ok``."""
    write_lines([json_text(document)] if as_json else lines)
    if not ok:
        raise click.exceptions.Exit(1)


def fail(*lines: str, status: int = 1) -> NoReturn:
    """Print lines on standard error, and exit."""
    print_stderr(*lines)
    raise click.exceptions.Exit(status)


def _write(texts: Iterable[str]) -> None:
    if sys.stdout is None:  # closed by the parent process
        return
    out = sys.stdout.buffer
    try:
        out.writelines(text.encode(errors="surrogateescape") for text in texts)  # a file name may have any bytes
        out.flush()
    except BrokenPipeError:  # the reader has closed the pipe; the exit status of the verb does not change
        _discard_output()
    except OSError as error:
        sys.stdout = None  # the interpreter would flush at exit and fail again
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
    """Return JSON on one line, without recursion: a proof may be nested deeper than Python's limit."""
    out: list[str] = []
    stack = [document]
    while stack:
        value = stack.pop()
        if isinstance(value, _Encoded):
            out.append(value)
        elif isinstance(value, Mapping):
            out.append("{")
            stack.append(_Encoded("}"))
            for index, (key, member) in reversed(list(enumerate(value.items()))):
                stack += (member, _Encoded(f"{', ' if index else ''}{json.dumps(key, ensure_ascii=False)}: "))
        elif isinstance(value, list | tuple):
            out.append("[")
            stack.append(_Encoded("]"))
            for index, item in reversed(list(enumerate(value))):
                stack += (item, _Encoded(", " if index else ""))
        else:
            out.append(json.dumps(value, ensure_ascii=False))
    return "".join(out)


def report(diagnostics: Iterable[Diagnostic]) -> None:
    """Print diagnostics on standard error, the errors before the warnings."""
    for diagnostic in sorted(diagnostics, key=lambda each: each.severity != "error"):
        click.echo(diagnostic.render(), err=True)


def refuse(error: DiagnosticError, warnings: Iterable[Diagnostic] = (), *, status: int = 1) -> NoReturn:
    """Report the diagnostics of the error, then the warnings, and exit."""
    report([*error.diagnostics, *warnings])
    raise click.exceptions.Exit(status)


def count(number: int, noun: str) -> str:
    """Return ``1 fact``, ``2 facts``, ``1,000 facts``: for nouns whose plural ends in s."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def columns(rows: Sequence[Sequence[str]], right: int | None = None) -> Iterator[str]:
    """Yield the rows as lines, with columns two spaces apart; the column with the index ``right`` is right-aligned."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        if right is not None:
            cells[right] = row[right].rjust(widths[right])
        yield "  ".join(cells).rstrip()


def table(headings: tuple[str, ...], rows: Iterable[tuple[str, ...]], *, empty: str) -> Iterator[str]:
    """Return the rows as lines under headings, with invisible characters escaped; without rows, the line ``empty``."""
    cells = [headings, *rows]
    return map(escape_invisible, columns(cells) if len(cells) > 1 else [empty])


def suggestion(word: str, known_words: Iterable[str]) -> str:
    """Return " Did you mean …?" if a known word is similar, else an empty text."""
    from manglecp.base.suggestions import closest_match

    similar = closest_match(word, known_words)
    return f" Did you mean {similar!r}?" if similar else ""


class ProgressLine:
    """A context manager that shows ``doing`` and the elapsed seconds on a terminal, after ``PROGRESS_DELAY``."""

    current: ClassVar[ProgressLine | None] = None  # the line that is on the terminal now

    def __init__(self, doing: str) -> None:
        self.doing = doing
        self.detail = ""  # the progress of a fact generator; replaces ``doing`` while it is not empty
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            self._thread = threading.Thread(target=self._show, daemon=True)
            self._thread.start()
            ProgressLine.current = self
        return self

    def __exit__(self, *_: object) -> None:
        if self._thread is not None:
            ProgressLine.current = None
            self._ended.set()
            self._thread.join()

    def _show(self) -> None:
        started_at = time.monotonic()
        if self._ended.wait(PROGRESS_DELAY):
            return
        while True:
            seconds = round(time.monotonic() - started_at)
            _rewrite_line(f"{self.detail or self.doing} … {seconds} s")
            if self._ended.wait(1.0):
                break
        _rewrite_line("")


def _rewrite_line(text: str) -> None:
    """Replace the terminal line in which the cursor is."""
    sys.stderr.write(f"\r{text}\x1b[K")  # \x1b[K clears the rest of the line
    sys.stderr.flush()


def generator_text(progress: PassProgress, *, bar: bool = True) -> str:
    """Return, for example, ``scan: [######..................] 1,250 of 5,000 files``."""
    if progress.done is None:
        return escape_invisible(f"{progress.generator}: {progress.facts:,} facts")
    unit_text = f" {progress.what}" if progress.what else ""
    if not progress.total:
        return escape_invisible(f"{progress.generator}: {progress.done:,}{unit_text}")
    done_count = min(max(progress.done, 0), progress.total)
    filled_width = _BAR_WIDTH * done_count // progress.total
    bar_text = f"[{'#' * filled_width}{'.' * (_BAR_WIDTH - filled_width)}] " if bar else ""
    return escape_invisible(f"{progress.generator}: {bar_text}{done_count:,} of {progress.total:,}{unit_text}")


class GeneratorProgress:
    """Shows the progress of fact generators: in the progress line, or else as a line every few seconds. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last: PassProgress | None = None
        self._last_line_at = 0.0

    def __call__(self, progress: PassProgress) -> None:
        with self._lock:
            before = self._last
            # A report without ``done`` counts facts only: the last known progress stays.
            if progress.done is None and before is not None and before.generator == progress.generator:
                progress = progress._replace(done=before.done, total=before.total, what=before.what)
            self._last = None if progress.over else progress
            if progress.seconds >= PROGRESS_DELAY:
                self._show(progress)

    def _show(self, progress: PassProgress) -> None:
        line = ProgressLine.current
        if line is not None:
            line.detail = "" if progress.over else generator_text(progress)
        elif progress.over or time.monotonic() - self._last_line_at >= _LINE_INTERVAL:
            self._last_line_at = time.monotonic()
            summary = f"{progress.generator}: {progress.facts:,} facts in {progress.seconds:.1f} s"
            _log_or_echo(summary if progress.over else generator_text(progress, bar=False))


def _log_or_echo(text: str) -> None:
    import logging

    log = logging.getLogger("manglecp.facts")
    if log.hasHandlers():  # only a server or a worker configures logging
        log.info("%s", text)
    else:
        click.echo(text, err=True)
