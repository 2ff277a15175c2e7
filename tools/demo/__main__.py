"""Run the steps of the demo in order, until one fails."""

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
from tools.demo.environment import Environment, ServerProcess
from tools.demo.steps import STEPS, DemoState
from tools.demo.terminal import StepFailed, heading

PACK: Final = Path(__file__).resolve().parents[2] / "examples" / "incident"
PATIENCE: Final = 120.0
"""The time limit of the whole demo in seconds; it usually takes a few."""


async def run_steps(folder: Path, pack: Path) -> int:
    number, title = 0, "Start"
    log: list[str] = []
    try:
        async with asyncio.timeout(PATIENCE):
            environment = Environment(folder, pack)
            async with ServerProcess.start(environment) as server:
                log = server.log
                url = await server.url()
                async with Client(url, token=environment.kim.token) as client:
                    demo = DemoState(environment, server, url, client)
                    for number, (title, sentence, work) in enumerate(STEPS, 1):
                        heading(number, title, sentence)
                        await work(demo)
    except Exception as error:
        message = str(error) if isinstance(error, StepFailed | ClientError | OSError) else ""
        print(f"\nFAILED at step {number}, {title}: {escape_invisible(message or repr(error))}", file=sys.stderr)
        for line in log[-10:]:
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
            status = asyncio.run(run_steps(Path(folder), pack))
        except KeyboardInterrupt:
            return 130
    if status == 0:
        print(f"\nAll {len(STEPS)} steps did what they should, in {time.monotonic() - began:.1f} s.")
    return status


if __name__ == "__main__":
    sys.exit(main())
