"""Run the project's checks, or only the named steps, and print which of them failed."""

import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = ROOT / ".venv" / "bin"

# Three workers on two cores: many tests wait for child processes.
PYTEST = ["pytest", "-n", "3", "--dist", "worksteal"]
STEPS: dict[str, list[list[str]]] = {
    "lint": [["ruff", "check", "."], ["ruff", "format", "--check", "."]],
    "prose": [["python", "tools/prose.py"]],
    "types": [["mypy"]],
    "imports": [["lint-imports", "--no-logo"]],
    "docs": [["mkdocs", "build", "--strict", "--quiet", "--clean"]],
    "tests": [[*PYTEST, "--durations", "10"]],
}
# Steps that run only when they are named. Coverage makes Python three times slower.
FURTHER = {
    "affected": [["python", "tools/affected.py"]],
    "coverage": [[*PYTEST, "--cov", "--cov-report", "term"]],
}


def main(chosen: list[str]) -> int:
    steps = STEPS | FURTHER
    if unknown := [step for step in chosen if step not in steps]:
        print(f"unknown step: {', '.join(unknown)} (the steps are: {', '.join(steps)})", file=sys.stderr)
        return 2
    report: list[tuple[str, bool, float]] = []
    for step in chosen or STEPS:
        started = time.monotonic()
        results = [run(step, command) for command in steps[step]]
        report.append((step, all(results), time.monotonic() - started))
    print()
    for step, passed, seconds in report:
        print(f"{step:10} {'ok' if passed else 'FAILED':8} {seconds:6.1f} s")
    failed = [step for step, passed, _ in report if not passed]
    if failed:
        print(f"\nFAILED: {', '.join(failed)}")
    return 1 if failed else 0


def run(step: str, command: list[str]) -> bool:
    print(f"\n== {step}: {' '.join(command)}", flush=True)
    # The tests start thousands of processes, each of which would compile all modules again.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run([BIN / command[0], *command[1:]], cwd=ROOT, env=environment, check=False)
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
