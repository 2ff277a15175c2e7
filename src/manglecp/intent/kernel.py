"""The kernel's rules (``rules/``) and the owners of predicates.

The rules are loaded in front of every pack, at the highest trust. Each predicate of the kernel belongs to one trust
level: a pack may read it, but a clause for it from a less trusted level is an error, and clients may not state it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Final

from manglecp.base.diagnostic import Diagnostic
from manglecp.base.source import Source, Trust
from manglecp.mangle import Key, Program, parse
from manglecp.mangle.syntax import Unit
from manglecp.wire import direction_of

ASSERTED: Final = frozenset(
    {
        *("intent", "intent_param", "client", "client_permission", "client_trust"),
        *("action", "action_effect", "action_tier", "action_param", "skill", "setting", "permitted_only"),
        *("run_id", "run_of", "ran", "run_arg", "step_status", "step_value", "bulk_asserted", "bulk_retracted"),
    }
)
"""Stated by the kernel: when a pack is loaded, for a request, or during a run."""

DERIVED: Final = frozenset({"macro_effect", "candidate", "excluded", "chosen", "final_selected", "offered"})
"""Derived by the kernel's rules; pack authors may read them."""

DENIALS: Final = frozenset({"intent_denied", "fact_denied"})

POLICY: Final = DENIALS | {"prohibited", "permitted", "effect_denied"}  # only policy may derive these

SINGLE_VALUED: Final = {
    "macro": 1,
    "macro_summary": 1,
    "macro_param": 2,
    "macro_step": 2,
    "arg_value": 3,
    "arg_from": 3,
    "arg_step": 3,
    "arg_kept": 3,
    "macro_result": 2,
    "macro_output": 1,
    "on_error": 2,
    "undo_step": 2,
    "undo_value": 3,
    "undo_in": 3,
    "undo_out": 3,
}
"""Columns of the key of predicates that have one value per key. A tool with two is not offered."""


@cache
def kernel_sources() -> tuple[Source, ...]:
    folder = files(__package__).joinpath("rules")
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".mg"))
    return tuple(Source(f"kernel/{n}", folder.joinpath(n).read_text("utf-8"), Trust.KERNEL) for n in names)


@cache
def kernel_units() -> tuple[Unit, ...]:
    return tuple(map(parse, kernel_sources()))


def _names() -> tuple[frozenset[str], frozenset[str]]:
    units = kernel_units()
    ruled = {clause.head.predicate for unit in units for clause in unit.clauses}
    return frozenset(ruled | {decl.atom.predicate for unit in units for decl in unit.decls}), frozenset(ruled)


def _owners() -> dict[str, Trust]:
    owners = dict.fromkeys(PREDICATES, Trust.DOMAIN)
    owners.update(dict.fromkeys(_RULED - _SHARED, Trust.KERNEL))
    owners.update(dict.fromkeys(ASSERTED | DERIVED, Trust.KERNEL))
    owners.update(dict.fromkeys(POLICY, Trust.POLICY))
    return owners


_SHARED: Final = frozenset({"needs_confirmation"})  # the kernel adds to these, and a pack may, too

PREDICATES, _RULED = _names()

CLOSED: Final = PREDICATES - {"bulk_asserted", "bulk_retracted"}
"""Clients may not state these. A large delta is summarised as the two excluded predicates."""

OWNERS: Final = _owners()


# A predicate belongs to the level that the kernel or its declaration names, else to that of its most trusted clause.
# Fact files have at most the domain's trust and clients have none (EVAL-41), so neither may add to predicates of policy
# or above.


def owners(program: Program) -> Mapping[Key, Trust]:
    """Return the owner of every predicate that does not belong to the domain."""
    found: dict[Key, Trust] = {}
    for clause in (*(rule.clause for rule in program.rules), *(fact.clause for fact in program.facts)):
        if clause.span is not None:
            key = clause.head.key
            found[key] = min(found.get(key, Trust.DOMAIN), clause.span.source.trust)
    for key, predicate in program.predicates.items():
        owner = OWNERS.get(key[0], predicate.owner)
        if owner is not None:
            found[key] = owner
    return {key: owner for key, owner in found.items() if owner < Trust.DOMAIN}


def published_above(program: Program, owned: Mapping[Key, Trust]) -> Iterator[Diagnostic]:
    """Yield an error for each predicate that clients may state although policy or the kernel owns it."""
    for key, owner in sorted(owned.items()):
        predicate = program.predicates[key]
        if key[0] in PREDICATES or predicate.decl is None or direction_of(predicate) not in ("input", "both"):
            continue
        descriptor = next(one for one in predicate.decl.descr if one.predicate == "direction")
        message = f"{key[0]} belongs to {owner.label}, so that no client may state it"
        fix = 'write direction("output"), or let clients state another predicate that policy reads'
        yield Diagnostic("analysis", message, descriptor.span, None, fix)
