"""Search the files of the repository for a text or a regular expression.

The search runs on redacted text; otherwise an agent could find out a secret letter by letter. Ripgrep, where permitted,
only selects candidate files: the hits are computed here and do not depend on it. Starting a program is an effect that
is permitted and recorded, so ripgrep pays only in large repositories.

A regular expression can take exponential time: a signal stops the search after a few seconds.
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
from ..refusal import Refusal
from ..secrets import redact
from .file_walk import files
from .roots import Root
from .texts import decode_text

__all__ = ["Hit", "Hits", "search", "search_text"]

_SECONDS: Final = 10.0
_BATCH: Final = 1_000
_LONGEST_LINE: Final = 400
_LARGEST: Final = 1024 * 1024
_SAME: Final = re.compile(r"(?:[\w /:@=,;<>'\"&%!~#-]|\\[.()\[\]{}*+?|^$\\/wWdDsSb-]|[.*+?|()^$]|\[\^?[\w .-]+\])+")
"""Regular expressions with the same meaning in ripgrep and in Python."""
_NO_MATCH: Final = 1
"""The exit status of ripgrep when there are no matches."""

Text = Annotated[str, Limits(min_length=1, max_length=1000)]
Folder = Annotated[str, Limits(max_length=1024)]
MaxHits = Annotated[int, Limits(ge=1, le=500)]


class Hit(TypedDict):
    path: str
    line: int
    column: int
    text: str
    """The line; of a long line the part around the hit."""


class Hits(TypedDict):
    hits: list[Hit]
    files: int
    """The number of files with hits."""
    more: bool
    """Whether there are more hits than the requested maximum."""
    by: Literal["ripgrep", "python"]
    problem: str
    """The reason why the search failed; empty on success."""


@action(effects=["process"], spawn=["rg"], idempotent=True, timeout=60)
def search(
    context: Context,
    text: Text,
    regex: bool = False,
    under: Folder = "",
    glob: Folder = "",
    most: MaxHits = 100,
    refuse: bool = True,
) -> Hits:
    """Find lines in the files of the repository, with ripgrep if it is permitted.

    Args:
        text: a part of the line, or a regular expression
        regex: whether the text is a regular expression
        under: search only in this folder or file
        glob: search only in files whose name or path matches, such as *.py
        most: the maximum number of hits
        refuse: fail if the search fails, instead of returning the problem
    """
    return _search(context, _Query(text, regex, under, glob, most), refuse, with_ripgrep=True)


@action(effects=["filesystem"], mutates=False, idempotent=True, timeout=60)
def search_text(
    context: Context,
    text: Text,
    regex: bool = False,
    under: Folder = "",
    glob: Folder = "",
    most: MaxHits = 100,
    refuse: bool = True,
) -> Hits:
    """Find lines in the files of the repository, like search but without starting a program.

    Args:
        text: a part of the line, or a regular expression
        regex: whether the text is a regular expression
        under: search only in this folder or file
        glob: search only in files whose name or path matches, such as *.py
        most: the maximum number of hits
        refuse: fail if the search fails, instead of returning the problem
    """
    return _search(context, _Query(text, regex, under, glob, most), refuse, with_ripgrep=False)


class _Query(NamedTuple):
    text: str
    regex: bool
    under: str
    glob: str
    most: int


def _search(context: Context, query: _Query, refuse: bool, *, with_ripgrep: bool) -> Hits:
    try:
        pattern = _pattern(query.text, query.regex)
        with Root.open(context.settings) as root:
            named = files(root, query.under, query.glob)
            paths: Iterator[str] | list[str] = (path for path in named if not holds_credentials(path))
            by: Literal["ripgrep", "python"] = "python"
            if with_ripgrep:
                with _time_limit():
                    paths = list(paths)
                some = _candidates(root, paths, query)
                paths, by = (paths, "python") if some is None else (some, "ripgrep")
            return _hits(root, paths, pattern, query, by)
    except Refusal as refusal:
        if refuse:
            raise
        return {"hits": [], "files": 0, "more": False, "by": "python", "problem": str(refusal)}


def _pattern(text: str, regex: bool) -> re.Pattern[str]:
    if "\n" in text:
        raise Refusal("the text has a line break: search for a part of one line")
    try:
        return re.compile(text if regex else re.escape(text))
    except (re.error, OverflowError, RecursionError) as error:
        raise Refusal(f"{text!r} is not a valid regular expression: {error}") from None


def _hits(
    root: Root,
    paths: Iterator[str] | Sequence[str],
    pattern: re.Pattern[str],
    query: _Query,
    by: Literal["ripgrep", "python"],
) -> Hits:
    hits: list[Hit] = []
    more = False
    with _time_limit():
        for path in paths:
            for hit in _in_file(root, path, pattern, query.regex):
                if len(hits) == query.most:
                    more = True
                    break
                hits.append(hit)
            if more:
                break
    return {"hits": hits, "files": len({hit["path"] for hit in hits}), "more": more, "by": by, "problem": ""}


def _in_file(root: Root, path: str, pattern: re.Pattern[str], regex: bool) -> Iterator[Hit]:
    try:
        data = root.read(path).data
        text = decode_text(data, path) if len(data) <= _LARGEST else ""
    except Refusal:  # deleted, binary or too large
        return
    text = text.replace("\r\n", "\n")
    # Most files have no hit, and redaction takes time, so a plain text is searched before it. A regular expression must
    # never run on a secret: its run time could reveal the letters of the secret.
    if not regex and not any(map(pattern.search, text.split("\n"))):
        return
    for number, line in enumerate(redact(text).split("\n"), 1):
        if found := pattern.search(line):
            start = max(0, min(found.start() - _LONGEST_LINE // 4, len(line) - _LONGEST_LINE))
            shown = line[start : start + _LONGEST_LINE]
            yield {"path": path, "line": number, "column": found.start() + 1, "text": shown}


def _candidates(root: Root, paths: list[str], query: _Query) -> list[str] | None:
    """Return the files in which ripgrep finds a match; None if ripgrep cannot be used."""
    if query.regex and _SAME.fullmatch(query.text) is None:
        return None
    found: list[str] = []
    try:
        program = locate("rg")
        for at in range(0, len(paths), _BATCH):
            argv = [program, "--no-config", "--crlf", "--text", "--null", "--files-with-matches"]
            argv += [f"--regexp={query.text}", *([] if query.regex else ["--fixed-strings"])]
            argv += ["--", *(f"./{path}" for path in paths[at : at + _BATCH])]
            done = run(argv, folder=root.path, environ={"LC_ALL": "C.UTF-8"}, seconds=_SECONDS, most=1 << 24)
            if done.code not in (0, _NO_MATCH) or done.cut:
                return None
            found += [name.decode().removeprefix("./") for name in done.output.split(b"\0") if name]
    except (Refusal, UnicodeDecodeError):
        return None
    known = set(found)
    return [path for path in paths if path in known]


@contextmanager
def _time_limit() -> Iterator[None]:
    """Raise :class:`Refusal` in the block after a few seconds. Only a signal interrupts Python's regex engine."""
    if threading.current_thread() is not threading.main_thread():
        raise Refusal("a search must run in the main thread of its host, where a signal can stop it")

    def stop(*_: object) -> None:
        raise Refusal(f"the search took more than {_SECONDS:g} s: search in a folder, or for a simpler expression")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, _SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
