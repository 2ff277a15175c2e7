"""Issue memory: a log of issues (work to be done), which a model turn may change only with an authorisation.

The state follows from the events of the log. One function decides whether an event is admissible and applies it
(:func:`.transitions.apply_event`); operations, import and audit all use it. Adding an issue, and claiming, renewing and
releasing its lease, need no authorisation. Other changes need a ``MutationReady`` of the harness: the evidence of a
closed turn that names the issue.

model        issues, edges, leases and their limits; changes; events, the rows of the log
tables       the log and the state, in a database
transitions  which change is admissible, and what it needs as authorisation
memory       operations and queries
sessions     the work on an issue: its lease, judged turns, features and handoff
integrity    audit, export and import of the log
"""

from manglecp.base.lazy import attach

__getattr__, __dir__ = attach(__name__, __file__)
