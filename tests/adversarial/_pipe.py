"""Whoever can write to the pipe of a host: lines of his own, past dispatch."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from manglecp.toolhost.leases import input_digest, mint
from tests.adversarial._hosted import HOST, aid

__all__ = ["KEY", "lease", "line", "said"]

KEY = bytes(range(32))


def line(name: str, input_json: str, **members: Any) -> bytes:
    """One request, with whatever members an attacker likes."""
    return json.dumps({"aid": aid(name), "input_json": input_json, **members}).encode()


def lease(name: str, input_json: str, **changes: Any) -> str:
    """A good lease for a call, or one that differs in something."""
    bound: dict[str, Any] = {
        "key": KEY,
        "aid": aid(name),
        "input_digest": input_digest(input_json),
        "call_id": "c1",
        "tier": 3,
        "ttl": 60.0,
    }
    return mint(**{**bound, **changes})


def said(
    plugin: Path, *lines: bytes, environ: Mapping[str, str] | None = None, options: tuple[str, ...] = ()
) -> list[dict[str, Any]]:
    """The answers of a real host that has a key, to these lines and no others."""
    ours, theirs = os.pipe()
    os.write(theirs, KEY)
    os.close(theirs)
    try:
        done = subprocess.run(
            [*HOST, "--serve", str(plugin), "--lease-key-fd", str(ours), *options],
            input=b"".join(each + b"\n" for each in lines),
            capture_output=True,
            env={**os.environ, **(environ or {})},
            pass_fds=(ours,),
            timeout=60,
            check=False,
        )
    finally:
        os.close(ours)
    assert done.returncode == 0, done.stderr
    answers = [json.loads(answer) for answer in done.stdout.split(b"\n")[:-1]]
    assert len(answers) == len(lines)
    return answers
