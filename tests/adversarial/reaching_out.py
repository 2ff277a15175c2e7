"""Somebody who would notice if something were fetched."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator

import pytest

__all__ = ["asked"]


@pytest.fixture
def asked() -> Iterator[tuple[str, list[str]]]:
    """The address of a server that notes what it is asked for, and the notes."""
    notes: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            notes.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", notes
        server.shutdown()
        thread.join()
