"""Run a program with limits on time, memory and output.

Programs get a list of arguments, never a shell command, and an explicit environment. Output goes to unnamed temporary
files: a pipe could fill up, or be held open by a child process. Programs inherit the sandbox of the host: no network,
and write access only where the host has it. They cannot leave the process group of the host, so remaining child
processes end with the host at the latest.
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

from .refusal import Refusal

__all__ = ["ProcessResult", "locate", "run"]

_MiB: Final = 1 << 20
_GRACE: Final = 2.0
"""Seconds between SIGTERM and SIGKILL."""
_ERRORS: Final = 8_192


class ProcessResult(NamedTuple):
    """The exit status and the output of a program."""

    code: int | None
    """None after a timeout."""
    output: bytes
    errors: bytes
    """The end of standard error."""
    cut: bool
    """Whether the output was truncated."""


def locate(name: str) -> str:
    """Return the absolute path of a program. Raises :class:`Refusal` if it is not on PATH."""
    found = shutil.which(name)
    if found is None or not found.startswith("/"):
        raise Refusal(f"there is no program {name!r} on PATH")
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
) -> ProcessResult:
    """Run a program and wait for its end. At most ``most`` bytes of output are kept: the first or the last ones.

    Raises :class:`Refusal` if the program cannot be started.
    """
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
            raise Refusal(f"the sandbox does not permit {name!r}: serve the pack with --program NAME") from None
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            raise Refusal(f"{name!r} cannot be started: {error}") from None
        code = _wait(process, seconds)
        kept, cut = _read(output, most, keep_end)
        return ProcessResult(code, kept, _read(errors, _ERRORS, True)[0], cut)


def _limiter(memory_mb: int) -> Callable[[], None]:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (memory_mb * _MiB, memory_mb * _MiB))

    return limit


def _wait(process: subprocess.Popen[bytes], seconds: float) -> int | None:
    """Return the exit status; None if the process was ended after ``seconds``."""
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
