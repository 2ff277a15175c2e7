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
        *("call", "call_arg", "call_value"),
        *("run_id", "ran", "step_status", "step_value", "bulk_asserted", "bulk_retracted"),
    }
)
"""Stated by the kernel: when a pack is loaded, for a request, or during a run."""

DERIVED: Final = frozenset({"macro_effect", "candidate", "excluded", "chosen", "final_selected", "offered"})
"""Derived by the kernel's rules; pack authors may read them."""

POLICY: Final = frozenset({"intent_denied", "fact_denied", "prohibited", "permitted", "effect_denied", "public_reason"})
"""Only policy may derive these."""

DECIDING: Final = POLICY | {"needs_confirmation", "needs_approval", "four_eyes"}
"""The predicates that decide about a call."""

SINGLE_VALUED: Final = {
    **dict.fromkeys(("macro", "macro_summary", "macro_output"), 1),
    **dict.fromkeys(("keep", "macro_param", "macro_step", "macro_result", "on_error", "undo_step"), 2),
    **dict.fromkeys(("arg_value", "arg_from", "arg_step", "arg_kept", "undo_value", "undo_in", "undo_out"), 3),
}
"""By predicate, how many of its first columns are the key. Two values are an error at load, or remove the tool."""


@cache
def kernel_sources() -> tuple[Source, ...]:
    folder = files(__package__).joinpath("rules")
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".mg"))
    return tuple(Source(f"kernel/{name}", folder.joinpath(name).read_text("utf-8"), Trust.KERNEL) for name in names)


@cache
def kernel_units() -> tuple[Unit, ...]:
    return tuple(map(parse, kernel_sources()))


_SHARED: Final = frozenset({"needs_confirmation"})  # the kernel has rules for these, and a pack may have some, too
_RULED: Final = frozenset(clause.head.predicate for unit in kernel_units() for clause in unit.clauses)
PREDICATES: Final = _RULED | {decl.atom.predicate for unit in kernel_units() for decl in unit.decls}

CLOSED: Final = PREDICATES - {"bulk_asserted", "bulk_retracted"}
"""Clients may not state these. A large delta is summarised as the two excluded predicates, which clients send back."""

OWNERS: Final = {
    **dict.fromkeys(PREDICATES, Trust.DOMAIN),
    **dict.fromkeys((_RULED - _SHARED) | ASSERTED | DERIVED, Trust.KERNEL),
    **dict.fromkeys(POLICY, Trust.POLICY),
}


# A predicate belongs to the level that the kernel or its declaration names, else to that of its most trusted clause.
# Fact files have at most the domain's trust and clients have none (EVAL-41), so neither may add to predicates of policy
# or above.
def owners(program: Program) -> Mapping[Key, Trust]:
    """Return the owner of every predicate that does not belong to the domain."""
    owner_of: dict[Key, Trust] = {}
    for clause in (*(rule.clause for rule in program.rules), *(fact.clause for fact in program.facts)):
        key = clause.head.key
        owner_of[key] = min(owner_of.get(key, Trust.DOMAIN), clause.trust)  # lower is trusted more
    for key, predicate in program.predicates.items():
        owner = OWNERS.get(key[0], predicate.owner)
        if owner is not None:
            owner_of[key] = owner
    return {key: owner for key, owner in owner_of.items() if owner < Trust.DOMAIN}


def forbidden_inputs(program: Program, owned: Mapping[Key, Trust]) -> Iterator[Diagnostic]:
    """Yield an error for each predicate that clients may state although policy or the kernel owns it."""
    for key, owner in sorted(owned.items()):
        predicate = program.predicates[key]
        if key[0] in PREDICATES or predicate.decl is None or direction_of(predicate) not in ("input", "both"):
            continue
        direction = next(descriptor for descriptor in predicate.decl.descr if descriptor.predicate == "direction")
        message = f"{key[0]} belongs to {owner.label}, so that no client may state it"
        fix = 'write direction("output"), or let clients state another predicate that policy reads'
        yield Diagnostic("analysis", message, direction.span, fix=fix)
