"""Make .venv hold what a make target needs, and do nothing when it already does.

    tools/python tools/setup_env.py run     the package and what it needs to run
    tools/python tools/setup_env.py dev     the same plus everything for tests, checks and documentation
    tools/python tools/setup_env.py bench   the same plus the peers that benchmarks compare with

Every package comes from the hash-pinned files in requirements/. A complete environment carries a stamp with a
digest of all that went into it; one without a stamp was interrupted and is built anew. Each set contains the
one before it, and a complete environment is never shrunk.
"""

import fcntl
import hashlib
import json
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
VENV_PYTHON = VENV / "bin" / "python"
COMMAND = VENV / "bin" / "manglecp"
STAMP = VENV / "manglecp-setup.json"
PYTHON: str = getattr(sys, "_base_executable", sys.executable)  # not .venv's own, should that be activated

SETS = ("run", "dev", "bench")  # each contains the one before it
OLDEST_PIP = (22, 3)  # the first with `pip --python`

NO_INSTALLER = f"""\
error: found neither uv nor pip {".".join(map(str, OLDEST_PIP))} or newer to fill .venv with.
Any one of these helps:
  Debian, Ubuntu   apt-get install python3-pip
  Fedora           dnf install python3-pip
  elsewhere        install pip for {PYTHON}, or uv
"""


def main() -> int:
    if len(sys.argv) != 2 or sys.argv[1] not in SETS:
        print(f"usage: setup_env.py {{{','.join(SETS)}}}", file=sys.stderr)
        return 2
    with Path(__file__).open("rb") as lock:  # two makes at once: the second waits, then finds the work done
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            set_up(sys.argv[1])
        except subprocess.CalledProcessError as error:
            command = " ".join(map(str, error.cmd))
            print(f"error: set-up failed: exit status {error.returncode} from\n  {command}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            print("\nset-up interrupted; the next run starts it anew", file=sys.stderr)
            return 130
    return 0


def set_up(wanted: str) -> None:
    """Leave a complete environment behind that holds at least the set `wanted`."""
    stamp = read_stamp()
    wanted = max(wanted, stamp.get("set", wanted), key=SETS.index)
    complete = {"set": wanted, "interpreter": describe_interpreter(), "digest": digest_of_inputs(wanted)}
    if stamp == complete:
        return

    started = time.monotonic()
    STAMP.unlink(missing_ok=True)
    if stamp.get("interpreter") != complete["interpreter"]:
        verb = "replacing" if VENV.exists() else "creating"
        say(f"{verb} .venv with Python {sys.version.split()[0]} ({PYTHON})")
        shutil.rmtree(VENV, ignore_errors=True)
        run([PYTHON, "-m", "venv", "--without-pip", str(VENV)])  # Debian's Python has no ensurepip by default

    name, install = find_installer()
    pins = ROOT / "requirements" / f"{wanted}.txt"
    count = len(re.findall(r"^[\w.-]+==", pins.read_text(encoding="utf-8"), re.MULTILINE))
    say(f"installing {count} pinned packages from {pins.relative_to(ROOT)} with {name}")
    run([*install, "--require-hashes", "-r", str(pins)])
    say("installing manglecp itself, editable")
    run([*install, "--no-build-isolation", "--no-deps", "--editable", str(ROOT)])

    unfinished = STAMP.with_suffix(".new")
    unfinished.write_text(json.dumps(complete), encoding="utf-8")
    unfinished.replace(STAMP)
    say(f"ready in {time.monotonic() - started:.1f} s")


def read_stamp() -> dict[str, str]:
    """What the environment was completed with; empty if it is absent, interrupted or damaged."""
    try:
        stamp = json.loads(STAMP.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    genuine = isinstance(stamp, dict) and stamp.get("set") in SETS
    return stamp if genuine and VENV_PYTHON.exists() and COMMAND.exists() else {}


def describe_interpreter() -> str:
    """An environment is tied to its interpreter and, through its scripts, to the place it lies in."""
    return f"{sys.version} | {sys.base_prefix} | {VENV}"


def digest_of_inputs(wanted: str) -> str:
    parts = (ROOT / "pyproject.toml", ROOT / "requirements" / f"{wanted}.txt", Path(__file__))
    return hashlib.sha256(b"\0".join(part.read_bytes() for part in parts)).hexdigest()


def find_installer() -> tuple[str, list[str]]:
    """Name and command prefix of what can install into .venv, the fastest first."""
    if uv := shutil.which("uv"):
        return "uv", [uv, "pip", "install", "--quiet", "--python", str(VENV_PYTHON)]
    quiet = ["install", "-qq", "--no-input", "--disable-pip-version-check"]
    for python in dict.fromkeys((PYTHON, shutil.which("python3") or PYTHON)):
        if pip_version(python) >= OLDEST_PIP:
            return "pip", [python, "-m", "pip", "--python", str(VENV_PYTHON), *quiet]
    carried = subprocess.run([VENV_PYTHON, "-m", "ensurepip"], capture_output=True, check=False)
    if carried.returncode == 0:
        return "the pip that Python carries", [str(VENV_PYTHON), "-m", "pip", *quiet]
    sys.exit(NO_INSTALLER)


def pip_version(python: str) -> tuple[int, ...]:
    answer = subprocess.run([python, "-m", "pip", "--version"], capture_output=True, text=True, check=False)
    found = re.match(r"pip (\d+)\.(\d+)", answer.stdout)
    return tuple(map(int, found.groups())) if found else ()


def run(command: list[str]) -> None:
    subprocess.run(command, check=True, cwd=ROOT)


def say(text: str) -> None:
    print(f"[setup] {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
