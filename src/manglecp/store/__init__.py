"""What must last.

Three ideas:

* **A log that is only added to.** What happened is a row of a stream, and each row holds the hash of the one before it
  (:mod:`.chain`). What is the case now follows from the log and can be computed again from it.
* **One transaction.** A change, the event that says so and the evidence that justifies it are written together or not
  at all, whichever parts of the store they belong to.
* **Rules beside the database, not in it.** What is admissible is decided by code; SQL is what SQLite and PostgreSQL
  have in common (:mod:`.database`).

    database, migrations        how one speaks to a database; how its tables come to be
    sqlite, postgresql, urls    the two of them, and where they are
    chain, instants, sealing    hashes of rows; times; values that only the key opens
    ledger                      what happened
    registry, nonces            tools that were announced; confirmations that were used
    runs                        chains of actions that survive the process that runs them
    issues                      issue memory, which turns may mutate
    opening                     all of it together: ``open_store``
"""

from manglecp.base.lazy import attach

__getattr__ = attach(__name__, __file__)
