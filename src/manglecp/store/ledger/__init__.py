"""What happened, in one chain for the whole store, only ever added to.

Every entry has a number, the time, a kind, the run and the identity it is about, a body, and the hash of the entry
before it (:mod:`manglecp.base.hash_chain`). The head is kept in a row of its own, which each append locks, so there
is one chain however many processes write, and entries that were cut off at the end are missed. Who can write to the
database can also write a whole new chain; that shows to anybody who noted a head elsewhere and asks for it.

Bodies hold digests, ids, codes and times. They never hold arguments, outputs or secrets: the ledger is for showing.

    entries     what is appended, what was appended, and its row
    checking    are these rows what was appended
    log         the operations, each inside a transaction of its caller
"""

from manglecp.store.ledger.checking import Verified, verify_export
from manglecp.store.ledger.entries import KINDS, Body, Entry, EntryKind, Note
from manglecp.store.ledger.log import LEDGER, Ledger

__all__ = ["KINDS", "LEDGER", "Body", "Entry", "EntryKind", "Ledger", "Note", "Verified", "verify_export"]
