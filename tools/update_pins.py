"""Write requirements/*.txt anew: the newest versions that pyproject.toml allows, with all their hashes.

The result holds for every platform and every Python from 3.11 on, and names no index: whoever installs uses
the one that their own machine is set up for, and the hashes say whether it served the right files.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SETS: dict[str, list[str]] = {
    "run": ["--extra", "server", "--extra", "client", "--extra", "testing"],
    "dev": ["--extra", "dev"],
    "bench": ["--extra", "dev", "--extra", "mcp"],  # and the peers that benchmarks measure in the same run
}
COMPILE = [
    *("pip", "compile", "pyproject.toml", "--group", "build", "--quiet", "--upgrade", "--generate-hashes"),
    *("--universal", "--python-version", "3.11", "--custom-compile-command", "make pins"),
]


def main() -> int:
    with tempfile.TemporaryDirectory() as scratch:
        uv = shutil.which("uv") or install_uv(Path(scratch))
        for name, options in SETS.items():
            target = f"requirements/{name}.txt"
            subprocess.run([uv, *COMPILE, *options, "--output-file", target], cwd=ROOT, check=True)
            print(f"wrote {target}")
    return 0


def install_uv(scratch: Path) -> str:
    python = scratch / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", scratch], check=True)
    subprocess.run(["python3", "-m", "pip", "--python", python, "install", "-qq", "uv"], check=True)
    return str(scratch / "bin" / "uv")


if __name__ == "__main__":
    sys.exit(main())
