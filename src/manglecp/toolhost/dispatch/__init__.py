"""The calling side of the IPC contract: actions by id, one pool of warm hosts per plugin, one result per call.

The modules, in the order in which a call passes them: dispatcher (finds the pool of an action), catalogue (the actions
of a plugin), pool (the path of one call), rights, breakers, idempotency, hosts (slots, queue, supervision),
lease_issuer, process (one host, started by launch), responses (matching, lost calls), messages (the wire format).
"""
