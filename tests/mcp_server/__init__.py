"""An MCP client in front of a pack, and the API of clients that the server for MCP is built on."""
