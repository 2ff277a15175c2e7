"""Starting a program: an argument is an argument, and there is an end to everything.

Programs are started as lists of arguments, never through a shell, and with an environment that is made here. What they
say goes to files without a name, of which a part is read: a pipe could be filled, or held open by whom they leave
behind. Their time and memory are limited. The sandbox of the host is theirs too: no network, nothing to write but what
the host may write. Nobody can leave the process group of the host, so what a program leaves running ends with the host
at the latest.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Final, NamedTuple

from .refusal import Refused

__all__ = ["Ended", "locate", "run"]

_MiB: Final = 1 << 20
_GRACE: Final = 2.0
"""Seconds between the request to end and the end."""
_ERRORS: Final = 8_192


class Ended(NamedTuple):
    """How a program ended, and what it said."""

    code: int | None
    """None: its time was over."""
    output: bytes
    errors: bytes
    """The end of what it wrote to standard error."""
    cut: bool
    """There was more output than is here."""


def locate(name: str) -> str:
    """The absolute path of a program; :class:`Refused` if there is none to be had."""
    found = shutil.which(name)
    if found is None or not found.startswith("/"):
        raise Refused(f"there is no program {name!r} here")
    return found


def run(
    argv: Sequence[str],
    *,
    folder: str,
    environ: Mapping[str, str],
    seconds: float,
    stdin: bytes = b"",
    memory_mb: int | None = None,
    most: int = 8 * _MiB,
    keep_end: bool = False,
) -> Ended:
    """Run a program to its end. Of more than ``most`` bytes of output the beginning is kept, or the end."""
    name = Path(argv[0]).name
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        given.write(stdin)
        given.seek(0)
        try:
            process = subprocess.Popen(
                argv,
                cwd=folder,
                env=dict(environ),
                stdin=given,
                stdout=output,
                stderr=errors,
                preexec_fn=None if memory_mb is None else _limiter(memory_mb),
            )
        except PermissionError:
            raise Refused(f"{name!r} may not be started here: serve the pack with --program NAME") from None
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            raise Refused(f"{name!r} cannot be started: {error}") from None
        code = _end(process, seconds)
        said, cut = _read(output, most, keep_end)
        return Ended(code, said, _read(errors, _ERRORS, True)[0], cut)


def _limiter(memory_mb: int) -> Callable[[], None]:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (memory_mb * _MiB, memory_mb * _MiB))

    return limit


def _end(process: subprocess.Popen[bytes], seconds: float) -> int | None:
    """Wait for it, and then no longer."""
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.terminate()
        try:
            process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        return None
    except BaseException:
        process.kill()
        process.wait()
        raise


def _read(stream: IO[bytes], most: int, keep_end: bool) -> tuple[bytes, bool]:
    size = os.fstat(stream.fileno()).st_size
    stream.seek(max(size - most, 0) if keep_end else 0)
    return stream.read(most), size > most
