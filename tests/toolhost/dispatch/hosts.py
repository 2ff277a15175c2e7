"""Commands and calls for the host with faults, and a count of what a test may have left behind."""

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from manglecp.toolhost.dispatch.launch import HostCommand, PoolLimits
from manglecp.toolhost.dispatch.messages import ActionResult, DispatchError, HostCall
from manglecp.toolhost.dispatch.pool import Pool
from tests.toolhost.rights import authorised

FAULT_HOST = Path(__file__).with_name("fault_host.py")
QUICK = PoolLimits(health_interval=0.1, health_timeout=1.5, backoff=0.01)


def command(*options: str, **environ: str) -> HostCommand:
    """A host of ours without the two descriptors."""
    return HostCommand(
        argv=(sys.executable, "-I", "-S", str(FAULT_HOST), *options),
        environ=HostCommand.inherited(os.environ) | environ,
    )


def call(
    aid: str = "AID.ECHO.v1", *, tier: int = 0, idempotent: bool = False, timeout: float = 10.0, **wanted: Any
) -> HostCall:
    """A call that asks for what is wanted, with the right to it."""
    wanted_call = HostCall(aid=aid, input_json=json.dumps(wanted), tier=tier, idempotent=idempotent, timeout=timeout)
    return authorised(wanted_call)


def seen(result: ActionResult | DispatchError) -> dict[str, Any]:
    """What the host saw of a call that it answered."""
    assert isinstance(result, ActionResult), result
    document = json.loads(result.output_json)
    assert isinstance(document, dict)
    return document


def error(result: ActionResult | DispatchError) -> tuple[str, str | None]:
    """Type and code of a call that failed."""
    assert isinstance(result, dict), result
    assert result["error"] is True
    assert result["detail"]
    return result["type"], result.get("code")


def pids_of(pool: Pool) -> list[int]:
    """The processes of a pool."""
    return [slot.host.pid for slot in pool._queue.slots if slot.host is not None]


def healthy_hosts(pool: Pool) -> int:
    """How many hosts of a pool accept calls, now or after their current ones."""
    hosts = [slot.host for slot in pool._queue.slots if not slot.retiring]
    return sum(host is not None and host.alive for host in hosts)


def children() -> set[int]:
    """The processes that this one has started and not yet parted from, zombies included."""
    return {int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()}


def _descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


@contextlib.contextmanager
def nothing_left() -> Iterator[None]:
    """No descriptor and no process more than before."""
    before = _descriptors(), children()
    yield
    assert (_descriptors(), children()) == before


def running(pid: int) -> bool:
    """Whether a process is there and is more than the memory of its end."""
    return _stat(pid)[0] != "Z"


def members(group: int) -> list[int]:
    """The running processes of a group."""
    everybody = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return [pid for pid in everybody if (stat := _stat(pid))[0] != "Z" and int(stat[2]) == group]


def _stat(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return ["Z", "0", "0"]
