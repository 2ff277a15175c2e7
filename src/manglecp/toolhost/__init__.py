"""The toolhost: actions behind a process boundary, both sides of the IPC contract.

* **An action is a plain typed function.** Its schema comes from its type hints, its description from its docstring, and
  its tier (0: no effects) from its declared effects (:mod:`.actions`).
* **A call above tier 0 needs a lease**: a token minted for exactly this call, with the key of exactly this host
  (:mod:`.leases`).
* **State is passed by value**, whole or as a delta (:mod:`.state`); a failed action does not change it.

Exported names are imported on first use, because the modules that a host loads determine its start time.
"""

from manglecp.base.lazy import attach

__getattr__, __dir__ = attach(__name__, __file__)
