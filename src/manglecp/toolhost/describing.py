"""What an exception says, whatever it is.

An exception is somebody else's code: it may fail while it describes itself, or say too much. What went wrong has to be
told all the same, in a line. Of a group the first cause is named, for the group itself says only how many there are.
"""

from __future__ import annotations

import sys
from typing import Final

__all__ = ["describe", "trace"]

_LINE: Final = 4_000
_TRACE: Final = 64_000
"""Characters that are told."""


def describe(error: BaseException) -> str:
    """The name of the exception, and what it says if it can."""
    name = type(error).__name__
    try:
        text = str(error)
        if isinstance(error, BaseExceptionGroup):
            text = f"{text}: {describe(error.exceptions[0])}"
        return (f"{name}: {text}" if text else name)[:_LINE]
    except BaseException:
        return name[:_LINE]


def trace(error: BaseException) -> None:
    """Tell whoever operates the host where an exception came from, if there is a way to."""
    try:
        from traceback import format_exception  # only failures pay for it

        sys.stderr.write("".join(format_exception(error))[-_TRACE:])
    except BaseException:  # nothing is left to say it with
        return
