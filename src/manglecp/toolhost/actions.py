"""``@action`` and ``@external``: declarations of the functions of a plugin that a host serves.

The tier of an action is the highest tier of its effects:
    0  safe        nothing changes
    1  write       files, databases and web pages change
    2  system      other machines or processes are involved
    3  dangerous   payments, identities, irreversible and unknown effects

``mutates=False`` declares an action read-only: tier 0. It is refused with an effect that is never a read. A read-only
action may start programs if it does not use the network: :mod:`.action_hosts` keeps these programs from writing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple, TypeVar

from manglecp.base.coroutines import items_of, run_to_end

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
_NETWORK_EFFECTS: Final = frozenset({"browser", "network", "network_io"})
_REMOTE_EFFECTS: Final = frozenset({"browser", "network"})
_POSSIBLY_READ_ONLY: Final = frozenset({"filesystem", "database"}) | _REMOTE_EFFECTS
_PROGRAM_EFFECTS: Final = frozenset({"process", "proc_exec", "process_spawn"})
MAX_CONCURRENCY: Final = 256


def lease_tier(effects: Iterable[str], *, mutates: bool = True) -> int:
    """Return the highest tier of the effects; 0 without ``mutates``. Raises ValueError if an effect is never a read."""
    effects = tuple(effects)
    highest = max(map(_tier, effects), default=SAFE)
    if mutates or highest == SAFE:
        return highest
    # A program that reaches other machines cannot be kept from changing them.
    is_local = _REMOTE_EFFECTS.isdisjoint(effects)
    allowed = _POSSIBLY_READ_ONLY | _PROGRAM_EFFECTS if is_local else _POSSIBLY_READ_ONLY
    for effect in effects:
        if effect not in allowed and _tier(effect) > SAFE:
            raise ValueError(f"an action with the effect {effect!r} cannot be declared with mutates=False")
    return SAFE


def _tier(effect: str) -> int:
    if effect in _TIERS:
        return _TIERS[effect]
    if effect.startswith("x-"):  # an extension: its suffix, such as _read, has no meaning
        return DANGEROUS
    if effect.endswith("_read"):
        return SAFE
    if effect.endswith(("_write", "_delete")):
        return WRITE
    return DANGEROUS


def starts_programs(effects: object) -> bool:
    """Return whether an effect starts programs; False for untrusted ``effects`` that are not a list."""
    return isinstance(effects, (list, tuple)) and not _PROGRAM_EFFECTS.isdisjoint(effects)


_DECLARATION: Final = "__manglecp_action__"  # the attribute of a function with its declaration
_REPLACEMENT: Final = "__manglecp_served__"  # the attribute of a function with the function that is served in its place
_DECORATED: Final = "__manglecp_decorated__"  # the attribute of such a replacement with the decorated function
F = TypeVar("F", bound=Callable[..., Any])


class Declaration(NamedTuple):
    """What a decorator declares about a function; see :func:`action`."""

    effects: tuple[str, ...] = ()
    tier: int = DANGEROUS
    reversible: bool = False
    idempotent: bool = False
    timeout: float | None = None
    mutates: bool = True
    spawn: tuple[str, ...] = ()
    version: int = 1
    deterministic: bool = False
    tags: tuple[str, ...] = ()
    replay_inputs: tuple[str, ...] = ()
    preview: str | None = None
    tool: bool = True
    concurrency: int = 1
    external: dict[str, Any] | None = None
    """The description of an external predicate, see :func:`external`."""
    generator: dict[str, Any] | None = None
    """The description of a fact generator, see :mod:`.generator`."""
    egress: tuple[str, ...] = ()


def action(
    *,
    effects: Iterable[str],
    reversible: bool = False,
    idempotent: bool = False,
    timeout: float | None = None,
    mutates: bool = True,
    spawn: Iterable[str] = (),
    egress: Iterable[str] = (),
    version: int = 1,
    deterministic: bool = False,
    tags: Iterable[str] = (),
    replay_inputs: Iterable[str] = (),
    preview: str | None = None,
    tool: bool = True,
    concurrency: int = 1,
) -> Callable[[F], F]:
    """Declare a typed function as an action; it stays callable as before.

        @action(effects=["filesystem"], reversible=True)
        def apply_patch(path: str, patch: str, *, dry_run: bool = False) -> PatchResult: ...

    ``effects`` are required: they decide the lease tier. ``mutates=False`` declares the action read-only, with the
    programs that it starts; ``timeout`` is in seconds; ``spawn`` names the only binaries that it may execute, by name
    or absolute path; ``egress`` names the only destinations that it may connect to, as HOST:PORT; ``version`` is the
    last part of its action id. ``reversible`` declares that its effects can be undone, ``idempotent`` that a second
    call with the same input changes nothing more. ``deterministic`` declares that the same input and slots give the
    same result; ``replay_inputs`` names what else the result depends on; a client can select actions by their ``tags``.
    ``preview`` names a read-only action that runs before approval, with those inputs of the declared action that the
    preview has parameters for. Approvers see the result of the preview, and members of this result that are parameters
    of the declared action become its inputs. ``tool=False``: the action does not become a tool of the same name if no
    rule makes it a step. ``concurrency`` is the number of calls of an ``async def`` action that one host serves at the
    same time, if the action starts no programs.
    """
    lists = {"effects": effects, "spawn": spawn, "egress": egress, "tags": tags, "replay_inputs": replay_inputs}
    for name, values in lists.items():
        if isinstance(values, str):
            raise TypeError(f"{name} is a list of strings, not a string")
    effects, spawn, replay_inputs = tuple(effects), tuple(spawn), tuple(replay_inputs)
    _check_effects(effects)
    if timeout is not None and not 0 < timeout < float("inf"):
        raise ValueError("timeout has to be a number of seconds above 0")
    if version < 1:
        raise ValueError("versions count from 1")
    check_programs(spawn)
    if spawn and not starts_programs(effects):
        raise ValueError("spawn: an action that starts programs has the effect 'process'")
    egress = check_egress(egress)
    if egress and _NETWORK_EFFECTS.isdisjoint(effects):
        raise ValueError("egress: an action that connects to other machines has the effect 'network'")
    if deterministic and not replay_inputs and any(effect != "none" for effect in effects):
        raise ValueError("deterministic and with effects: replay_inputs has to name what the result depends on")
    if not 1 <= concurrency <= MAX_CONCURRENCY:
        raise ValueError(f"concurrency has to be from 1 to {MAX_CONCURRENCY}")
    if concurrency > 1 and starts_programs(effects):
        raise ValueError("concurrency: an action that starts programs has a host of its own for each call")
    declared = Declaration(
        effects=effects,
        tier=lease_tier(effects, mutates=mutates),
        reversible=reversible,
        idempotent=idempotent,
        timeout=timeout,
        mutates=mutates,
        spawn=spawn,
        egress=egress,
        version=version,
        deterministic=deterministic,
        tags=tuple(tags),
        replay_inputs=replay_inputs,
        preview=preview,
        tool=tool,
        concurrency=concurrency,
    )

    def decorate(function: F) -> F:
        if concurrency > 1 and not _is_async(function):
            raise TypeError(f"concurrency={concurrency}: {function.__name__} has to be an async def function")
        return _attach(function, declared)

    return decorate


def _is_async(function: Any) -> bool:
    """Return whether the function, or one that it decorates, is a coroutine function or async generator function."""
    code = getattr(function, "__code__", None)
    if code is not None and code.co_flags & COROUTINE_FLAGS:
        return True
    return hasattr(function, "__wrapped__") and _is_async(function.__wrapped__)


def _check_effects(effects: Iterable[str]) -> None:
    """Raise ValueError for a misspelling of a known effect; other unknown effects count as dangerous."""
    for effect in effects:
        if effect not in _TIERS and not effect.startswith("x-") and _tier(effect) == DANGEROUS:
            import difflib  # rarely needed, and hosts start often

            if similar := difflib.get_close_matches(effect, _TIERS, n=1, cutoff=0.8):
                raise ValueError(f"unknown effect {effect!r}: did you mean {similar[0]!r}? Others begin with 'x-'")


def check_programs(programs: Iterable[str]) -> None:
    """Raise ValueError for a program that is neither a name nor an absolute path."""
    for program in programs:
        if not program or ("/" in program and not program.startswith("/")):
            raise ValueError(f"spawn: {program!r} is neither a name nor an absolute path")


def check_egress(destinations: Iterable[str]) -> tuple[str, ...]:
    """Return the destinations in canonical form, and params of the pack, ``{NAME}``. Raises TypeError or ValueError."""
    if isinstance(destinations, str):
        raise TypeError("egress is a list of strings, not a string")
    destinations = tuple(destinations)
    if not destinations:
        return ()
    from manglecp.base.destination import PARAM, canonical_destinations  # rarely needed, and hosts start often

    params = [text for text in destinations if PARAM.fullmatch(text)]
    try:
        return (*canonical_destinations(text for text in destinations if text not in params), *params)
    except ValueError as error:
        raise ValueError(f"egress: {error}") from None


def _attach(function: F, declared: Declaration) -> F:
    setattr(function, _DECLARATION, declared)
    return function


def serve_with(function: F, replacement: Callable[..., Any], declared: Declaration) -> F:
    """Make a host serve ``replacement`` in place of ``function``, under its name; return ``function``.

    The replacement gets the secrets of ``function`` as further keyword arguments.
    """
    setattr(replacement, _DECORATED, function)
    for name in ("__name__", "__module__", "__doc__"):
        setattr(replacement, name, getattr(function, name))
    setattr(function, _REPLACEMENT, _attach(replacement, declared))
    return function


def served_function(candidate: Any) -> Any:
    """Return the replacement set by :func:`serve_with`, or the candidate itself."""
    replacement = _attribute(candidate, _REPLACEMENT)
    return candidate if replacement is None else replacement


def decorated_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function of the pack that a served function calls, or the served function itself."""
    decorated: Callable[..., Any] = getattr(function, _DECORATED, function)
    return decorated


def declaration(candidate: object) -> Declaration | None:
    """Return the declaration of an action; None for every other object of a module."""
    declared = _attribute(candidate, _DECLARATION)
    return declared if isinstance(declared, Declaration) and callable(candidate) else None


def _attribute(candidate: object, name: str) -> Any:
    try:
        return getattr(candidate, name, None)
    except Exception:  # an arbitrary object of a module may raise here
        return None


_SIGNATURE: Final = re.compile(
    r"([a-z][A-Za-z0-9_]*)\(\s*([A-Z][A-Za-z0-9_]*(?:\s*,\s*[A-Z][A-Za-z0-9_]*)*)\s*\)", re.ASCII
)
COROUTINE_FLAGS: Final = 0x80 | 0x200  # CO_COROUTINE and CO_ASYNC_GENERATOR of a code object
_MAX_SECONDS: Final = 3_600
_NOT_ROWS: Final = (str, bytes, bytearray, dict)  # iterables that count neither as a list of rows nor as a row


def external(
    signature: str,
    *,
    mode: str,
    deterministic: bool = True,
    seconds: float = 5.0,
    batch: bool = False,
    egress: Iterable[str] = (),
) -> Callable[[F], F]:
    """Declare a function as an external predicate of the rules.

        @external("similar_failure(Text, Count, Id)", mode="++-", deterministic=False, seconds=2)
        def similar_failure(text: str, count: int) -> Iterable[tuple[str]]: ...

    ``mode`` has a ``+`` for each argument that is an input, and a ``-`` for each output. A question is one tuple of
    input values. The function gets them as arguments and returns rows of outputs; with one output, a row may be the
    bare value. With ``batch=True`` it gets a list of questions, and returns a list of rows for each. Values are plain
    JSON, as the ``Decl`` of the predicate states. ``deterministic=False`` declares that answers may change; ``seconds``
    is the time for all questions of one evaluation round; ``egress`` names the only destinations that the function may
    connect to, as HOST:PORT. A host serves the function as an action of tier 0. It may be a coroutine function or an
    async generator function; its questions are then answered one after the other.
    """
    match = _SIGNATURE.fullmatch(signature)
    if match is None:
        raise ValueError(f"{signature!r} is not a predicate with variables, such as similar_failure(Text, Id)")
    predicate, arguments = match[1], [word.strip() for word in match[2].split(",")]
    if len(set(arguments)) < len(arguments):
        raise ValueError(f"{signature}: a variable is repeated")
    if len(mode) != len(arguments) or set(mode) - {"+", "-"}:
        raise ValueError(f"{predicate}: mode has a + or - for each of the {len(arguments)} arguments")
    if isinstance(seconds, bool) or not 0 < seconds <= _MAX_SECONDS:
        raise ValueError(f"{predicate}: seconds have to be above 0 and at most {_MAX_SECONDS}")
    destinations = check_egress(egress)
    description = {
        "predicate": predicate,
        "arguments": arguments,
        "mode": mode,
        "deterministic": bool(deterministic),
        "seconds": seconds,
    }

    def decorate(function: F) -> F:
        if not hasattr(function, "__code__"):
            raise TypeError(f"{predicate}: external decorates a function")
        declared = Declaration(
            tier=SAFE, idempotent=True, timeout=seconds, mutates=False, egress=destinations, external=description
        )
        return serve_with(function, _batch_action(function, mode, batch), declared)

    return decorate


def _batch_action(function: Callable[..., Any], mode: str, takes_batch: bool) -> Callable[..., Any]:
    """Return the action that a host serves: it takes a list of questions and returns a list of rows for each."""
    input_count, output_count = mode.count("+"), mode.count("-")

    async def answer(inputs: list[list[Any]], **secrets: str) -> dict[str, Any]:
        questions = [tuple(question) for question in inputs]
        if any(len(question) != input_count for question in questions):
            raise ValueError(f"a question has {input_count} values")
        if takes_batch:
            answers = list(await items_of(function(questions, **secrets)))
        else:
            answers = [await items_of(function(*question, **secrets)) for question in questions]
        if len(answers) != len(questions):
            raise ValueError(f"{len(answers)} answers to {len(questions)} questions")
        return {"rows": [[_row_values(row, output_count) for row in _check_rows(rows)] for rows in answers]}

    def answer_now(inputs: list[list[Any]], **secrets: str) -> dict[str, Any]:
        return run_to_end(answer(inputs, **secrets))

    return answer if _is_async(function) else answer_now


def _check_rows(rows: Any) -> Any:
    if isinstance(rows, _NOT_ROWS):
        raise TypeError(f"an answer is a list of rows, not a {type(rows).__name__}")
    return rows


def _row_values(row: Any, count: int) -> list[Any]:
    """Return the ``count`` values of a row; if ``count`` is 1, a row that is not a tuple is the value itself."""
    if count != 1 and isinstance(row, _NOT_ROWS):
        raise TypeError(f"a row is a tuple of {count} values, not a {type(row).__name__}")
    values = list(row) if isinstance(row, tuple) or count != 1 else [row]
    if len(values) != count:
        raise ValueError(f"a row has {count} values, not {len(values)}")
    return values


_LIFESPAN: Final = "__manglecp_lifespan__"  # an attribute that marks a lifespan function
_GENERATOR_FLAGS: Final = 0x20 | 0x200  # CO_GENERATOR and CO_ASYNC_GENERATOR of a code object


def lifespan(function: F) -> F:
    """Declare the generator function that opens what all calls of a host share, and closes it when the host ends.

        @lifespan
        async def database(context: Context) -> AsyncIterator[Pool]:
            async with Pool(context.settings["dsn"]) as pool:
                yield pool

    Each host of the plugin runs it: up to its only ``yield`` before the first call, and the rest after the last one,
    for at most 10 seconds each. The yielded value is ``context.state`` of every call. The function is an async
    generator function or a plain one. It may have a parameter that gets a Context without slots and reports, and
    parameters that get secrets (:class:`manglecp.Secret`).
    """
    code = getattr(function, "__code__", None)
    if code is None or not code.co_flags & _GENERATOR_FLAGS:
        raise TypeError("lifespan: the decorated function has to be a generator function")
    setattr(function, _LIFESPAN, True)
    return function


def is_lifespan(candidate: object) -> bool:
    return _attribute(candidate, _LIFESPAN) is True
