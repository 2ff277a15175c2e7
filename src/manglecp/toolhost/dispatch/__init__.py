"""The calling side of the IPC contract: actions by id, one pool of warm hosts per plugin, one result per call.

From the caller inwards:

    dispatcher    several plugins, budget, lookup
    catalogue     what a plugin offers
    pool          the path of one call, and runs with a host of their own
    rights        no effect that the harness has not authorised
    breakers      circuit breakers per action
    idempotency   one effect per key
    hosts         slots, queue and supervision of warm hosts
    lease_issuer  a lease for every call
    process       one host process, which launch starts
    responses     response matching, deadlines, lost calls
    messages      calls, answers and errors on the wire
"""

from manglecp.toolhost.dispatch.catalogue import Catalogue, Listing, list_plugin
from manglecp.toolhost.dispatch.dispatcher import DispatchedRun, Dispatcher, Served
from manglecp.toolhost.dispatch.launch import HostCommand, PoolLimits
from manglecp.toolhost.dispatch.messages import Answer, Call, DispatchError, is_failure
from manglecp.toolhost.dispatch.pool import Pool, Run

__all__ = [
    "Answer",
    "Call",
    "Catalogue",
    "DispatchError",
    "DispatchedRun",
    "Dispatcher",
    "HostCommand",
    "Listing",
    "Pool",
    "PoolLimits",
    "Run",
    "Served",
    "is_failure",
    "list_plugin",
]
