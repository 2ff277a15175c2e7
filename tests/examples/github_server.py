"""A server in the shape of GitHub's REST API for one repository, with TLS, pages, and errors on demand."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.server.certificates import certificate

REPOSITORY = "acme/desk"


class GitHubServer(ThreadingHTTPServer):
    """The repository; ``failure`` is the (status, headers, message) of every response, None: none."""

    daemon_threads = True

    def __init__(self, folder: Path, token: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.ca, key = certificate(folder)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.ca, key)
        self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
        self.token = token
        self.failure: tuple[int, dict[str, str], str] | None = None
        self.issues: dict[int, dict[str, Any]] = {}
        self.comments: dict[int, list[dict[str, Any]]] = {}
        self.labels = ["bug", "question", "security"]
        self.changes: list[tuple[str, str, Any]] = []

    @property
    def api(self) -> str:
        return f"127.0.0.1:{self.server_port}"

    def add(self, number: int, title: str, *labels: str, body: str | None = None, pull: bool = False) -> None:
        issue: dict[str, Any] = {"number": number, "title": title, "state": "open", "body": body}
        issue["labels"] = [{"name": label} for label in labels]
        if pull:
            issue["pull_request"] = {}
        self.issues[number] = issue
        self.comments[number] = []

    def comment(self, number: int, author: str, body: str) -> dict[str, Any]:
        rows = self.comments[number]
        url = f"https://github.test/{REPOSITORY}/issues/{number}#{len(rows)}"
        rows.append({"user": {"login": author}, "body": body, "html_url": url})
        return rows[-1]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that end their connections."""

    def respond(self, method: str, path: str, query: dict[str, list[str]], body: Any) -> Any:
        """Return a JSON value, or None for a path that does not exist."""
        parts = path.removeprefix(f"/repos/{REPOSITORY}/").split("/")
        number = int(parts[1]) if len(parts) > 1 and parts[1].isdecimal() else 0
        if method != "GET":
            self.changes.append((method, path, body))
        match method, [parts[0], *parts[2:]]:
            case "GET", ["issues"] if len(parts) == 1:
                rows = [each for _, each in sorted(self.issues.items(), reverse=True) if each["state"] == "open"]
            case "GET", ["labels"]:
                rows = [{"name": label} for label in self.labels]
            case "GET", ["issues"]:
                return self.issues.get(number)
            case "GET", ["issues", "comments"]:
                rows = self.comments[number]
            case "POST", ["issues", "comments"]:
                return self.comment(number, "bot", body["body"])
            case "PUT", ["issues", "labels"]:
                self.issues[number]["labels"] = [{"name": label} for label in body["labels"]]
                return self.issues[number]["labels"]
            case "PATCH", ["issues"]:
                self.issues[number].update(body)
                return self.issues[number]
            case _:
                return None
        size, page = int(query["per_page"][0]), int(query["page"][0])
        return rows[size * (page - 1) : size * page]


class _Handler(BaseHTTPRequestHandler):
    server: GitHubServer

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        if self.server.failure is not None:
            return self._send(*self.server.failure)
        if self.headers["authorization"] != f"Bearer {self.server.token}":
            return self._send(401, {}, "Bad credentials")
        value = self.server.respond(self.command, url.path, parse_qs(url.query), json.loads(body or b"null"))
        return self._send(404, {}, "Not Found") if value is None else self._send(200, {}, value)

    do_POST = do_PUT = do_PATCH = do_GET  # the names of http.server

    def _send(self, status: int, headers: dict[str, str], value: Any) -> None:
        data = json.dumps({"message": value} if isinstance(value, str) else value).encode()
        self.send_response(status)
        for name, text in {**headers, "content-length": str(len(data))}.items():
            self.send_header(name, text)
        self.end_headers()
        self.wfile.write(data)


@contextmanager
def github_server(folder: Path, token: str) -> Iterator[GitHubServer]:
    with GitHubServer(folder, token) as server:
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        yield server
        server.shutdown()
