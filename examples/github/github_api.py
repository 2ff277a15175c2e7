"""A client of GitHub's REST API on the standard library."""

import json
from collections.abc import Iterator
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from manglecp import ActionError

API = "https://api.github.com"
EGRESS = ["api.github.com:443"]
SECONDS = 10  # time limit of one request
MAX_BYTES = 8_000_000
PAGE = 100  # rows of a page, the most that GitHub sends


def request(token: str, method: str, path: str, body: object = None) -> Any:
    """Return the JSON that GitHub answers. Raises :class:`manglecp.ActionError` with GitHub's message."""
    headers = {"Accept": "application/vnd.github+json", "Authorization": f"Bearer {token}", "User-Agent": "manglecp"}
    data = None if body is None else json.dumps(body).encode()
    try:
        with urlopen(Request(f"{API}{path}", data, headers, method=method), timeout=SECONDS) as response:
            return json.loads(response.read(MAX_BYTES))
    except HTTPError as error:
        raise ActionError(_message(error), code="x-github", data={"status": error.code}) from None
    except (URLError, HTTPException, TimeoutError, ValueError) as error:
        raise ActionError(f"GitHub gave no usable answer: {error}", code="x-github") from None


def rows(token: str, path: str) -> Iterator[dict[str, Any]]:
    """Yield the rows of all pages of a list."""
    page = 0
    while not page or len(batch) == PAGE:
        page += 1
        batch = request(token, "GET", f"{path}{'&' if '?' in path else '?'}per_page={PAGE}&page={page}")
        yield from batch


def _message(error: HTTPError) -> str:
    if error.headers.get("x-ratelimit-remaining") == "0":
        return "The rate limit of the token is used up; try again later"
    try:
        message = json.loads(error.read(10_000))["message"]
    except (ValueError, KeyError, TypeError):
        message = error.reason
    return f"GitHub answered {error.code}: {message}"
