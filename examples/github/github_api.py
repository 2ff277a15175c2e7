"""A client of GitHub's REST API on the standard library."""

import json
import ssl
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from http.client import HTTPException
from itertools import count
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from manglecp import ActionError

EGRESS = ["{api}"]
SECONDS = 10  # time limit of one request
MAX_BYTES = 8_000_000
PAGE = 100  # rows of a page, the most that GitHub sends


@dataclass(frozen=True)
class GitHub:
    """The API of one repository; the members, apart from the token, are the settings of the pack."""

    token: str = field(repr=False)
    api: str
    repository: str
    ca: str

    def request(self, method: str, path: str, body: object = None) -> Any:
        """Return the JSON of the response; raises ActionError with the message of GitHub."""
        url = f"https://{self.api}/repos/{self.repository}/{path}"
        headers = {
            "Authorization": f"Bearer {self.token}",
            "Accept": "application/vnd.github+json",
            "User-Agent": "manglecp",
        }
        data = None if body is None else json.dumps(body).encode()
        try:
            with urlopen(
                Request(url, data, headers, method=method), timeout=SECONDS, context=_tls(self.ca)
            ) as response:
                return json.loads(response.read(MAX_BYTES))
        except HTTPError as error:
            raise ActionError(_message(error), code="x-github", data={"status": error.code}) from None
        except (OSError, HTTPException, ValueError) as error:
            raise ActionError(f"GitHub did not respond: {error}", code="x-github") from None

    def rows(self, path: str) -> Iterator[dict[str, Any]]:
        """Yield the rows of all pages of a list."""
        for page in count(1):
            rows = self.request("GET", f"{path}{'&' if '?' in path else '?'}per_page={PAGE}&page={page}")
            yield from rows
            if len(rows) < PAGE:
                return


@cache
def _tls(ca: str) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=Path(__file__).with_name(ca) if ca else None)


def _message(error: HTTPError) -> str:
    if error.code in (403, 429) and error.headers.get("x-ratelimit-remaining") == "0":
        return "The rate limit of GitHub is used up; try again later"
    try:
        message = json.loads(error.read(10_000))["message"]
    except (OSError, ValueError, KeyError, TypeError):
        message = error.reason
    return f"GitHub responded with {error.code}: {message}"
