"""The actions of the incident pack: read a recorded session and a log, correlate them, and fix a route table.

Files are searched in the workspace, the working directory of the host, and then in the recorded files of the pack. Only
the workspace is written.
"""

import difflib
import hashlib
import json
import tomllib
from pathlib import Path, PurePosixPath
from typing import Annotated, TypedDict
from urllib.parse import urlsplit

from manglecp import Limits, action

RECORDED = Path(__file__).parent / "recorded"


class Request(TypedDict):
    at: str
    method: str
    url: str
    status: int


class ConsoleError(TypedDict):
    at: str
    message: str


class LogLine(TypedDict):
    at: str
    level: str
    message: str


class Link(TypedDict):
    error: ConsoleError
    request: Request | None


def resolve(file: str, root: Path) -> Path:
    """Return the path below the root. Raises ValueError for a spelling that a policy on paths would not match."""
    if PurePosixPath(file).as_posix() != file or file.startswith("/") or ".." in file.split("/"):
        raise ValueError(f"{file!r} is not a plain relative path")
    return root / file


def read(file: str) -> str:
    found = resolve(file, Path.cwd())
    return (found if found.is_file() else resolve(file, RECORDED)).read_text(encoding="utf-8")


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@action(effects=["filesystem"], mutates=False, idempotent=True)
def failed_requests(har: str, url_contains: str = "") -> dict[str, list[Request]]:
    """List the failed requests of a HAR file, oldest first.

    Args:
        url_contains: only requests whose URL contains this text
    """
    found: list[Request] = []
    for entry in json.loads(read(har))["log"]["entries"]:
        request, status = entry["request"], entry["response"]["status"]
        if (status >= 400 or status == 0) and url_contains in request["url"]:
            at = entry["startedDateTime"]
            found.append({"at": at, "method": request["method"], "url": request["url"], "status": status})
    return {"requests": sorted(found, key=lambda request: request["at"])}


@action(effects=["none"], idempotent=True)
def correlate(requests: list[Request], errors: list[ConsoleError]) -> dict[str, list[Link]]:
    """Return each console error with the last request that failed before it."""
    chain: list[Link] = []
    for error in sorted(errors, key=lambda error: error["at"]):
        before = [request for request in requests if request["at"][:19] <= error["at"][:19]]
        chain.append({"error": error, "request": before[-1] if before else None})
    return {"chain": chain}


@action(effects=["filesystem"], mutates=False, idempotent=True)
def read_log(file: str, lines: Annotated[int, Limits(ge=1, le=200)] = 20) -> dict[str, list[LogLine]]:
    """Read the newest errors of a log.

    Args:
        lines: the maximum number of lines
    """
    parts = [line.split(maxsplit=2) for line in read(file).splitlines()]
    errors = [part for part in parts if len(part) == 3 and part[1] == "ERROR"]
    return {"lines": [{"at": at, "level": level, "message": message} for at, level, message in errors[-lines:]]}


@action(effects=["none"], idempotent=True)
def name_cause(chain: list[Link], log: list[LogLine]) -> dict[str, object]:
    """Return the cause of the first error that follows a failed request, and a fix."""
    link = next((link for link in chain if link["request"]), None)
    if link is None or link["request"] is None:
        raise ValueError("none of the errors follows a failed request")
    error, request = link["error"], link["request"]
    path, status = urlsplit(request["url"]).path, request["status"]
    logged = next((line for line in log if path in line["message"]), None)
    cause = "missing_route" if status == 404 else "unreachable" if status == 0 else "server_error"
    events = [f"{request['method']} {path} was answered with {status}", error["message"]]
    if logged is not None:
        events.insert(1, logged["message"])
    return {
        "error": error["message"],
        "cause": cause,
        "causal_chain": events,
        "proven": logged is not None,
        "file": "app/routes.toml" if cause == "missing_route" else "",
        "fix": f"add_route {path}" if cause == "missing_route" else "",
    }


@action(effects=["filesystem"], mutates=False, idempotent=True)
def propose_patch(file: str, fix: str) -> dict[str, str]:
    """Return the content of a file after a change, and the diff, without changing the file."""
    kind, _, path = fix.partition(" ")
    if kind != "add_route" or not path.startswith("/api/"):
        raise ValueError(f"{fix!r} is not supported: only 'add_route /api/PATH' is")
    before = read(file)
    if path in tomllib.loads(before)["routes"]:
        raise ValueError(f"{path} already has a route")
    after = before.rstrip("\n") + f'\n{json.dumps(path)} = "{path.split("/")[2]}.index"\n'
    lines = difflib.unified_diff(before.splitlines(True), after.splitlines(True), f"a/{file}", f"b/{file}")
    return {"diff": "".join(lines), "after": after, "digest": digest(before)}


@action(effects=["filesystem"], reversible=True)
def replace_file(file: str, text: str, expected: str) -> dict[str, str]:
    """Write a file of the workspace. Raises ValueError if it has changed since it was read."""
    target = resolve(file, Path.cwd())
    previous = target.read_text(encoding="utf-8")
    if digest(previous) != expected:
        raise ValueError(f"{file} has changed since it was read")
    target.write_text(text, encoding="utf-8")
    return {"file": file, "previous": previous, "digest": digest(text)}


@action(effects=["filesystem"], mutates=False, idempotent=True)
def check_routes(file: str) -> dict[str, list[str]]:
    """Read the route table again, and fail if it is invalid."""
    return {"routes": sorted(tomllib.loads(read(file))["routes"])}
