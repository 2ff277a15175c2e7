"""Evidence from existing logs of agents.

records                    a log as numbered JSON records
conversation               provider-neutral prompts and replies; threads; exchanges and transcripts; typed errors
anthropic, openai, mcp     log formats of two providers, and of MCP
policies                   the policies and tools that bind a turn
turns                      events to turns; a turn to an evidence document
sources                    all formats; ``ingest``: a log in, documents out
"""

from manglecp.adapters.policies import CONSTRAINTS
from manglecp.adapters.records import LogError, LogLimits
from manglecp.adapters.sources import SOURCES, ingest

__all__ = ["CONSTRAINTS", "SOURCES", "LogError", "LogLimits", "ingest"]
