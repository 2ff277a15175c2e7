"""Write requirements/*.txt: the newest versions that pyproject.toml allows, with all their hashes.

The result is valid for all platforms and for Python 3.11 and newer. It names no package index: an installation uses the
index that is configured on its machine, and the hashes verify the files.
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
    "bench": ["--extra", "dev", "--extra", "mcp"],  # and the projects that benchmarks compare with
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
