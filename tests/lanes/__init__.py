"""Test lanes: a mark for every resource that a test uses, derived at collection and enforced at run time.

process    starts an operating-system process
socket     binds or connects a socket
postgres   needs a PostgreSQL server
fast       none of these: the lane of `make quick`
docs       checks a page of the documentation   (beside one of the above)
property   runs on generated examples           (beside one of the above)

`reach.py` derives them from the code that a test and its fixtures can call, `guard.py` fails a test of the fast lane
that uses a resource. A mark that stands at a test is kept: for the few that cannot be derived.
"""
