"""Talk to a host process of ours. Conversations with any toolhost are in :mod:`manglecp.conformance`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

WORKSPACE = str(Path(__file__).parent / "plugins" / "workspace.py")
CASTS = Path(__file__).parent / "casts"
HOST = [sys.executable, "-m", "manglecp.toolhost.host"]

# For tests of what a host takes: measuring coverage in it would be part of the answer.
UNMEASURED = {name: value for name, value in os.environ.items() if not name.startswith("COV")}


def host(
    *arguments: str, stdin: bytes = b"", environ: Mapping[str, str] | None = None, descriptors: tuple[int, ...] = ()
) -> subprocess.CompletedProcess[bytes]:
    """Run a host to its end."""
    environment = {name: value for name, value in os.environ.items() if name != "MACHINA_LEASE_ENFORCE"}
    return subprocess.run(
        [*HOST, *arguments],
        input=stdin,
        capture_output=True,
        env={**environment, **(environ or {})},
        pass_fds=descriptors,
        timeout=30,
        check=False,
    )


def request(name: str, inputs: Mapping[str, Any] | None = None, /, *, version: int = 1, **members: Any) -> bytes:
    """One request for a tool of the test plugin."""
    document = {"aid": f"AID.WORKSPACE.{name.upper()}.v{version}", "input_json": json.dumps(inputs or {}), **members}
    return json.dumps(document).encode()


def serve(
    *lines: bytes,
    options: tuple[str, ...] = (),
    environ: Mapping[str, str] | None = None,
    descriptors: tuple[int, ...] = (),
) -> list[dict[str, Any]]:
    """The answers of a serving host to these lines; it must answer each with one line and then leave cleanly."""
    done = host(
        "--serve",
        WORKSPACE,
        *options,
        stdin=b"".join(line + b"\n" for line in lines),
        environ=environ,
        descriptors=descriptors,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == b"" or done.stdout.endswith(b"\n")
    return [json.loads(line) for line in done.stdout.split(b"\n")[:-1]]
