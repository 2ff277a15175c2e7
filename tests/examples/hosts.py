"""Actions of a pack, each called once in a host of its own that is locked in."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any


class Refused(Exception):
    """The action failed."""


def call(pack: Path, action: str, workspace: Path, **inputs: Any) -> Any:
    """What the action answers when it works in ``workspace``."""
    aid = f"AID.{pack.name.upper()}.{action.upper()}.v1"
    host = [sys.executable, "-I", "-m", "manglecp.toolhost.host", "--run", str(pack / "actions.py"), aid]
    # Where a mechanism of the sandbox is missing the others have to do: what is tested here is the action.
    locked_in = ["--sandbox", "strict", "--workspace", str(workspace), "--degrade"]
    done = subprocess.run(
        [*host, *locked_in],
        input=json.dumps({"inputs": inputs}).encode(),
        capture_output=True,
        timeout=120,
        check=False,
    )
    answer = json.loads(done.stdout)
    if answer["status"] != "OK":
        raise Refused(json.dumps(answer))
    return json.loads(answer["output_json"])
