"""Rules in front of the MCP servers of a host's configuration: ``manglecp guard``.

host_config      the host's own configuration, and its entries with a relay in front of each server
probe            the tools and the instructions that a server sends
lock             the pinned definition and the accepted class of each tool, and the pinned instructions
domain           the starter policy and the developer's rules, over the tools of the lock
gate             the decision about a call, its record, and its approval
relay            the frames between a host and a server
report           what was tried, and what the rules decided

The relay decides about what it forwards: a frame that two parsers may read differently is refused, or written anew.
"""

from manglecp.base.lazy import attach

__getattr__, __dir__ = attach(__name__, __file__)
