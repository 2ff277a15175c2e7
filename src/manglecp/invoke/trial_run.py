"""A turn on trial: would a pack's policy package let any turn of a server close?

A server's turns show what they show: one queue, one view, one place where results are told, one sandbox that its hosts
run in. A package that demands something else is in itself in order, and fails every turn. So one turn, the shortest
there is, is made and judged when the pack is opened. What is refused then costs nothing; in the middle of a run it
would leave effects that nobody can account for.

Only what is true of every run is refused. A package that admits no parallel steps, or no effects, is a choice.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from manglecp.base.diagnostic import Diagnostic
from manglecp.harness import digest_v1 as digest
from manglecp.harness.policy import TIERS, PolicyPackage
from manglecp.invoke.call_spec import ChainTerms, RunTerms
from manglecp.invoke.gate import GateRefused, Turns
from manglecp.pack import FOLDER, Pack, PackError, Profile, default_governance, pack_problem

__all__ = ["refuse_unusable", "trial"]

_Pattern: TypeAlias = Literal["single", "chain", "parallel"]
_PATTERNS: Final[tuple[_Pattern, ...]] = ("single", "chain", "parallel")
_NOTHING: Final = digest("a turn on trial")
_FIX: Final = "ask for the queue events, the view run and the injection point invoke_response, or for none"


def refuse_unusable(pack: Pack, package: PolicyPackage, sandbox: Profile) -> None:
    """:class:`PackError` if no run of this pack could ever end well under this package."""
    if problems := trial(pack, package, sandbox):
        raise PackError(problems)


def trial(pack: Pack, package: PolicyPackage, sandbox: Profile) -> tuple[Diagnostic, ...]:
    """What is wrong with the package. ``sandbox`` is the profile that the hosts of the pack run in."""
    return (*_sandbox(package, sandbox), *_turns(pack, package))


def _sandbox(package: PolicyPackage, used: Profile) -> tuple[Diagnostic, ...]:
    """What a pack says itself has to be so. The shipped package speaks for nobody's hosts."""
    promised = package.contents.get("sandbox", {}).get("profile", used)
    if promised == used or package.digest == default_governance().digest:
        return ()
    message = f"profile: turns would be bound to the sandbox {promised}, and the hosts run in {used}"
    fix = f'write profile = "{used}", or have the hosts run in {promised}'
    return (pack_problem(f"{FOLDER}/sandbox", message, fix=fix),)


def _turns(pack: Pack, package: PolicyPackage) -> tuple[Diagnostic, ...]:
    refused = sorted({name for tier in TIERS for name in _classes(pack, package, tier)})
    if not refused:
        return ()
    message = f"no turn of a server would close under this policy package: {', '.join(refused)}"
    shown = any(name.startswith("context.") for name in refused)
    return (pack_problem(f"{FOLDER}/", message, fix=_fix(pack, package) if shown else None),)


def _fix(pack: Pack, package: PolicyPackage) -> str:
    batch = package.contents["queue"].get("maxBatchSize")
    if batch is None or batch >= _most_events(pack):
        return _FIX
    return f"a run tells up to {_most_events(pack)} events: raise maxBatchSize, or lower [invocation] max_events to it"


def _most_events(pack: Pack) -> int:
    return pack.settings.invocation.max_events


def _classes(pack: Pack, package: PolicyPackage, tier: str) -> tuple[str, ...]:
    """What keeps a turn of this tier from closing; nothing if there is a shape of run that it closes for."""
    first: tuple[str, ...] | None = None
    for pattern in _PATTERNS:
        found = _refusal(pack, package, tier, pattern)
        if found is None:
            return ()
        first = first or found
    return first or ()


def _refusal(pack: Pack, package: PolicyPackage, tier: str, pattern: _Pattern) -> tuple[str, ...] | None:
    """The shortest turn, the admission and the end, with as many events as a run may have to tell."""
    events = [{"action": "trial", "status": "success", "detail": str(n)} for n in range(_most_events(pack))]
    chain = ChainTerms(
        model_ref=f"rules:{pack.name}@{pack.settings.version}",
        package=package,
        pinned=pack.settings.governance_digest or package.digest,
        actions={},
        plugin_digest=_NOTHING,
        gates=0,
        risk_tier=tier,
        pattern=pattern,
    )
    try:
        turn = Turns(RunTerms("trial", _NOTHING, "confirm:trial", chain)).open()
        turn.admit()
        turn.finish(events=events)
    except GateRefused as refused:
        return refused.classes or (str(refused),)
    return None
