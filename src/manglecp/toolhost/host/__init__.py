"""The host process: one plugin, served over standard input and output by the IPC contract.

    python -m manglecp.toolhost.host --list PLUGIN          list the actions
    python -m manglecp.toolhost.host --run PLUGIN AID       one call: all of stdin is the request
    python -m manglecp.toolhost.host --serve PLUGIN         one request and one answer per line, until an empty line

The modules, from start to call: arguments, streams, confinement, messages, session (lookup, leases, idempotency keys,
state), execution. A host has to answer soon after its start: none imports asyncio, dataclasses, inspect or msgspec.
"""
