"""The calling side of the IPC contract: actions by their ids, one pool of warm hosts per plugin, one result per call.

From the caller inwards:

    dispatcher   the door: several plugins, budget, lookup, schema
    listing      what a plugin offers, asked of itself; catalogue makes calls of it
    pool         the stations of one call, and runs
    rights       no effect that the harness has not authorised
    breakers     leave alone what keeps failing
    keys         one effect per idempotency key, whichever host would have it
    line         who gets which place; seats which of them a call may have, and what its host is told of the state
    keeping      a warm host in every place
    lending      a lease for every call
    process      one host process, which launching started
    pairing      which answer belongs to which request; deadlines until when it has to be there
    messages     what the two say to each other; framing how its lines are cut
    losses       what becomes of a call whose host was lost
    errors       what callers get instead of an answer

and :mod:`.limits` and :mod:`.settings` for numbers, the latter from the environment.
"""

from manglecp.toolhost.dispatch.catalogue import Catalogue
from manglecp.toolhost.dispatch.dispatcher import DispatchedRun, Dispatcher, Served
from manglecp.toolhost.dispatch.errors import DispatchError, is_failure
from manglecp.toolhost.dispatch.launching import HostCommand
from manglecp.toolhost.dispatch.limits import Limits
from manglecp.toolhost.dispatch.listing import Listing, list_plugin
from manglecp.toolhost.dispatch.messages import Answer, Call
from manglecp.toolhost.dispatch.pool import Pool, Run

__all__ = [
    "Answer",
    "Call",
    "Catalogue",
    "DispatchError",
    "DispatchedRun",
    "Dispatcher",
    "HostCommand",
    "Limits",
    "Listing",
    "Pool",
    "Run",
    "Served",
    "is_failure",
    "list_plugin",
]
