"""The kernel (the rules of manglecp itself, in ``rules/``) and the owners of predicates.

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
        *("intent", "intent_param", "client", "client_permission", "client_trust", "stale_source"),
        *(
            "source_guards",
            "action",
            "action_effect",
            "action_tier",
            "action_param",
            "skill",
            "setting",
            "permitted_only",
        ),
        *("call", "call_arg", "call_value"),
        *("run_id", "ran", "step_status", "step_value", "bulk_asserted", "bulk_retracted"),
    }
)
"""Predicates whose facts manglecp asserts: when a pack is loaded, for a request, or during a run."""

DERIVED: Final = frozenset({"macro_effect", "candidate", "excluded", "chosen", "final_selected", "offered"})
"""Predicates that the kernel's rules derive, and that rules of a pack may read."""

POLICY: Final = frozenset({"intent_denied", "fact_denied", "prohibited", "permitted", "effect_denied", "public_reason"})
"""Predicates that only policy may derive."""

DECIDING: Final = POLICY | {"needs_confirmation", "needs_approval", "four_eyes"}
"""The predicates that decide about a call."""

SINGLE_VALUED: Final = {
    **dict.fromkeys(("macro", "macro_summary", "macro_output"), 1),
    **dict.fromkeys(("keep", "macro_param", "macro_step", "macro_result", "on_error", "undo_step"), 2),
    **dict.fromkeys(("arg_value", "arg_from", "arg_step", "arg_kept", "undo_value", "undo_in", "undo_out"), 3),
}
"""By predicate, the number of key columns, which come first.

Two facts with the same key are an error when the pack is loaded; if a request derives them, the tool is not offered.
"""


@cache
def kernel_sources() -> tuple[Source, ...]:
    folder = files(__package__).joinpath("rules")
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".mg"))
    return tuple(Source(f"kernel/{name}", folder.joinpath(name).read_text("utf-8"), Trust.KERNEL) for name in names)


@cache
def kernel_units() -> tuple[Unit, ...]:
    return tuple(map(parse, kernel_sources()))


_EXTENSIBLE: Final = frozenset({"needs_confirmation"})  # predicates of kernel rules to which a pack may add rules
_WITH_RULES: Final = frozenset(clause.head.predicate for unit in kernel_units() for clause in unit.clauses)
PREDICATES: Final = _WITH_RULES | {decl.atom.predicate for unit in kernel_units() for decl in unit.decls}

NOT_ASSERTABLE: Final = PREDICATES - {"bulk_asserted", "bulk_retracted"}
"""Kernel predicates that clients may not state.

The two subtracted predicates summarise a large delta of a run, and clients send them with their next request.
"""

OWNERS: Final = {
    **dict.fromkeys(PREDICATES, Trust.DOMAIN),
    **dict.fromkeys((_WITH_RULES - _EXTENSIBLE) | ASSERTED | DERIVED, Trust.KERNEL),
    **dict.fromkeys(POLICY, Trust.POLICY),
}


def owners(program: Program) -> Mapping[Key, Trust]:
    """Return the owner of every predicate that the kernel or policy owns.

    The owner is the trust level that the kernel or the declaration names, or else the level of the most trusted clause.
    Clients and fact files are trusted less (EVAL-41), so they cannot add facts to these predicates.
    """
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
