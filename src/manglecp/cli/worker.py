"""``manglecp worker``: resume runs whose process ended."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Final

import click

from manglecp import invoke, server
from manglecp.cli.files import option
from manglecp.cli.options import PACK, RuntimeOptions, runtime_options, tokens_option
from manglecp.cli.output import ProgressLine, count, print_stderr
from manglecp.cli.serve import AuthOptions
from manglecp.store import RunState, Store

_MAX_COUNTED_RUNS: Final = 100


@click.command("worker")
@click.argument("folders", metavar="PACK...", nargs=-1, required=True, type=PACK)
@option("--at-once N", type=click.IntRange(min=1), default=4, help="Maximum of concurrent runs; 4 by default.")
@option("--once", is_flag=True, help="Resume the runs that are available now, then exit.")
@tokens_option
@runtime_options
def command(folders: tuple[Path, ...], at_once: int, once: bool, tokens: Path | None, runtime: RuntimeOptions) -> None:
    """Resume runs of these PACKs whose process ended, until a signal stops the worker.

    Any number of workers may share a store, also from several machines: one worker at a time owns a run. A worker
    resumes only runs of the pack revisions that it has loaded. After SIGTERM or Ctrl-C a worker finishes its current
    runs; a second signal ends the worker at once, and another worker resumes the runs. Runs of clients with a token
    need the server's --tokens: a token that the worker does not find is not valid.
    """
    auth = AuthOptions(tokens, jwt=None).load()
    with _log_to_stderr():
        asyncio.run(_run_worker(folders, runtime, auth, at_once=at_once, once=once))


@contextlib.contextmanager
def _log_to_stderr() -> Iterator[None]:
    logger, handler = logging.getLogger("manglecp"), logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    previous_level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(previous_level)


async def _run_worker(
    folders: tuple[Path, ...], runtime: RuntimeOptions, auth: server.AuthConfig, *, at_once: int, once: bool
) -> None:
    async with contextlib.AsyncExitStack() as stack:
        with ProgressLine("loading"):
            pack_options = list(map(runtime.for_pack, folders))
            packs = await stack.enter_async_context(
                invoke.open_packs(pack_options, runtime.open_store, refresh_identity=auth.current)
            )
        worker = invoke.Worker(packs.invokers, at_once=at_once)
        _stop_on_signals(worker.stop)
        if once:
            run_lists = await asyncio.gather(*(worker.drain() for _ in range(at_once)))
            executed_runs = {run for runs in run_lists for run in runs}
            undecided_runs = await asyncio.to_thread(_find_undecided, packs.store, executed_runs)
            print_stderr(f"{count(len(executed_runs - undecided_runs), 'run')} resumed")
            if undecided_runs:
                names = ", ".join(sorted(undecided_runs))
                print_stderr(f"{count(len(undecided_runs), 'run')} in needs_decision: {names}")
            elif not executed_runs and (owned_count := await asyncio.to_thread(_count_owned, packs)):
                print_stderr(f"{count(owned_count, 'run')} still owned, until 15 s without a heartbeat")
            return
        domains = [invoker.domain for invoker in packs.invokers]
        print_stderr(f"waiting for runs of {', '.join(f'{domain.pack.name} {domain.digest}' for domain in domains)}")
        await worker.run()


def _find_undecided(store: Store, runs: Collection[str]) -> set[str]:
    """Return the runs among ``runs`` that wait for a decision."""
    with store.read_transaction() as tx:
        views = [store.runs.show(tx, run) for run in runs]
    return {view.run.run_id for view in views if view is not None and view.run.state == RunState.NEEDS_DECISION}


def _count_owned(packs: invoke.OpenPacks) -> int:
    """Count the unfinished runs of these packs, up to a limit; the process that owns a run may have ended."""
    digests = {invoker.domain.digest for invoker in packs.invokers}
    with packs.store.read_transaction() as tx:
        runs = packs.store.runs.list(tx, RunState.RUNNING, _MAX_COUNTED_RUNS)
    return sum(run.pack_digest in digests for run in runs)


def _stop_on_signals(stop: Callable[[], None]) -> None:
    """Call ``stop`` on the first signal; the second ends the process."""
    loop = asyncio.get_running_loop()
    signals = (signal.SIGTERM, signal.SIGINT)

    def drain() -> None:
        print_stderr("stopping after the current runs")
        for signal_number in signals:
            loop.remove_signal_handler(signal_number)
            signal.signal(signal_number, signal.SIG_DFL)
        stop()

    with contextlib.suppress(ValueError, RuntimeError):  # only the main thread can handle signals
        for signal_number in signals:
            loop.add_signal_handler(signal_number, drain)
