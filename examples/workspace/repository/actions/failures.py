"""Parse failures from text: Python tracebacks and pytest output.

The text is untrusted input. It is parsed line by line with regular expressions that run in linear time. The result is a
list of code locations; each must be looked up in the repository before it is used.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Annotated, Final, TypedDict

from manglecp import Context, Limits, action

from ..secrets import redact
from .locations import Frame, is_inside, relative_path

__all__ = ["ParsedFailure", "ParsedOutput", "parse_failures"]

_LONGEST_LINE: Final = 2_000
_MOST: Final = 50
_MOST_FRAMES: Final = 100

_FRAME: Final = re.compile(r'File "([^"]+)", line (\d{1,9})')
_SHORT_FRAME: Final = re.compile(r"([^\s:][^:]*\.pyi?):(\d{1,9}): ?(.*)")
_HEADER: Final = re.compile(r"_{3,} (?:ERROR (?:at \w+ of|collecting) )?(\S.*?) _{3,}")
_SUMMARY: Final = re.compile(r"(?:FAILED|ERROR) (\S.*?\.py(?:::.+?)?)(?: - (.*))?")
_RAISED: Final = re.compile(r"([A-Za-z_][\w.]*)(?:: (.*))?")
_BARS: Final = re.compile(r"^[ +|-]*\| ?")
_EXCEPTION: Final = re.compile(
    r"(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?:Error|Exception|Warning|Exit|Interrupt|Iteration|Group|Failed|Timeout)"
)


class ParsedFailure(TypedDict):
    test: str
    """The test id as far as the text contains it; empty for a traceback without a test."""
    exception: str
    message: str
    file: str
    """The file of the innermost frame in the repository, or of the innermost frame if none is in the repository."""
    line: int
    frames: list[Frame]
    """Outermost first."""


class ParsedOutput(TypedDict):
    failures: list[ParsedFailure]
    tests: list[str]
    files: list[str]
    """Files of the repository; the files in which errors were raised come first."""
    frames: list[Frame]
    """Frames in these files, in the same order."""


@dataclass(slots=True)
class _Block:
    test: str = ""
    exception: str = ""
    message: str = ""
    frames: list[Frame] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        return not self.frames and not self.exception


@action(effects=["none"], idempotent=True)
def parse_failures(context: Context, text: Annotated[str, Limits(min_length=1, max_length=400_000)]) -> ParsedOutput:
    """Find failures in a traceback or in the output of pytest: tests, exceptions, files and lines.

    Args:
        text: the traceback or output
    """
    reader = _Reader(context.settings.get("root", ""))
    for line in text.split("\n"):
        reader.feed(line.rstrip()[:_LONGEST_LINE])
    return reader.parsed()


class _Reader:
    def __init__(self, root: str) -> None:
        self._root = root
        self._blocks: list[_Block] = []
        self._named: dict[str, str] = {}
        """The summary line of each test id."""
        self._in_traceback = False

    def feed(self, line: str) -> None:
        bare = _BARS.sub("", line)
        text = bare.strip()
        if text.startswith(("Traceback (most recent call last)", "Exception Group Traceback")):
            self._begin(self._open.test if self._blocks and self._open.is_empty else "")
            self._in_traceback = True
        elif header := _HEADER.fullmatch(text):
            self._in_traceback = False
            self._begin(header[1])
        elif summary := _SUMMARY.fullmatch(text):
            self._in_traceback = False
            self._named[summary[1]] = summary[2] or ""
        elif frame := _FRAME.match(text):
            if not self._blocks:  # the start of the traceback is missing, or it is a syntax error
                self._begin("")
            self._in_traceback = True
            self._add(frame[1], frame[2])
        elif self._in_traceback:
            self._feed_traceback(bare, text)
        else:
            self._feed_pytest(line, text)

    def _feed_traceback(self, bare: str, text: str) -> None:
        # Source lines are indented, the exception line is not.
        if text and not bare.startswith(" ") and (raised := _RAISED.fullmatch(text)):
            self._set_exception(raised[1], raised[2] or "")
            self._in_traceback = False

    def _feed_pytest(self, line: str, text: str) -> None:
        if not self._blocks:
            if not (place := _SHORT_FRAME.fullmatch(text)) or not _is_end(place[3]):
                return
            self._begin("")
        if line.startswith("E  "):
            raised = _RAISED.fullmatch(text[1:].strip())
            if not self._open.exception and raised and _EXCEPTION.fullmatch(raised[1]):
                self._set_exception(raised[1], raised[2] or "")
            elif not self._open.message:
                self._open.message = text[1:].strip()
        elif (place := _SHORT_FRAME.fullmatch(text)) and not line.startswith(" ") and _is_end(place[3]):
            self._add(place[1], place[2])
            if not self._open.exception and _EXCEPTION.fullmatch(place[3]):
                self._open.exception = place[3]

    @property
    def _open(self) -> _Block:
        return self._blocks[-1]

    def _begin(self, test: str) -> None:
        if self._blocks and self._open.is_empty:
            self._blocks.pop()
        self._blocks.append(_Block(test))

    def _add(self, file: str, line: str) -> None:
        if len(self._open.frames) < _MOST_FRAMES:
            self._open.frames.append({"file": relative_path(file, self._root), "line": int(line)})

    def _set_exception(self, exception: str, message: str) -> None:
        self._open.exception, self._open.message = exception, message

    def parsed(self) -> ParsedOutput:
        blocks = [block for block in self._blocks if not block.is_empty]
        for block in blocks:
            block.test = self._id_of(block.test)
        reported = {block.test for block in blocks}
        for test, summary in self._named.items():
            if test not in reported:
                raised = _RAISED.fullmatch(summary)
                block = _Block(test, *((raised[1], raised[2] or "") if raised else ("", summary)))
                block.frames.append({"file": test.partition("::")[0], "line": 0})
                blocks.append(block)
        failures = [_failure(block) for block in blocks[:_MOST]]
        tests = [failure["test"] for failure in failures if "::" in failure["test"]]
        places: list[Frame] = [{"file": failure["file"], "line": failure["line"]} for failure in failures]
        places += [frame for failure in failures for frame in reversed(failure["frames"])]
        inside = dict.fromkeys((frame["file"], frame["line"]) for frame in places if is_inside(frame["file"]))
        frames: list[Frame] = [{"file": file, "line": line} for file, line in inside if line]
        files = list(dict.fromkeys(file for file, _ in inside))[:_MOST_FRAMES]
        return {
            "failures": failures,
            "tests": list(dict.fromkeys(tests)),
            "files": files,
            "frames": frames[:_MOST_FRAMES],
        }

    def _id_of(self, header: str) -> str:
        """Return the test id for a headline such as ``TestBasket.test_total``; the headline itself if it is unknown."""
        wanted = header.replace(".", "::")
        fitting = [test for test in self._named if test.partition("::")[2] in (header, wanted) or test == header]
        return fitting[0] if len(fitting) == 1 else header


def _is_end(text: str) -> bool:
    """Return whether ``text`` is what pytest writes after a location: nothing, a function, or an exception."""
    return not text or text.startswith("in ") or _EXCEPTION.fullmatch(text) is not None


def _failure(block: _Block) -> ParsedFailure:
    inside = [frame for frame in block.frames if is_inside(frame["file"])]
    place: Frame = (inside or block.frames or [{"file": "", "line": 0}])[-1]
    return {
        "test": redact(block.test),
        "exception": block.exception,
        "message": redact(block.message),
        "file": place["file"],
        "line": place["line"],
        "frames": block.frames,
    }
