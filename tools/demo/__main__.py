"""One step after the other, until one does not hold."""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from manglecp.base.text import escape_invisible
from manglecp.client import Client, ClientError
from tools.demo import __doc__ as usage
from tools.demo.place import Place, Server
from tools.demo.showing import Unexpected, heading
from tools.demo.steps import STEPS, Walk

PACK: Final = Path(__file__).resolve().parents[2] / "examples" / "incident"
PATIENCE: Final = 120.0
"""Seconds for the whole walk; it takes a few."""


async def walk_through(folder: Path, pack: Path) -> int:
    number, title = 0, "Start"
    said: list[str] = []
    try:
        async with asyncio.timeout(PATIENCE):
            place = Place(folder, pack)
            async with Server.started(place) as server:
                said = server.said
                url = await server.url()
                async with Client(url, token=place.kim.token) as client:
                    walk = Walk(place, server, url, client)
                    for number, (title, sentence, work) in enumerate(STEPS, 1):
                        heading(number, title, sentence)
                        await work(walk)
    except Exception as error:
        told = str(error) if isinstance(error, Unexpected | ClientError | OSError) else ""
        print(f"\nFAILED at step {number}, {title}: {escape_invisible(told or repr(error))}", file=sys.stderr)
        for line in said[-10:]:
            print(f"  server: {escape_invisible(line)}", file=sys.stderr)
        return 1
    return 0


def main() -> int:
    if len(sys.argv) > 2 or any(arg.startswith("-") for arg in sys.argv[1:]):
        print((usage or "").strip(), file=sys.stderr)
        return 2
    pack = Path(sys.argv[1]) if len(sys.argv) == 2 else PACK
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="manglecp-demo-") as folder:
        try:
            status = asyncio.run(walk_through(Path(folder), pack))
        except KeyboardInterrupt:
            return 130
    if status == 0:
        print(f"\nAll {len(STEPS)} steps did what they should, in {time.monotonic() - began:.1f} s.")
    return status


if __name__ == "__main__":
    sys.exit(main())
