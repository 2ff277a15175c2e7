"""Issue memory: known work, which a turn may change only under authority.

All state derives from events. One function decides whether an event is admissible and applies it (:mod:`.transitions`);
operations, import and audit all use it, over tables (:mod:`.tables`) in a database. Adding or claiming an
issue needs no right; other changes need a ``MutationReady``: evidence of a closed turn that names the issue.

model               issues, edges, leases, mutations and their limits; changes and events, the rows of the log
tables              the log and the state, in a database
transitions         which event is admissible, and which needs a MutationReady
memory, integrity   operations and queries; audit, export and import of the log
"""

from manglecp.base.lazy import attach

__getattr__, __dir__ = attach(__name__, __file__)
