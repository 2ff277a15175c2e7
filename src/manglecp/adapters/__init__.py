"""Evidence from logs that people have.

limits, records, fields    a log as numbered JSON records; members of strange objects
conversation               the neutral model: prompts and replies
digests, threads           digests of what logs hold; which requests belong together
dialogue                   chat interfaces: exchanges and transcripts
anthropic, openai          … of two providers, with their streams
mcp                        JSON-RPC between a client and a server of tools
envelopes, offers          errors with a code; tools as documents
policies                   what the turns are bound to
traces, turns, evidence    what is used later; events to turns; a turn to a document
jsonl                      documents and rows as they are
ingesting                  all of it: a log in, documents out
"""

from manglecp.adapters.ingesting import SOURCES, ingest
from manglecp.adapters.limits import LogLimits
from manglecp.adapters.policies import CONSTRAINTS
from manglecp.adapters.records import LogError

__all__ = ["CONSTRAINTS", "SOURCES", "LogError", "LogLimits", "ingest"]
