"""A plugin with a tool for everything that a tool can do to its host."""

import asyncio
import os
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from typing import Annotated, Literal

from manglecp import Context, Limits, action
from manglecp.toolhost.state import Artifact

CALLS: list[str] = []


@dataclass
class Found:
    path: str
    lines: list[int]


@action(effects=["none"], idempotent=True)
def echo(text: str = "", times: Annotated[int, Limits(ge=1, le=3)] = 1) -> str:
    """Say it again.

    Args:
        text: what to say
    """
    return text * times


@action(effects=["filesystem"], mutates=False, timeout=5)
def find(path: str, mode: Literal["fast", "slow"] = "fast") -> Found:
    """Find something."""
    return Found(f"{path}:{mode}", [1, 2])


@action(effects=["filesystem"], reversible=True)
def write(path: str) -> int:
    """Count how often it was called."""
    CALLS.append(path)
    return len(CALLS)


@action(effects=["none"])
async def later(seconds: float) -> str:
    """Answer after a while."""
    await asyncio.sleep(seconds)
    return "done"


@action(effects=["none"])
def noisy(context: Context) -> str:
    """Write to every stream there is, and read the only one."""
    print("printed")
    sys.stdout.write("{}\n")
    os.write(1, b'{"ok":true}\n')
    subprocess.run(["echo", "from a child"], check=True)
    context.progress(1, 2, "half")
    context.log("said")
    return sys.stdin.read()


@action(effects=["none"])
def keep(context: Context, slot: int, text: str, fail: bool = False) -> list[int]:
    """Write a slot, and perhaps fail afterwards."""
    context.slots[slot] = Artifact("text", "AID.WORKSPACE.KEEP.v1", text, len(text))
    if fail:
        raise RuntimeError("after writing")
    return sorted(context.slots)


@action(effects=["none"])
def fail(how: str) -> object:
    """Fail in some way."""
    if how == "exit":
        sys.exit(3)
    if how == "interrupt":
        raise KeyboardInterrupt
    if how == "recursion":
        return fail(how)
    if how == "object":
        return object()
    if how == "nan":
        return float("nan")
    if how == "thread":
        threading.Thread(target=time.sleep, args=(60,)).start()
        return "started"
    raise ValueError(how)


@action(effects=["process"], spawn=["/bin/true"], version=2)
def pid() -> int:
    """Give the number of this process."""
    return os.getpid()
