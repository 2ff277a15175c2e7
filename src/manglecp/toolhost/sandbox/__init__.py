"""What a worker process gives up before it runs untrusted code.

Three ideas:

* **The worker locks itself in.** :func:`apply` is called in the process that is to be confined, after the interpreter
  has started and before a plugin is loaded. Nothing needs to be installed, no helper runs as root, and what is given up
  cannot be taken back, also not by children.
* **Several walls, each of another make.** Namespaces take away the network and the writable disk, Landlock the files,
  seccomp the system calls, limits the resources. An attack has to find a hole at the same place in each of them.
* **No wall is pretended.** A mechanism that the kernel refuses is named; the profile then does not start, unless the
  caller said that less will do, and then the result says what is missing.

policy        what a profile is asked to allow, and what became of it
kernel        system calls by name, through ctypes
privileges    user, capabilities, no_new_privs and resource limits of the process
shielding     what must not be written although it lies in a workspace
namespaces    a network with nothing in it, a disk that cannot be written
landlock      which files, and which processes a signal reaches
seccomp       which system calls
profiles      the four profiles: which of these, in which order

Standard library only, and little of it: this is part of the start of every worker.
"""

from .policy import Closed, Enforcement, Mechanism, Policy, Profile, SandboxUnavailable
from .profiles import PROFILES, apply, probe

__all__ = [
    "PROFILES",
    "Closed",
    "Enforcement",
    "Mechanism",
    "Policy",
    "Profile",
    "SandboxUnavailable",
    "apply",
    "probe",
]
