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

from manglecp.cli.options import PACK, RuntimeOptions, report_pack_errors, runtime_options

if TYPE_CHECKING:
    from manglecp.invoke import OpenPacks
    from manglecp.store import Store

_MAX_LISTED: Final = 100
_MAX_DETAIL: Final = 2_000  # characters of a failure's detail, from its end


@click.command("worker")
@click.argument("folders", metavar="PACK...", nargs=-1, required=True, type=PACK)
@click.option(
    "--at-once", metavar="N", type=click.IntRange(min=1), default=4, help="Maximum of concurrent runs; 4 by default."
)
@click.option("--once", is_flag=True, help="Resume the runs that are available now, then exit.")
@runtime_options
def command(folders: tuple[Path, ...], at_once: int, once: bool, runtime: RuntimeOptions) -> None:
    """Resume runs of these PACKs whose process ended, until a signal stops the worker.

    Any number of workers may share a store, also from several machines: one worker at a time owns a run. A worker
    resumes only runs of the pack revisions that it has loaded. After SIGTERM or Ctrl-C it finishes its current runs;
    a second signal ends it immediately, and another worker resumes them.
    """
    with _logged(), report_pack_errors():
        asyncio.run(_work(folders, runtime, at_once=at_once, once=once))


@contextlib.contextmanager
def _logged() -> Iterator[None]:
    logger, handler = logging.getLogger("manglecp"), logging.StreamHandler()
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
    from manglecp.cli.output import ProgressLine, count
    from manglecp.invoke import Worker, open_packs

    async with contextlib.AsyncExitStack() as stack:
        with ProgressLine("loading"):
            packs = list(map(runtime.of_pack, folders))
            opening = open_packs(packs, runtime.open_store, on_failure=_log_failure)
            opened = await stack.enter_async_context(opening)
        worker = Worker(opened.invokers, at_once=at_once)
        _stop_on_signals(worker.stop)
        if once:
            drained = await asyncio.gather(*(worker.drain() for _ in range(at_once)))
            taken = {run for runs in drained for run in runs}
            waiting = await asyncio.to_thread(_undecided, opened.store, taken)
            click.echo(f"{count(len(taken - waiting), 'run')} resumed", err=True)
            if waiting:
                click.echo(f"{count(len(waiting), 'run')} in needs_decision: {', '.join(sorted(waiting))}", err=True)
            elif not taken and (owned := await asyncio.to_thread(_count_owned, opened)):
                click.echo(f"{count(owned, 'run')} still owned, until 15 s without a heartbeat", err=True)
            return
        names = ", ".join(f"{one.domain.pack.name} {one.domain.digest}" for one in opened.invokers)
        click.echo(f"waiting for runs of {names}", err=True)
        await worker.run()


def _log_failure(action: str, detail: str) -> None:
    """Log the detail of a failed action, which clients do not get."""
    from manglecp.base.text import escape_invisible

    logging.getLogger("manglecp.worker").warning(
        "%s: %s", action, escape_invisible(" ".join(detail.split())[-_MAX_DETAIL:])
    )


def _undecided(store: Store, runs: Collection[str]) -> set[str]:
    from manglecp.store import RunState

    with store.read_transaction() as tx:
        views = [store.runs.show(tx, run) for run in runs]
    return {one.run.run_id for one in views if one is not None and one.run.state == RunState.NEEDS_DECISION}


def _count_owned(opened: OpenPacks) -> int:
    """Count the runs of these packs that have an owner, whose process may have ended."""
    from manglecp.store import RunState

    digests = {one.domain.digest for one in opened.invokers}
    with opened.store.read_transaction() as tx:
        return sum(run.pack_digest in digests for run in opened.store.runs.list(tx, RunState.RUNNING, _MAX_LISTED))


def _stop_on_signals(stop: Callable[[], None]) -> None:
    """Drain on the first signal; the second has its default effect."""
    loop = asyncio.get_running_loop()
    signals = (signal.SIGTERM, signal.SIGINT)

    def drain() -> None:
        click.echo("stopping after the current runs", err=True)
        for one in signals:
            loop.remove_signal_handler(one)
            signal.signal(one, signal.SIG_DFL)
        stop()

    with contextlib.suppress(ValueError, RuntimeError):  # not in the main thread, which gets the signals
        for one in signals:
            loop.add_signal_handler(one, drain)
