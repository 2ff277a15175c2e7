"""Install a public MCP server into build/demo, once: ``python -m tools.demo.public_server``.

Without a package index the demo shows only its own server.
"""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path
from typing import Final

from tools.setup_env import find_installer

__all__ = ["COMMAND", "PACKAGE", "main"]

PACKAGE: Final = "mcp-server-git"
_FOLDER: Final = Path(__file__).resolve().parents[2] / "build" / "demo"
COMMAND: Final = _FOLDER / "bin" / PACKAGE
_ONE_ATTEMPT: Final = {"PIP_RETRIES": "0", "PIP_DEFAULT_TIMEOUT": "10", "UV_HTTP_RETRIES": "0"}


def main() -> int:
    if COMMAND.exists():
        return 0
    print(f"[demo] installing {PACKAGE} into build/demo", flush=True)
    venv.create(_FOLDER)
    _, install = find_installer(_FOLDER / "bin" / "python")
    done = subprocess.run([*install, PACKAGE], env={**os.environ, **_ONE_ATTEMPT}, capture_output=True, check=False)
    if done.returncode:
        print(f"[demo] {PACKAGE} cannot be installed; the demo shows only its own MCP server", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
