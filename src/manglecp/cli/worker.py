"""``manglecp worker``: resume runs whose process is gone."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from manglecp.cli.options import PACK, RuntimeOptions, refusing_packs, runtime_options

if TYPE_CHECKING:
    from manglecp.invoke import OpenPacks
    from manglecp.store import Store

_MOST_CLAIMED: Final = 100
_LONGEST: Final = 2_000  # characters of a failure's detail, from its end


@click.command("worker")
@click.argument("folders", metavar="PACK...", nargs=-1, required=True, type=PACK)
@click.option(
    "--at-once", metavar="N", type=click.IntRange(min=1), default=4, help="How many runs at a time; 4 by default."
)
@click.option("--once", is_flag=True, help="Carry out what is there now, then end.")
@runtime_options
def command(
    folders: tuple[Path, ...],
    at_once: int,
    once: bool,
    runtime: RuntimeOptions,
) -> None:
    """Carry out runs of these PACKs that nobody carries out any more, until it is told to stop.

    Start as many workers as you like, on as many machines as see the store: a run is claimed by one of them at a time.
    A worker takes up runs of exactly the editions of the packs that it has loaded. SIGTERM and Ctrl-C end it when the
    runs under way are over; a second one ends it at once, and another worker goes on.
    """
    with _logged(), refusing_packs():
        asyncio.run(_work(folders, runtime, at_once=at_once, once=once))


class _EchoHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        click.echo(self.format(record), err=True)


@contextlib.contextmanager
def _logged() -> Iterator[None]:
    logger, handler = logging.getLogger("manglecp"), _EchoHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


async def _work(folders: tuple[Path, ...], runtime: RuntimeOptions, *, at_once: int, once: bool) -> None:
    from manglecp.cli.output import Progress, count
    from manglecp.invoke import Worker, open_packs

    async with contextlib.AsyncExitStack() as stack:
        with Progress("loading"):
            packs = list(map(runtime.of_pack, folders))
            opening = open_packs(packs, runtime.open_store, on_failure=_log_failure)
            opened = await stack.enter_async_context(opening)
        worker = Worker(opened.invokers, at_once=at_once)
        _stop_on_signals(worker.stop)
        if once:
            drained = await asyncio.gather(*(worker.drain() for _ in range(at_once)))
            taken = {run for runs in drained for run in runs}
            waiting = await asyncio.to_thread(_undecided, opened.store, taken)
            click.echo(f"{count(len(taken - waiting), 'run')} carried out", err=True)
            if waiting:
                click.echo(f"{count(len(waiting), 'run')} left to a decision: {', '.join(sorted(waiting))}", err=True)
            elif not taken and (claimed := await asyncio.to_thread(_claimed, opened)):
                click.echo(f"{count(claimed, 'run')} still claimed, until its process was silent for 15 s", err=True)
            return
        names = ", ".join(f"{one.domain.pack.name} {one.domain.digest}" for one in opened.invokers)
        click.echo(f"waiting for runs of {names}", err=True)
        await worker.run()


def _log_failure(action: str, detail: str) -> None:
    """Log the detail of a failed action, which clients do not get."""
    from manglecp.base.text import escape_invisible

    logging.getLogger("manglecp.worker").warning(
        "%s: %s", action, escape_invisible(" ".join(detail.split())[-_LONGEST:])
    )


def _undecided(store: Store, runs: Collection[str]) -> set[str]:
    from manglecp.store import RunState

    with store.read_transaction() as tx:
        found = [store.runs.show(tx, run) for run in runs]
    return {one.run.run_id for one in found if one is not None and one.run.state == RunState.NEEDS_DECISION}


def _claimed(opened: OpenPacks) -> int:
    """Count the runs of these packs that a process owns, which may be gone."""
    from manglecp.store import RunState

    digests = {one.domain.digest for one in opened.invokers}
    with opened.store.read_transaction() as tx:
        return sum(run.pack_digest in digests for run in opened.store.runs.list(tx, RunState.RUNNING, _MOST_CLAIMED))


def _stop_on_signals(stop: Callable[[], None]) -> None:
    """Drain on the first signal; the second has its default effect."""
    loop = asyncio.get_running_loop()
    asking = (signal.SIGTERM, signal.SIGINT)

    def ask() -> None:
        click.echo("stopping when the runs under way are over", err=True)
        for one in asking:
            loop.remove_signal_handler(one)
            signal.signal(one, signal.SIG_DFL)
        stop()

    with contextlib.suppress(ValueError, RuntimeError):  # not in the main thread, which gets the signals
        for one in asking:
            loop.add_signal_handler(one, ask)
