"""``make demo``: a server with the incident pack, and a client that runs through twelve steps.

    python -m tools.demo [PACK]   PACK is another copy of the pack, to see the effect of a changed rule

Each step prints its results and checks them. The first failed check ends the demo with exit status 1. The timestamps of
the recorded facts are moved to the present, because the rules compare them with the server's clock. All files are in a
temporary folder; the pack is read-only.

steps          the steps and their checks, in order
environment    the folder, the users and the server
mcp_host       a host of MCP servers
public_server  an MCP server from the package index
terminal       the output
"""
