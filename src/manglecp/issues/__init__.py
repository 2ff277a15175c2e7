"""Issue memory: the work that is known of, and the only thing that a turn may mutate under authority.

Everything is an event. An event is admissible in the state that the events before it made, or it is not, and one
function says so and carries it out (:mod:`.transitions`). Operations, import and audit all go through it, over small
tables (:mod:`.tables`) that a database holds or that are folded in memory. So the state can be computed again from the
events, at any event, and compared with what is stored.

Who adds an issue, or claims one, needs no right. Who changes what is known needs a ``MutationReady``: evidence of a
closed turn that names the issue (:mod:`.rights`). There is no way around it.

    model, events       issues, edges, leases, mutations and their limits; the rows of the log
    tables, stored      what is the case: an interface, in memory, in a database
    transitions, rights which event is admissible, and which needs a MutationReady
    memory, integrity   operations and queries; audit, export and import of the log
"""

from manglecp.base.lazy import attach

__getattr__ = attach(__name__, __file__)
