"""What outlives a process: the audit ledger, offers, used nonces and durable runs.

* One transaction writes a change, its ledger entry and the evidence for it, or none of them.
* Rules are code; SQL is what SQLite and PostgreSQL have in common.
* An event loop uses ``store.writer``: group commit on one thread.

    database, schema, errors    the interface of a database; tables and their revision
    sqlite, postgresql          its two implementations
    ledger                      the append-only log, with a hash chain
    registry, nonces, runs      offers; used confirmations; durable runs
    seals                       encryption of values
    store, writer               all of it together: ``open_store``; access from an event loop
"""

from manglecp.base.lazy import attach

__getattr__ = attach(__name__, __file__)
