"""The host process: one plugin, served over standard input and output as the IPC contract says.

    python -m manglecp.toolhost.host --list PLUGIN          what there is
    python -m manglecp.toolhost.host --run PLUGIN AID       one call: all of stdin is the request
    python -m manglecp.toolhost.host --serve PLUGIN         one request and one answer per line, until an empty line

Data meets the modules in this order:

    arguments   the command line
    streams     stdin and stdout, out of the reach of tools
    signals     what tools leave behind in the process, undone
    parent      whom a host must not outlive
    confinement the sandbox, between finding the plugin and running it
    messages    bytes as requests, answers as bytes; how large and what
    gate        whether a call may run: leases
    cache       whether it ran already: idempotency keys
    execution   the call itself: input, state, function, outcome
    session     the order of all this for one request
    __main__    the three modes

A worker has to answer quickly after its start, so nothing here imports what a plugin may not need: no asyncio, no
dataclasses, no inspect, and of the standard library's hashes only what a call asks for.
"""
