"""``@action`` and ``@external``: declarations that make a function callable from outside.

The tier of an action is the highest tier of its effects; an unknown effect is dangerous:

    0  safe        nothing changes
    1  write       files, databases and pages change
    2  system      other machines and processes take part
    3  dangerous   money, identities, what cannot be undone, and everything unknown

``mutates=False`` declares a whole action read-only. It lowers effects that can be reads, and is refused for others. An
action that starts programs can be read-only, unless it also uses the network: hosts of packs enforce it
(:mod:`manglecp.toolhost.action_hosts`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple, TypeVar

SAFE: Final = 0
WRITE: Final = 1
SYSTEM: Final = 2
DANGEROUS: Final = 3

_TIERS: Final = {
    "none": SAFE,
    "filesystem": WRITE,
    "database": WRITE,
    "browser": WRITE,
    "network": SYSTEM,
    "process": SYSTEM,
    "payments": DANGEROUS,
    "authentication": DANGEROUS,
    "destructive": DANGEROUS,
    # effects of the C++ toolhost
    "gpu_probe": SAFE,
    "process_introspection": SAFE,
    "network_io": SYSTEM,
    "proc_exec": SYSTEM,
    "process_spawn": SYSTEM,
    "dynamic_library_load": DANGEROUS,
}
_REMOTE: Final = frozenset({"browser", "network"})
_READABLE: Final = frozenset({"filesystem", "database"}) | _REMOTE
_STARTS: Final = frozenset({"process", "proc_exec", "process_spawn"})


def lease_tier(effects: Iterable[str], *, mutates: bool = True) -> int:
    """Return the highest tier of the effects; raises ValueError if ``mutates=False`` contradicts one."""
    tier, declared = SAFE, tuple(effects)
    # A program that reaches other machines cannot be kept from changing them.
    readable = _READABLE if not _REMOTE.isdisjoint(declared) else _READABLE | _STARTS
    for effect in declared:
        least = _tier(effect)
        if not mutates and least > SAFE:
            if effect not in readable:
                raise ValueError(f"an action with the effect {effect!r} cannot be declared with mutates=False")
            least = SAFE
        tier = max(tier, least)
    return tier


def _tier(effect: str) -> int:
    if effect in _TIERS:
        return _TIERS[effect]
    if effect.startswith("x-"):  # a foreign effect, with any suffix
        return DANGEROUS
    if effect.endswith("_read"):
        return SAFE
    if effect.endswith(("_write", "_delete")):
        return WRITE
    return DANGEROUS


_ATTRIBUTE: Final = "__manglecp_action__"
_SERVED: Final = "__manglecp_served__"


def starts_programs(effects: object) -> bool:
    """Return whether one of the declared effects is to start programs."""
    return isinstance(effects, (list, tuple)) and not _STARTS.isdisjoint(effects)


F = TypeVar("F", bound=Callable[..., Any])


class Declaration(NamedTuple):
    effects: tuple[str, ...]
    tier: int
    reversible: bool
    idempotent: bool
    timeout: float | None
    mutates: bool
    spawn: tuple[str, ...]
    version: int
    deterministic: bool = False
    tags: tuple[str, ...] = ()
    replay_inputs: tuple[str, ...] = ()
    preview: str | None = None
    external: dict[str, Any] | None = None
    generator: dict[str, Any] | None = None


def action(
    *,
    effects: Iterable[str],
    reversible: bool = False,
    idempotent: bool = False,
    timeout: float | None = None,
    mutates: bool = True,
    spawn: Iterable[str] = (),
    version: int = 1,
    deterministic: bool = False,
    tags: Iterable[str] = (),
    replay_inputs: Iterable[str] = (),
    preview: str | None = None,
) -> Callable[[F], F]:
    """Declare a typed function as an action; it stays callable as before.

        @action(effects=["filesystem"], reversible=True)
        def apply_patch(path: str, patch: str, *, dry_run: bool = False) -> PatchResult: ...

    ``effects`` are required: they decide the lease tier. ``mutates=False`` declares the action read-only, programs that
    it starts included; ``timeout`` is in seconds; ``spawn`` names the only binaries that it may execute, by name or
    absolute path; ``version`` is the last part of its action id. ``deterministic`` declares that the same input and
    slots give the same result, ``replay_inputs`` what else that depends on, and ``tags`` the menus that it may appear
    on. ``preview`` names a read-only action whose result approvers see: it gets those inputs that it has parameters
    for, and members of its result that are parameters of this action become its inputs.
    """
    lists = {"effects": effects, "spawn": spawn, "tags": tags, "replay_inputs": replay_inputs}
    for name, values in lists.items():
        if isinstance(values, str):
            raise TypeError(f"{name} is a list of strings, not a string")
    declared, programs, fences = tuple(effects), tuple(spawn), tuple(replay_inputs)
    if timeout is not None and not 0 < timeout < float("inf"):
        raise ValueError("timeout has to be a number of seconds above 0")
    if version < 1:
        raise ValueError("versions count from 1")
    check_programs(programs)
    if programs and not starts_programs(declared):
        raise ValueError("spawn: an action that starts programs has the effect 'process'")
    if deterministic and not fences and any(effect != "none" for effect in declared):
        raise ValueError("deterministic and with effects: replay_inputs has to name what the result depends on")
    declared_as = Declaration(
        declared,
        lease_tier(declared, mutates=mutates),
        reversible,
        idempotent,
        timeout,
        mutates,
        programs,
        version,
        deterministic,
        tuple(tags),
        fences,
        preview,
    )

    return lambda function: mark(function, declared_as)


def check_programs(programs: Iterable[str]) -> None:
    for program in programs:
        if not program or ("/" in program and not program.startswith("/")):
            raise ValueError(f"spawn: {program!r} is neither a name nor an absolute path")


def mark(function: F, declared: Declaration) -> F:
    setattr(function, _ATTRIBUTE, declared)
    return function


def serve_with(function: F, replacement: Callable[..., Any], declared: Declaration) -> F:
    """Make a host serve ``replacement`` in place of a function, under its name."""
    for name in ("__name__", "__module__", "__doc__"):
        setattr(replacement, name, getattr(function, name))
    setattr(function, _SERVED, mark(replacement, declared))
    return function


def served_function(candidate: Any) -> Any:
    """Return the replacement set by :func:`serve_with`, or the candidate itself."""
    try:
        found = getattr(candidate, _SERVED, None)
    except Exception:  # other objects of a module may raise here
        return candidate
    return candidate if found is None else found


def declaration(candidate: object) -> Declaration | None:
    try:
        declared = getattr(candidate, _ATTRIBUTE, None)
    except Exception:  # other objects of a module may raise here
        return None
    return declared if isinstance(declared, Declaration) and callable(candidate) else None


_SIGNATURE: Final = re.compile(
    r"([a-z][A-Za-z0-9_]*)\(\s*([A-Z][A-Za-z0-9_]*(?:\s*,\s*[A-Z][A-Za-z0-9_]*)*)\s*\)", re.ASCII
)
_COROUTINE: Final = 0x80 | 0x200
_MAX_SECONDS: Final = 3_600
_NOT_ROWS: Final = (str, bytes, bytearray, dict)


def external(
    signature: str, *, mode: str, deterministic: bool = True, seconds: float = 5.0, batch: bool = False
) -> Callable[[F], F]:
    """Declare a function as an external predicate of the rules.

        @external("similar_failure(Text, Count, Id)", mode="++-", deterministic=False, seconds=2)
        def similar_failure(text: str, count: int) -> Iterable[tuple[str]]: ...

    The function gets the values at ``+`` and returns rows of the values at ``-``; with one ``-``, a row may be the bare
    value. With ``batch=True`` it gets a list of tuples and returns as many lists of rows. Values are plain JSON, in the
    form of the predicate's declaration. ``deterministic=False`` declares that answers may change; ``seconds`` is the
    time for all questions of one evaluation round. A host serves it as an action of tier 0; it declares no effects.
    """
    read = _SIGNATURE.fullmatch(signature)
    if read is None:
        raise ValueError(f"{signature!r} is not a predicate with variables, such as similar_failure(Text, Id)")
    predicate, arguments = read[1], [word.strip() for word in read[2].split(",")]
    if len(set(arguments)) < len(arguments):
        raise ValueError(f"{signature}: a variable is repeated")
    if len(mode) != len(arguments) or set(mode) - {"+", "-"}:
        raise ValueError(f"{predicate}: mode has a + or - for each of the {len(arguments)} arguments")
    if isinstance(seconds, bool) or not 0 < seconds <= _MAX_SECONDS:
        raise ValueError(f"{predicate}: seconds have to be above 0 and at most {_MAX_SECONDS}")
    description = {
        "predicate": predicate,
        "arguments": arguments,
        "mode": mode,
        "deterministic": bool(deterministic),
        "seconds": seconds,
    }

    def decorate(function: F) -> F:
        code = getattr(function, "__code__", None)
        if code is None or code.co_flags & _COROUTINE:
            raise TypeError(f"{predicate}: the decorated function has to be a plain one")
        declared = Declaration((), 0, False, True, seconds, False, (), 1, external=description)
        return serve_with(function, _row_action(function, mode, batch), declared)

    return decorate


def _row_action(function: Callable[..., Any], mode: str, batch: bool) -> Callable[..., Any]:
    inputs_count, outputs_count = mode.count("+"), mode.count("-")

    def answer(inputs: list[list[Any]]) -> dict[str, Any]:
        questions = [tuple(question) for question in inputs]
        if any(len(question) != inputs_count for question in questions):
            raise ValueError(f"a question has {inputs_count} values")
        answers = list(function(questions)) if batch else [function(*question) for question in questions]
        if len(answers) != len(questions):
            raise ValueError(f"{len(answers)} answers to {len(questions)} questions")
        return {"rows": [[_row(row, outputs_count) for row in _rows(rows)] for rows in answers]}

    return answer


def _rows(rows: Any) -> Any:
    """Return the rows; raises TypeError for text, bytes and mappings, which are iterable, too."""
    if isinstance(rows, _NOT_ROWS):
        raise TypeError(f"an answer is a list of rows, not a {type(rows).__name__}")
    return rows


def _row(row: Any, count: int) -> list[Any]:
    if count != 1 and isinstance(row, _NOT_ROWS):
        raise TypeError(f"a row is a tuple of {count} values, not a {type(row).__name__}")
    values = list(row) if isinstance(row, tuple) or count != 1 else [row]
    if len(values) != count:
        raise ValueError(f"a row has {count} values, not {len(values)}")
    return values
