from typing import Any

from manglecp import action


@action(effects=[])
def query_console_errors(error_id: str) -> str:
    """Read the error from the console."""
    return error_id


@action(effects=[])
def correlate_network(include_network: bool = True) -> bool:
    """Find the request that failed before the error."""
    return include_network


@action(effects=[])
def trace_dom_impact() -> str:
    """Find the component that shows the error."""
    return "UserList"


@action(effects=[])
def derive_root_cause() -> dict[str, Any]:
    """Order the events and name their cause."""
    chain = [
        {"step": 1, "event": "GET /api/users returned 404", "timestamp": "2026-02-19T14:29:59Z"},
        {"step": 2, "event": "UserList component received null data", "timestamp": "2026-02-19T14:30:00Z"},
        {"step": 3, "event": "TypeError: Cannot read properties of null", "timestamp": "2026-02-19T14:30:00Z"},
    ]
    return {
        "causal_chain": chain,
        "root_cause": "API endpoint /api/users not registered in router",
        "confidence": 0.92,
    }
