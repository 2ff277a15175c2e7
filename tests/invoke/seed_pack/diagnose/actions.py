"""A recorded session with one error, and the four looks at it that lead to its cause."""

from typing import TypedDict

from manglecp import action

CONSOLE = {
    "console-error-3": {
        "event": "TypeError: Cannot read properties of null",
        "timestamp": "2026-02-19T14:30:00Z",
        "component": "UserList",
    }
}
ROUTES = ["/api/login"]


class Error(TypedDict):
    event: str
    timestamp: str
    component: str


class Request(TypedDict):
    method: str
    url: str
    status: int
    timestamp: str


NETWORK: list[Request] = [{"method": "GET", "url": "/api/users", "status": 404, "timestamp": "2026-02-19T14:29:59Z"}]


class Impact(TypedDict):
    event: str
    timestamp: str


class Link(TypedDict):
    step: int
    event: str
    timestamp: str


class Cause(TypedDict):
    causal_chain: list[Link]
    root_cause: str
    confidence: float
    cause: str
    steps: int


@action(effects=[])
def query_console_errors(error_id: str) -> Error:
    """One error of the console."""
    found = CONSOLE[error_id]
    return Error(event=found["event"], timestamp=found["timestamp"], component=found["component"])


@action(effects=[])
def correlate_network(error: Error, include_network: bool) -> Request:
    """The last request that failed before the error."""
    failed = [one for one in NETWORK if include_network and one["timestamp"] <= error["timestamp"]]
    return max(failed, key=lambda one: one["timestamp"])


@action(effects=[])
def trace_dom_impact(error: Error, request: Request) -> Impact:
    """What the failed request did to the page."""
    data = "null" if request["status"] >= 400 else "some"
    return Impact(event=f"{error['component']} component received {data} data", timestamp=error["timestamp"])


@action(effects=[])
def derive_root_cause(error: Error, request: Request, impact: Impact) -> Cause:
    """The chain from the request to the error, and where it begins."""
    first = f"{request['method']} {request['url']} returned {request['status']}"
    events = [
        (first, request["timestamp"]),
        (impact["event"], impact["timestamp"]),
        (error["event"], error["timestamp"]),
    ]
    chain = [Link(step=n, event=event, timestamp=at) for n, (event, at) in enumerate(events, 1)]
    missing = request["url"] not in ROUTES
    return Cause(
        causal_chain=chain,
        root_cause=f"API endpoint {request['url']} not registered in router" if missing else "unknown",
        confidence=0.92,
        cause="missing_route" if missing else "unknown",
        steps=len(chain),
    )
