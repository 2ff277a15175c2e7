"""``manglecp runs resume``: carry out, here and now, a run that nobody carries out any more."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import click

from manglecp.cli.asking import refuse_pack
from manglecp.cli.packs import PACK
from manglecp.cli.places import Place, place_options
from manglecp.cli.stores import operator_option, refusing

if TYPE_CHECKING:
    from manglecp.store import Store

__all__ = ["resume"]


@click.command("resume", short_help="Carry out a run here that nobody else carries out.")
@click.argument("run", metavar="RUN")
@click.argument("folder", metavar="PACK", type=PACK)
@operator_option
@place_options
@click.option("--json", "as_json", is_flag=True, help="Print the message of the protocol instead.")
def resume(
    run: str,
    folder: Path,
    by: str,
    place: Place,
    as_json: bool,
) -> None:
    """Carry out RUN here, with the PACK that it belongs to, if nobody else does; print what came of it.

    A run that waits for a decision with nothing in doubt is let go on: that is a decision too, and an entry in the
    ledger under your name. Ctrl-C cancels between two steps. The exit status is 0 if the run succeeded, 130 if it was
    cancelled, else 1.
    """
    from manglecp.pack import PackError

    with refusing():
        try:
            status = asyncio.run(_resume(run, folder, by, place, as_json=as_json))
        except PackError as error:
            refuse_pack(error)
    raise click.exceptions.Exit(status)


async def _resume(run: str, folder: Path, by: str, place: Place, *, as_json: bool) -> int:
    from manglecp.cli.calling import hearing, interruptible, print_answer, status_of
    from manglecp.cli.outputs import Progress
    from manglecp.invoke import decoded, open_packs

    overheard: list[str] = []
    with Progress("loading") as progress:
        async with open_packs([folder], on_failure=hearing(overheard), **place) as opened:
            (invoker,) = opened.invokers
            identity = _ready(opened.store, run, invoker.domain.digest, by)
            progress.doing = "running"
            with interruptible() as cancel:
                asking = asyncio.create_task(_ask_to_cancel(cancel, opened.store, run, identity))
                try:
                    taken = await invoker.take_over(run)
                finally:
                    asking.cancel()
            if taken is None:
                _ready(opened.store, run, invoker.domain.digest, by)
                raise click.ClickException(f"run {run} was taken up by somebody else just now")
            with opened.store.read_transaction() as tx:
                kept = opened.store.runs.answer(tx, run)
    if kept is None:
        raise click.ClickException(f"run {run} is over, and its answer is kept no longer")
    answer = decoded(kept)
    print_answer(answer, as_json=as_json, overheard=overheard)
    return status_of(answer)


async def _ask_to_cancel(cancel: asyncio.Event, store: Store, run: str, identity: str) -> None:
    """As anybody would who has the run: whoever carries it out reads it with the next step."""
    await cancel.wait()
    with store.write_transaction() as tx:
        store.runs.ask_cancel(tx, run, identity)


def _ready(store: Store, run: str, digest: str, by: str) -> str:
    """Can it be claimed here? Then whose it is; if not, say why, and what to do."""
    from manglecp.invoke import decide, doubted_step
    from manglecp.store import NoRun, NotOpen, RunState

    with store.read_transaction() as tx:
        shown = store.runs.show(tx, run)
        now_ms = tx.now_ms()
    if shown is None:
        raise NoRun(run)
    found = shown.run
    if found.state not in (RunState.RUNNING, RunState.NEEDS_DECISION):
        raise NotOpen(f"run {run} is over: it {found.state.value.replace('cancelled', 'was cancelled')}")
    if found.pack_digest != digest:
        raise NotOpen(
            f"run {run} belongs to another edition of the pack, or to another pack: {found.pack_digest}. "
            "Give the files as they were then, with the same --set"
        )
    if found.state == RunState.NEEDS_DECISION:
        doubted = doubted_step(shown)
        if doubted is not None:
            raise NotOpen(f"step {doubted} of run {run} is in doubt: see `manglecp runs show {run}`, and decide first")
        decide(store, run, "resume", by)
    elif found.claim_until_ms > now_ms:
        seconds = -(-(found.claim_until_ms - now_ms) // 1_000)
        raise NotOpen(f"run {run} is carried out by {found.owner}; if that process is gone, try again in {seconds} s")
    return found.identity
