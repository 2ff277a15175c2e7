"""The wire format: JSON messages and Mangle facts. Pure: no files, sockets or clocks.

validation                 JSON to structs with all diagnostics
messages, errors           message types to bytes; the error registry
message_reader             bytes to messages
shapes, values             declared bounds; values to JSON and back
predicates, facts          published predicates; fact objects to facts and back
fact_checker, profile      the facts of a request, and what a program publishes
clauses, json_schemas      structured clauses (an extension); JSON Schema of every message
response_text, vocabulary  parts of responses as text; constants of the protocol
"""

from manglecp.base.lazy import attach

__getattr__, __dir__ = attach(__name__, __file__)
