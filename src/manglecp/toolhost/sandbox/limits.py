"""How much a worker may use."""

import os
import resource

from .policy import Policy, Unsupported


def limit_resources(policy: Policy) -> None:
    """Memory, file sizes, open files and CPU time of this process, for good. No core dumps."""
    _lower(resource.RLIMIT_AS, policy.memory)
    _lower(resource.RLIMIT_FSIZE, policy.file_size)
    _lower(resource.RLIMIT_NOFILE, policy.open_files)
    if policy.cpu_seconds is not None:
        _lower(resource.RLIMIT_CPU, policy.cpu_seconds)
    _lower(resource.RLIMIT_CORE, 0)


def limit_processes(policy: Policy) -> None:
    """Only meaningful in a user namespace, which counts by itself; outside it all processes of the user are counted."""
    if os.getuid() == 0:
        raise Unsupported(
            "the kernel does not limit the processes of root; run as another user, or go without this limit (--degrade)"
        )
    _lower(resource.RLIMIT_NPROC, policy.processes)


def _lower(kind: int, value: int) -> None:
    _, hard = resource.getrlimit(kind)
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(kind, (value, value))
