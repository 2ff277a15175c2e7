"""Issue memory: the work that is known of, and the only thing that a turn may mutate under authority.

Everything is an event. An event is admissible in the state that the events before it made, or it is not, and one
function says so and carries it out (:mod:`.transitions`). Operations, import and audit all go through it, over small
tables (:mod:`.tables`) that a database holds or that are folded in memory. So the state can be computed again from the
events, at any event, and compared with what is stored.

Who adds an issue, or claims one, needs no right. Who changes what is known needs a ``MutationReady``: evidence of a
closed turn that names the issue (:mod:`.rights`). There is no way around it.

Data meets the modules in this order:

    limits, model       what texts, ids and numbers may be; issues, edges, leases, mutations
    events              what can happen, and the rows of the log
    tables, folded      what is the case, as an interface, and in memory
    transitions         which event is admissible, and what it does
    rights              what a MutationReady is a right to
    view                questions
    memory              operations, each one transaction
    stored              the same tables in a database
    audit, jsonl        is it what the events say; the log as a text file
"""

from manglecp.store.issues.audit import audit
from manglecp.store.issues.events import Add, AddDependency, Close, Discover, Event, RemoveDependency, Update
from manglecp.store.issues.jsonl import BadLog, export_log, import_log
from manglecp.store.issues.memory import IssueMemory
from manglecp.store.issues.model import EDGE_TYPES, Edge, Issue, Lease, Mutation, Status
from manglecp.store.issues.stored import StoredIssues
from manglecp.store.issues.tables import IssueStore, IssueTables
from manglecp.store.issues.view import Blocked, Detail, View

__all__ = [
    "EDGE_TYPES",
    "Add",
    "AddDependency",
    "BadLog",
    "Blocked",
    "Close",
    "Detail",
    "Discover",
    "Edge",
    "Event",
    "Issue",
    "IssueMemory",
    "IssueStore",
    "IssueTables",
    "Lease",
    "Mutation",
    "RemoveDependency",
    "Status",
    "StoredIssues",
    "Update",
    "View",
    "audit",
    "export_log",
    "import_log",
]
