"""Throw broken programs at the language: nothing but a MangleError may come out.

    python tests/fuzz/fuzz_parser.py --count 1000000 --seed 1

An input is known by its number: input ``n`` is the same in every run, so what is printed on a failure can be repeated
with ``--seed n --count 1``.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from pathlib import Path
from typing import Final

from manglecp.mangle import Limits, MangleError, Program, decode, parse
from tests.mangle.naive import evaluate

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))  # a script knows only its own folder

from tests.fuzz import inputs

LIMITS: Final = Limits(derived_facts=300, intervals=20, merge_steps=200, call_depth=100)
LOADED: Final = 8
"""One input in so many is loaded as a program and not only parsed."""
EVALUATED: Final = 2
"""One loaded input in so many is evaluated as well."""


class Crash(Exception):
    """Something other than a MangleError."""

    def __init__(self, number: int, data: bytes, cause: BaseException) -> None:
        details = "".join(traceback.format_exception(cause))
        super().__init__(f"input {number} is {data!r}\n{details}")


def generate(number: int) -> bytes:
    return inputs.program(number) if number % LOADED == 0 else inputs.text(number)


def check(number: int, data: bytes) -> None:
    """Run one input as far as it is meant to go."""
    try:
        source = decode(f"input-{number}.mg", data)
        if number % LOADED:
            parse(source)
            return
        program = Program.load([source], bounds="off" if number % 3 == 0 else "error")
        if number % (LOADED * EVALUATED) == 0:
            evaluate(program, now=1_768_478_400_000_000_000, limits=LIMITS).facts()
    except MangleError as error:
        sound(error)


def sound(error: MangleError) -> None:
    """What every error must have, whatever the program: a rendering, one stage, places inside the text."""
    assert error.render()
    assert error.diagnostics
    for diagnostic in error.diagnostics:
        assert diagnostic.code == error.stage
        if diagnostic.span is not None:
            assert 0 <= diagnostic.span.start <= diagnostic.span.end <= len(diagnostic.span.source.text)


def run(first: int, count: int, *, progress: bool = False) -> None:
    """Inputs ``first`` up to ``first + count``; a :class:`Crash` for the first that goes wrong."""
    started = said = time.monotonic()
    for number in range(first, first + count):
        data = generate(number)
        try:
            check(number, data)
        except Exception as cause:
            raise Crash(number, data, cause) from cause
        if progress and (now := time.monotonic()) - said >= 2:
            said = now
            done = number - first + 1
            print(f"{done:,} of {count:,} inputs, {done / (now - started):,.0f} per second", flush=True)


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--count", type=int, default=100_000, help="how many inputs")
    options.add_argument("--seed", type=int, default=0, help="the number of the first input")
    given = options.parse_args()
    try:
        run(given.seed, given.count, progress=True)
    except Crash as crash:
        print(crash, file=sys.stderr)
        return 1
    print(f"{given.count:,} inputs, no crash")
    return 0


if __name__ == "__main__":
    sys.exit(main())
