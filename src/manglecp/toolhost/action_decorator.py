"""``@action``: what a function declares about itself, so that it can be called from outside.

    @action(effects=["filesystem"], reversible=True)
    def apply_patch(path: str, patch: str, *, dry_run: bool = False) -> PatchResult:
        '''Apply a unified diff to one file.'''

The function stays what it was and can be called as before. Effects have to be declared: an action that forgot them
would otherwise pass for one that has none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple, TypeVar

from manglecp.toolhost.effects import lease_tier

__all__ = ["Declaration", "action", "declaration", "mark", "serve_with", "serving"]

_ATTRIBUTE: Final = "__manglecp_action__"
_SERVED: Final = "__manglecp_served__"
_STARTS: Final = frozenset({"process", "proc_exec", "process_spawn"})
F = TypeVar("F", bound=Callable[..., Any])


class Declaration(NamedTuple):
    """What ``@action`` says beside what the function itself says."""

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
    external: dict[str, Any] | None = None
    """Of what serves an external predicate: which, and how it is asked."""
    generator: dict[str, Any] | None = None
    """Of what gives facts: which, and how often it is asked."""


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
) -> Callable[[F], F]:
    """Make an action of a typed function.

    ``effects`` decide the lease tier; ``mutates=False`` says that the action only reads; ``timeout`` is in seconds;
    ``spawn`` names the only binaries that it may execute, by name or absolute path; ``version`` is the last part of its
    action id. ``deterministic`` says that the same input and slots give the same result, ``replay_inputs`` of what else
    in the world that depends, and ``tags`` are the menus that it may appear on.
    """
    lists = {"effects": effects, "spawn": spawn, "tags": tags, "replay_inputs": replay_inputs}
    for name, values in lists.items():
        if isinstance(values, str):
            raise TypeError(f"{name} is a list of strings, not a string")
    declared, programs, fences = tuple(effects), tuple(spawn), tuple(replay_inputs)
    if timeout is not None and not 0 < timeout < float("inf"):
        raise ValueError("timeout is no number of seconds above 0")
    if version < 1:
        raise ValueError("versions count from 1")
    for program in programs:
        if not program or ("/" in program and not program.startswith("/")):
            raise ValueError(f"spawn: {program!r} is neither a name nor an absolute path")
    if programs and not _STARTS & set(declared):
        raise ValueError("spawn: an action that starts programs has the effect 'process'")
    if deterministic and not fences and any(effect != "none" for effect in declared):
        raise ValueError("deterministic and with effects: replay_inputs has to say what the result depends on")
    said = Declaration(
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
    )

    return lambda function: mark(function, said)


def mark(function: F, said: Declaration) -> F:
    """Make an action of a function, with all of its declaration."""
    setattr(function, _ATTRIBUTE, said)
    return function


def serve_with(function: F, answering: Callable[..., Any]) -> F:
    """Have a host serve an action in place of a function that is none."""
    setattr(function, _SERVED, answering)
    return function


def serving(candidate: Any) -> Any:
    """The action that serves a function which is none itself; anything else is what it is."""
    try:
        found = getattr(candidate, _SERVED, None)
    except Exception:  # whatever else lies in a module may not like to be asked
        return candidate
    return candidate if found is None else found


def declaration(candidate: object) -> Declaration | None:
    """What the function declared, if it is an action."""
    try:
        said = getattr(candidate, _ATTRIBUTE, None)
    except Exception:  # whatever else lies in a module may not like to be asked
        return None
    return said if isinstance(said, Declaration) and callable(candidate) else None
