"""Create or update .venv with the packages that a make target needs; return at once if they are installed.

    tools/python tools/setup_env.py run     the package and its dependencies
    tools/python tools/setup_env.py dev     the same plus the tools for tests, checks and documentation
    tools/python tools/setup_env.py bench   the same plus the projects that benchmarks compare with

Packages come from the hash-pinned files in requirements/. A complete environment has a stamp with a digest of its
inputs; an environment without a stamp was interrupted and is built again. Each set contains the previous one, and a
complete environment never loses packages.
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
PYTHON: str = getattr(sys, "_base_executable", sys.executable)  # not the one of .venv, which may be activated

SETS = ("run", "dev", "bench")  # each contains the previous one
OLDEST_PIP = (22, 3)  # the first version with `pip --python`

NO_INSTALLER = f"""\
error: found neither uv nor pip {".".join(map(str, OLDEST_PIP))} or newer to install packages into .venv.
Install one of them:
  Debian, Ubuntu   apt-get install python3-pip
  Fedora           dnf install python3-pip
  elsewhere        install pip for {PYTHON}, or uv
"""


def main() -> int:
    if len(sys.argv) != 2 or sys.argv[1] not in SETS:
        print(f"usage: setup_env.py {{{','.join(SETS)}}}", file=sys.stderr)
        return 2
    with Path(__file__).open("rb") as lock:  # a second make waits here, and then finds a complete environment
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            set_up(sys.argv[1])
        except subprocess.CalledProcessError as error:
            command = " ".join(map(str, error.cmd))
            print(f"error: set-up failed: exit status {error.returncode} from\n  {command}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            print("\nset-up interrupted; the next run starts again", file=sys.stderr)
            return 130
    return 0


def set_up(wanted: str) -> None:
    """Create a complete environment with at least the set `wanted`."""
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
    # The pins are complete. Resolving them again would fail when a newer version of a package with an extra appears.
    run([*install, "--no-deps", "--require-hashes", "-r", str(pins)])
    say("installing manglecp itself, editable")
    run([*install, "--no-build-isolation", "--no-deps", "--editable", str(ROOT)])

    unfinished = STAMP.with_suffix(".new")
    unfinished.write_text(json.dumps(complete), encoding="utf-8")
    unfinished.replace(STAMP)
    say(f"ready in {time.monotonic() - started:.1f} s")


def read_stamp() -> dict[str, str]:
    """Return the stamp of the environment; empty if the environment is missing, incomplete or damaged."""
    try:
        stamp = json.loads(STAMP.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    genuine = isinstance(stamp, dict) and stamp.get("set") in SETS
    return stamp if genuine and VENV_PYTHON.exists() and COMMAND.exists() else {}


def describe_interpreter() -> str:
    """Return the identity of the interpreter and the path of .venv, which is part of its scripts."""
    return f"{sys.version} | {sys.base_prefix} | {VENV}"


def digest_of_inputs(wanted: str) -> str:
    parts = (ROOT / "pyproject.toml", ROOT / "requirements" / f"{wanted}.txt", Path(__file__))
    return hashlib.sha256(b"\0".join(part.read_bytes() for part in parts)).hexdigest()


def find_installer(target: Path = VENV_PYTHON) -> tuple[str, list[str]]:
    """Return the name and the command prefix of an installer for the environment of a Python, the fastest first."""
    if uv := shutil.which("uv"):
        return "uv", [uv, "pip", "install", "--quiet", "--python", str(target)]
    quiet = ["install", "-qq", "--no-input", "--disable-pip-version-check"]
    for python in dict.fromkeys((PYTHON, shutil.which("python3") or PYTHON)):
        if pip_version(python) >= OLDEST_PIP:
            return "pip", [python, "-m", "pip", "--python", str(target), *quiet]
    bundled = subprocess.run([target, "-m", "ensurepip"], capture_output=True, check=False)
    if bundled.returncode == 0:
        return "the pip that is bundled with Python", [str(target), "-m", "pip", *quiet]
    sys.exit(NO_INSTALLER)


def pip_version(python: str) -> tuple[int, ...]:
    done = subprocess.run([python, "-m", "pip", "--version"], capture_output=True, text=True, check=False)
    found = re.match(r"pip (\d+)\.(\d+)", done.stdout)
    return tuple(map(int, found.groups())) if found else ()


def run(command: list[str]) -> None:
    subprocess.run(command, check=True, cwd=ROOT)


def say(text: str) -> None:
    print(f"[setup] {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
