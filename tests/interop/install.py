"""Install MCP servers and SDKs of the registries into build/interop: ``python -m tests.interop.install``."""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
from pathlib import Path
from typing import Final

from tools.setup_env import find_installer

__all__ = ["FOLDER", "main"]

ROOT: Final = Path(__file__).resolve().parents[2]
FOLDER: Final = ROOT / "build" / "interop"
ENVIRONMENTS: Final = {
    "python": ("mcp-server-time", "mcp-server-git", "mcp-server-fetch"),
    "sqlite": ("mcp-server-sqlite", "mcp<2"),
    "agents": ("anthropic", "openai", "pydantic-ai-slim[anthropic]", "-e", f"{ROOT}[server,client]"),
    "langgraph": ("langchain", "langchain-anthropic", "langchain-mcp-adapters"),
    "openai-agents": ("openai-agents",),
}
NODE: Final = ("@modelcontextprotocol/server-filesystem", "@modelcontextprotocol/server-memory")


def main() -> int:
    npm = shutil.which("npm")
    if npm is None:
        sys.stderr.write("error: npm is not installed; the filesystem and memory servers are npm packages\n")
        return 1
    for name, packages in ENVIRONMENTS.items():
        python = FOLDER / name / "bin" / "python"
        if not python.exists():
            venv.create(FOLDER / name)
        _, install = find_installer(python)
        subprocess.run([*install, "--upgrade", *packages], check=True)
    node = FOLDER / "node"
    node.mkdir(parents=True, exist_ok=True)
    subprocess.run([npm, "install", "--silent", "--ignore-scripts", "--prefix", str(node), *NODE], check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
