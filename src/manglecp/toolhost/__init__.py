"""The toolhost: actions behind a process boundary, both sides of the IPC contract.

* **An action is a plain typed function.** Its hints are its schema, its docstring its description, its declared effects
  the tier of the lease that it needs (:mod:`.actions`).
* **The gate is at the effect.** A call above tier 0 runs only under a token that was minted for exactly this call, with
  the key of exactly this host (:mod:`.leases`).
* **State travels by value**, whole or as a delta (:mod:`.state`); a failed action changes nothing.

This module imports nothing: a host process pays only for what it uses.
"""

from manglecp.base.lazy import attach

__getattr__, __dir__ = attach(__name__, __file__)
