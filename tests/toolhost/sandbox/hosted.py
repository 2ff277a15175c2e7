"""Real host processes, as ourselves and as nobody, that lock themselves in."""

import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .confined import Identity, Outcome, as_identity, staged

HONEST = (Path(__file__).parent / "honest.py").read_text()

_COPIED = """
import runpy, sys
sys.path.insert(0, sys.argv.pop(1))
sys.path.append(sys.argv.pop(1))
exec(sys.argv.pop(1))
runpy.run_module("manglecp.toolhost.host", run_name="__main__", alter_sys=True)
"""
_ENVIRONMENT = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent"}

# Runs a program with one system call taken away, as on a kernel that never had it. Optionally only for one value of
# its first argument. The arguments: number, value or -1, program.
WITHOUT = """
import ctypes, os, struct, sys
number, value, *program = sys.argv[1:]
number, value = int(number), int(value)
def line(code, operand, if_true=0, if_false=0):
    return struct.pack("=HBBI", code, if_true, if_false, operand)
judge = [] if value < 0 else [line(0x20, 16), line(0x15, value, 0, 1)]
code = b"".join([
    line(0x20, 0), line(0x15, number, 0, len(judge) + 1), *judge, line(0x06, 0x0005_0000 | 38), line(0x06, 0x7FFF_0000)
])
buffer = ctypes.create_string_buffer(code, len(code))
described = ctypes.create_string_buffer(struct.pack("=H6xQ", len(code) // 8, ctypes.addressof(buffer)), 16)
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.c_void_p(ctypes.addressof(described)), 0, 0) == 0, ctypes.get_errno()
os.execv(program[0], program)
"""


def argv(
    identity: Identity, *arguments: str, package: str | None = None, beside: str | None = None, early: str = ""
) -> list[str]:
    """How this identity starts a host: that of this checkout, or a copy that everybody can read.

    ``package`` names another copy, ``beside`` a folder whose modules the host can find, ``early`` is run before it.
    """
    if identity.name == "self" and package is None and beside is None and not early:
        return [identity.python, "-I", "-m", "manglecp.toolhost.host", *arguments]
    copy = package or str(staged())
    return [identity.python, "-B", "-I", "-S", "-c", _COPIED, copy, beside or copy, early, *arguments]


def host(
    identity: Identity,
    *arguments: str,
    stdin: bytes = b"",
    without: tuple[int, int] | None = None,
    environ: dict[str, str] | None = None,
    package: str | None = None,
    beside: str | None = None,
    early: str = "",
) -> Outcome:
    """Run a host to its end; ``without`` takes a system call away from it."""
    command = argv(identity, *arguments, package=package, beside=beside, early=early)
    if without is not None:
        command = [identity.python, "-I", "-S", "-c", WITHOUT, str(without[0]), str(without[1]), *command]
    done = subprocess.run(
        # Its parent is of the same user, and the host does not lead the process group that it is born into.
        ["/bin/sh", "-c", '"$@"; exit $?', "sh", *command],
        input=stdin,
        capture_output=True,
        timeout=60,
        check=False,
        cwd="/",
        env=_ENVIRONMENT | (environ or {}),
        **as_identity(identity),
    )
    return Outcome(done.returncode, done.stdout.decode(), done.stderr.decode())


def aid(name: str) -> str:
    return f"AID.PLUGIN.{name.upper()}.v1"


def request(aid: str, **inputs: Any) -> bytes:
    return json.dumps({"aid": aid, "input_json": json.dumps(inputs)}).encode() + b"\n"


def called(outcome: Outcome) -> list[Any]:
    """What the calls of a serving host came to; they must all have succeeded."""
    assert outcome.returncode == 0, outcome
    answers = [json.loads(line) for line in outcome.stdout.splitlines()]
    assert all(answer.get("status") == "OK" for answer in answers), answers
    return [json.loads(answer["output_json"]) for answer in answers]


def listed(outcome: Outcome) -> dict[str, Any]:
    """The listing of a host that gave one."""
    assert outcome.returncode == 0, outcome
    listing: dict[str, Any] = json.loads(outcome.stdout)
    return listing


@contextmanager
def plugin(identity: Identity, text: str, name: str = "plugin.py") -> Iterator[str]:
    """A plugin in a folder of its own, which the identity owns and others can read."""
    with folder_of(identity) as folder:
        path = Path(folder) / name
        path.write_text(text)
        path.chmod(0o644)
        yield str(path)


@contextmanager
def folder_of(identity: Identity) -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="manglecp-hosted-") as name:
        Path(name).chmod(0o755)
        shutil.chown(name, identity.uid, identity.uid)
        yield name
