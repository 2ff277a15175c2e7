"""The host process: one plugin, served over standard input and output as the IPC contract says.

    python -m manglecp.toolhost.host --list PLUGIN          what there is
    python -m manglecp.toolhost.host --run PLUGIN AID       one call: all of stdin is the request
    python -m manglecp.toolhost.host --serve PLUGIN         one request and one answer per line, until an empty line

A request passes the modules in this order:

    arguments   the command line
    streams     stdin and stdout, out of the reach of tools
    confinement parent death signal, sources and sandbox, before the plugin runs
    messages    requests and answers as bytes
    session     lookup, leases, idempotency keys, state
    execution   the call itself: input, function, outcome, clean-up
    __main__    the three modes

A host has to answer soon after its start, so nothing here imports asyncio, dataclasses, inspect or msgspec.
"""
