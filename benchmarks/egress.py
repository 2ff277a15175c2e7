"""HTTP from an action in the strict sandbox, through the broker of its host, against the same action without a sandbox.

Requests on a kept connection, requests on new connections, and bytes per second of a large answer. The server runs in a
process of its own. The order of the two hosts alternates, so that other load on the machine hits both. The budgets are
for the difference of the medians; a figure outside of its budget is marked.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from _table import print_table

from manglecp.toolhost import ActionResult, Dispatcher, HostCommand, ServedPlugin
from manglecp.toolhost.dispatch.catalogue import ActionProfile

SERVER = r"""
import asyncio
LARGE = b"x" * 67_108_864

async def answer(reader, writer):
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            body = LARGE if b"/large" in head else b"ok"
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body))
            writer.write(body)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()

async def main():
    server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=512)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()

asyncio.run(main())
"""
PLUGIN = '''
import http.client, time
from manglecp.toolhost.actions import action


@action(effects=["none"])
def kept(port: int, count: int) -> list[float]:
    """Requests on one connection: seconds of each."""
    connection = http.client.HTTPConnection("localhost", port)
    connection.connect()
    return [timed(lambda: get(connection, "/")) for _ in range(count)]


@action(effects=["none"])
def new(port: int, count: int) -> list[float]:
    """Requests on new connections: seconds of each."""

    def once():
        connection = http.client.HTTPConnection("localhost", port)
        get(connection, "/")
        connection.close()

    return [timed(once) for _ in range(count)]


@action(effects=["none"])
def large(port: int, count: int) -> list[float]:
    """Large answers: seconds of each."""
    connection = http.client.HTTPConnection("localhost", port)
    return [timed(lambda: get(connection, "/large")) for _ in range(count)]


def get(connection, path):
    connection.request("GET", path)
    answer = connection.getresponse()
    while answer.read(1_048_576):
        pass


def timed(function):
    start = time.perf_counter()
    function()
    return time.perf_counter() - start
'''
MEASUREMENTS = {"kept": (200, 0.15), "new": (100, 0.5), "large": (2, None)}  # requests per round, budget in ms
ROUNDS = 5


def command(plugin: Path, port: int, *, sandboxed: bool) -> HostCommand:
    if not sandboxed:
        return HostCommand.for_plugin(str(plugin), {}, sandbox="none")
    egress = f"localhost:{port}"
    command = HostCommand.for_plugin(str(plugin), {}, egress=[egress])
    return HostCommand(
        argv=(*command.argv, "--private", egress),
        environ=command.environ,
        lease_key_option=command.lease_key_option,
        progress_option=command.progress_option,
        parent_option=command.parent_option,
        egress_option=command.egress_option,
    )


async def measure(plugin: Path, port: int) -> dict[tuple[str, bool], list[float]]:
    """Return the seconds of all requests, by measurement and whether the host is sandboxed."""
    aids = [f"AID.BENCH.{name.upper()}.v1" for name in MEASUREMENTS]
    profiles = {aid: ActionProfile(aid=aid, tier=0) for aid in aids}
    seconds: dict[tuple[str, bool], list[float]] = {}
    hosts = {
        sandboxed: Dispatcher([ServedPlugin(profiles, command(plugin, port, sandboxed=sandboxed))], size=1, timeout=120)
        for sandboxed in (False, True)
    }
    async with hosts[False], hosts[True]:
        for round_number in range(ROUNDS + 1):
            for name, (count, _) in MEASUREMENTS.items():
                for sandboxed in (False, True) if round_number % 2 else (True, False):
                    inputs = {"port": port, "count": count}
                    result = await hosts[sandboxed].call(f"AID.BENCH.{name.upper()}.v1", inputs=inputs)
                    assert isinstance(result, ActionResult), result
                    if round_number:  # the first round warms up
                        seconds.setdefault((name, sandboxed), []).extend(json.loads(result.output_json))
    return seconds


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        plugin = Path(folder) / "bench.py"
        plugin.write_text(PLUGIN)
        with subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True) as server:
            try:
                assert server.stdout is not None
                seconds = asyncio.run(measure(plugin, int(server.stdout.readline())))
            finally:
                server.terminate()
    rows = []
    for name, (_, budget) in MEASUREMENTS.items():
        outside, inside = (1_000 * statistics.median(seconds[name, sandboxed]) for sandboxed in (False, True))
        added = inside - outside
        verdict = "" if budget is None else f"{budget:.2f} ms{'' if added <= budget else '  TOO SLOW'}"
        figures = [f"{outside:.3f} ms", f"{inside:.3f} ms", f"{added:.3f} ms", verdict]
        if name == "large":
            figures = [f"{67_108.864 / outside:,.0f} MB/s", f"{67_108.864 / inside:,.0f} MB/s", "", ""]
        rows.append([name, *figures])
    print_table(["request", "without a sandbox", "through the broker", "added", "budget"], rows)


if __name__ == "__main__":
    main()
