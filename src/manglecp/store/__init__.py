"""Durable state: the audit ledger, offers, approval requests and runs.

* One transaction writes a change and its ledger entry, or neither.
* SQL is what SQLite and PostgreSQL have in common (:mod:`.database`, :mod:`.schema`).
* An event loop uses ``store.writer``: group commit on one thread.
"""

from manglecp.base.lazy import attach

__getattr__, __dir__ = attach(__name__, __file__)
