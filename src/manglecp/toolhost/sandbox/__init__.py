"""The sandbox of a host, the process that runs a plugin.

* **A host sandboxes itself.** :func:`apply` is called in the process that is to be confined, after the interpreter
  has started and before a plugin is loaded. This needs no installation and no root helper, and is irrevocable, also
  for children.
* **Defence in depth.** Namespaces remove the network and the writable disk, Landlock restricts files, seccomp system
  calls, limits resources (:mod:`.profiles` has the order). An attack needs a hole at the same place in each.
* **No silent degradation.** If the kernel refuses a mechanism, :func:`apply` raises and names it; if the caller allows
  an incomplete sandbox, the result names the missing mechanisms.

Standard library only, and little of it: this is part of the start of every host.
"""

from .policy import REMEDIES, Enforcement, Mechanism, PathClosed, Policy, Profile, SandboxUnavailable
from .profiles import CONTAINED, PROFILES, apply, measure

__all__ = [
    "CONTAINED",
    "PROFILES",
    "REMEDIES",
    "Enforcement",
    "Mechanism",
    "PathClosed",
    "Policy",
    "Profile",
    "SandboxUnavailable",
    "apply",
    "measure",
]
