"""Searching: lines that have a text, or fit a regular expression.

What is searched is the text without secrets, or one could be found out letter by letter. So ripgrep, where it may be
started, says only in which files to look; the lines are found here, and are the same with and without it. To start a
program is an effect that has to be permitted and recorded, so it is worth it only where there are many files.

A regular expression may take for ever. It gets a few seconds for all files together, and is stopped by a signal.
"""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Final, Literal, NamedTuple, TypedDict

from manglecp import Context, Limits, action

from ..credentials import holds_credentials
from ..programs import locate, run
from ..refusal import Refused
from ..secrets import redacted
from .roots import Root
from .texts import text_of
from .walking import files

__all__ = ["Hit", "Hits", "search", "search_text"]

_SECONDS: Final = 10.0
_BATCH: Final = 1_000
_LONGEST_LINE: Final = 400
_LARGEST: Final = 1024 * 1024
_SAME: Final = re.compile(r"(?:[\w /:@=,;<>'\"&%!~#-]|\\[.()\[\]{}*+?|^$\\/wWdDsSb-]|[.*+?|()^$]|\[\^?[\w .-]+\])+")
"""Regular expressions that mean the same to ripgrep and to Python."""
_NOTHING: Final = 1
"""The exit status of ripgrep when there are no matches."""

Text = Annotated[str, Limits(min_length=1, max_length=1000)]
Folder = Annotated[str, Limits(max_length=1024)]
Most = Annotated[int, Limits(ge=1, le=500)]


class Hit(TypedDict):
    path: str
    line: int
    column: int
    text: str
    """The line, or the part of it around the hit."""


class Hits(TypedDict):
    hits: list[Hit]
    files: int
    """In how many files they are."""
    more: bool
    """There are more than were asked for."""
    by: Literal["ripgrep", "python"]
    problem: str
    """Why nothing was searched; empty if there is no problem."""


@action(effects=["process"], spawn=["rg"], idempotent=True, timeout=60)
def search(
    context: Context,
    text: Text,
    regex: bool = False,
    under: Folder = "",
    glob: Folder = "",
    most: Most = 100,
    refuse: bool = True,
) -> Hits:
    """Find lines in the files of the repository, with ripgrep if it may be started.

    Args:
        text: what the lines have, or a regular expression
        regex: it is a regular expression
        under: only in this folder or file
        glob: only in files whose name or path fits, such as *.py
        most: how many hits at most
        refuse: fail if it cannot be searched for, in place of saying so
    """
    return _found(context, _Wanted(text, regex, under, glob, most), refuse, with_ripgrep=True)


@action(effects=["filesystem"], mutates=False, idempotent=True, timeout=60)
def search_text(
    context: Context,
    text: Text,
    regex: bool = False,
    under: Folder = "",
    glob: Folder = "",
    most: Most = 100,
    refuse: bool = True,
) -> Hits:
    """Find lines in the files of the repository; as search, and starts no program.

    Args:
        text: what the lines have, or a regular expression
        regex: it is a regular expression
        under: only in this folder or file
        glob: only in files whose name or path fits, such as *.py
        most: how many hits at most
        refuse: fail if it cannot be searched for, in place of saying so
    """
    return _found(context, _Wanted(text, regex, under, glob, most), refuse, with_ripgrep=False)


class _Wanted(NamedTuple):
    text: str
    regex: bool
    under: str
    glob: str
    most: int


def _found(context: Context, wanted: _Wanted, refuse: bool, *, with_ripgrep: bool) -> Hits:
    try:
        pattern = _pattern(wanted.text, wanted.regex)
        with Root.opened(context.settings) as root:
            named = files(root, wanted.under, wanted.glob)
            paths: Iterator[str] | list[str] = (path for path in named if not holds_credentials(path))
            by: Literal["ripgrep", "python"] = "python"
            if with_ripgrep:
                with _time_limit():
                    paths = list(paths)
                some = _candidates(root, paths, wanted)
                paths, by = (paths, "python") if some is None else (some, "ripgrep")
            return _hits(root, paths, pattern, wanted, by)
    except Refused as refused:
        if refuse:
            raise
        return {"hits": [], "files": 0, "more": False, "by": "python", "problem": str(refused)}


def _pattern(text: str, regex: bool) -> re.Pattern[str]:
    if "\n" in text:
        raise Refused("a line has no line break: search for a part of one line")
    try:
        return re.compile(text if regex else re.escape(text))
    except (re.error, OverflowError, RecursionError) as error:
        raise Refused(f"{text!r} is no regular expression: {error}") from None


def _hits(
    root: Root,
    paths: Iterator[str] | Sequence[str],
    pattern: re.Pattern[str],
    wanted: _Wanted,
    by: Literal["ripgrep", "python"],
) -> Hits:
    hits: list[Hit] = []
    more = False
    with _time_limit():
        for path in paths:
            for hit in _in_file(root, path, pattern, wanted.regex):
                if len(hits) == wanted.most:
                    more = True
                    break
                hits.append(hit)
            if more:
                break
    return {"hits": hits, "files": len({hit["path"] for hit in hits}), "more": more, "by": by, "problem": ""}


def _in_file(root: Root, path: str, pattern: re.Pattern[str], regex: bool) -> Iterator[Hit]:
    try:
        data = root.read(path).data
        text = text_of(data, path) if len(data) <= _LARGEST else ""
    except Refused:  # gone, no text, or too large: nothing that somebody would read
        return
    text = text.replace("\r\n", "\n")
    # Most files have no hit, and to look for secrets takes time. But a regular expression could be made to take for
    # ever where a secret begins with a certain letter, and who waits would learn it: it never sees one.
    if not regex and not any(map(pattern.search, text.split("\n"))):
        return
    for number, line in enumerate(redacted(text).split("\n"), 1):
        if found := pattern.search(line):
            start = max(0, min(found.start() - _LONGEST_LINE // 4, len(line) - _LONGEST_LINE))
            shown = line[start : start + _LONGEST_LINE]
            yield {"path": path, "line": number, "column": found.start() + 1, "text": shown}


def _candidates(root: Root, paths: list[str], wanted: _Wanted) -> list[str] | None:
    """The files of these that ripgrep finds something in; None if it cannot say."""
    if wanted.regex and _SAME.fullmatch(wanted.text) is None:
        return None
    found: list[str] = []
    try:
        program = locate("rg")
        for at in range(0, len(paths), _BATCH):
            argv = [program, "--no-config", "--crlf", "--text", "--null", "--files-with-matches"]
            argv += [f"--regexp={wanted.text}", *([] if wanted.regex else ["--fixed-strings"])]
            argv += ["--", *(f"./{path}" for path in paths[at : at + _BATCH])]
            done = run(argv, folder=root.path, environ={"LC_ALL": "C.UTF-8"}, seconds=_SECONDS, most=1 << 24)
            if done.code not in (0, _NOTHING) or done.cut:
                return None
            found += [name.decode().removeprefix("./") for name in done.output.split(b"\0") if name]
    except (Refused, UnicodeDecodeError):
        return None
    known = set(found)
    return [path for path in paths if path in known]


@contextmanager
def _time_limit() -> Iterator[None]:
    """The engine for regular expressions looks for signals while it works, and for nothing else."""
    if threading.current_thread() is not threading.main_thread():
        raise Refused("a search runs in the main thread of its host, where it can be stopped")

    def stop(*_: object) -> None:
        raise Refused(f"the search took more than {_SECONDS:g} s: search in a folder, or for something simpler")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, _SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
