"""Packs in memory: from rule texts and actions that exist by description only, and random ones.

`pack("…rules…")` is enough for most tests. `cases()` draws a whole pack with tools that require, rival, prohibit and
miss each other, under conditions that a drawn request meets or not.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from textwrap import dedent
from typing import Any, Final

import msgspec
from hypothesis import strategies as st

from manglecp.mangle.source import Source, Trust
from manglecp.pack.model import (
    ActionDescription,
    Disclosure,
    DomainSettings,
    ExternalDescription,
    IntentSettings,
    Limits,
    Pack,
    Settings,
    SkillText,
)
from manglecp.wire.messages import IntentRequest

NOW: Final = 1_768_478_400 * 10**9
"""2026-01-15T12:00:00Z, the time of requests that say none."""
NOW_TEXT: Final = "2026-01-15T12:00:00Z"


def clock() -> int:
    return NOW


def action(name: str, **changes: Any) -> ActionDescription:
    """An action ``name(path: str, depth: int = 1)`` without effects, or with ``params`` by name and schema."""
    params: Mapping[str, Any] = changes.pop("params", {"path": {"type": "string"}, "depth": {"type": "integer"}})
    required: Iterable[str] = changes.pop("required", [name for name in params if name != "depth"])
    schema = {
        "type": "object",
        "properties": dict(params),
        "required": list(required),
        "additionalProperties": False,
    }
    plain = ActionDescription(
        name=name,
        aid=f"test.{name}",
        description=f"Does {name}.",
        input_schema=schema,
        output_schema={"type": "object"},
        mutates=False,
    )
    return replace(plain, **changes)


def skill(skill_id: str, content: str = "Read first.\n", **changes: Any) -> SkillText:
    plain = SkillText(skill_id=skill_id, name=skill_id.title(), description=f"About {skill_id}.", content=content)
    return replace(plain, **changes)


def pack(
    domain: str = "",
    *,
    policy: str = "",
    schema: str = "",
    actions: Iterable[str | ActionDescription] = ("look",),
    skills: Iterable[str | SkillText] = (),
    intents: Iterable[str | IntentSettings] = (),
    limits: Limits | None = None,
    disclosure: Disclosure | None = None,
    externals: Iterable[ExternalDescription] = (),
    params: Mapping[str, str] | None = None,
    fact_files: Sequence[str] = (),
    name: str = "sample",
) -> Pack:
    """Rules by trust level; an action, a skill and an intent may be just a name."""
    texts = (
        ("rules/schema/schema.mg", schema, Trust.SCHEMA),
        ("rules/policy/policy.mg", policy, Trust.POLICY),
        ("rules/domain/domain.mg", domain, Trust.DOMAIN),
    )
    settings = Settings(
        name=name,
        domain=DomainSettings(id=name, description=f"The domain {name}."),
        intents=tuple(
            IntentSettings(name=intent, description=f"To {intent}.") if isinstance(intent, str) else intent
            for intent in intents
        ),
        limits=limits or Limits(),
        disclosure=disclosure or Disclosure(),
    )
    described = [action(one) if isinstance(one, str) else one for one in actions]
    written = [skill(one) if isinstance(one, str) else one for one in skills]
    content = repr((texts, settings, described, written, sorted((params or {}).items())))
    return Pack(
        settings=settings,
        sources=tuple(Source(file, dedent(text), trust) for file, text, trust in texts if text),
        fact_files=tuple(fact_files),
        skills={one.skill_id: one for one in written},
        actions={one.name: one for one in described},
        externals={one.predicate: one for one in externals},
        params=params or {},
        digest=hashlib.sha256(content.encode()).hexdigest(),
    )


def request(
    intent: str = "observe",
    facts: Iterable[Any] = (),
    *,
    params: Mapping[str, Any] | None = None,
    eval_time: str | int | None = NOW_TEXT,
    constraints: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
    request_id: str = "r-1",
) -> IntentRequest:
    """A request as it comes out of decoding. A fact may be written ``("seen", "x")`` in place of its object."""
    payload: dict[str, Any] = {
        "intent": {"name": intent, "params": params},
        "facts": [{"pred": f[0], "args": list(f[1:])} if isinstance(f, tuple) else f for f in facts],
        "eval_time": eval_time,
        "constraints": dict(constraints or {}),
        "options": dict(options or {}),
    }
    message = {"type": "intent_request", "id": request_id, "manglecp": "2026-02-draft", "payload": payload}
    return msgspec.convert(message, IntentRequest)


# --- random packs ----------------------------------------------------------------------------------------------------

INTENTS: Final = ("observe", "repair")
TOOLS: Final = tuple(f"tool_{letter}" for letter in "abcdefg")
WORDS: Final = ("red", "green")
ACTIONS: Final = (
    action("look"),
    action("patch", effects=("filesystem",), tier=2),
    action("pay", effects=("payments",), tier=3),
)
GHOST: Final = "ghost"
"""An action that no pack has."""

SCHEMA: Final = """\
Decl seen(Word) descr [doc("A word was seen."), direction("input")] bound [/string].
Decl logged(Word) temporal descr [doc("A word was logged."), direction("input")] bound [/string].
"""

CONDITIONS: Final = (
    "",
    'intent("observe")',
    'intent("repair")',
    'seen("red")',
    '!seen("red")',
    'intent("repair"), seen("green")',
    '<-[0s, 5m] logged("red")',
    'client_permission("write")',
    '!client_permission("write")',
)


@dataclass(frozen=True)
class Rules:
    """Clauses of a random pack, by what they are about, as text."""

    domain: tuple[str, ...]
    prohibitions: tuple[str, ...] = ()
    """Clauses of ``prohibited``, ``permitted`` and ``effect_denied``."""
    conflicts: tuple[str, ...] = ()

    def pack(self) -> Pack:
        return pack(
            "\n".join((*self.domain, *self.conflicts)),
            policy="\n".join(self.prohibitions),
            schema=SCHEMA,
            actions=ACTIONS,
            intents=INTENTS,
        )


@dataclass(frozen=True)
class Case:
    """A pack and what is asked of it."""

    rules: Rules
    intent: str = "observe"
    facts: tuple[Mapping[str, Any], ...] = ()
    permissions: frozenset[str] = frozenset()
    pack: Pack = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "pack", self.rules.pack())

    def request(self, **changes: Any) -> IntentRequest:
        return request(self.intent, changes.pop("facts", self.facts), **changes)


def clause(head: str, condition: str) -> str:
    return f"{head} :- {condition}." if condition else f"{head}."


def _under(heads: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """A clause with this head; half of them hold whatever is asked."""
    return st.builds(clause, heads, st.one_of(st.just(""), st.sampled_from(CONDITIONS)))


def _pairs(predicate: str, tools: Sequence[str]) -> st.SearchStrategy[str]:
    pair = st.tuples(st.sampled_from(tools), st.sampled_from(tools)).filter(lambda two: two[0] != two[1])
    return pair.map(lambda two: f'{predicate}("{two[0]}", "{two[1]}")')


_scores = st.sampled_from((0, 10, 19, 20, 39, 40, 69, 70, 80, 99, 100))
_tools = st.sampled_from(TOOLS)
prohibitions = _under(_tools.map(lambda tool: f'prohibited("{tool}", "not now")'))
_denials = _under(st.sampled_from([one.name for one in ACTIONS]).map(lambda a: f'effect_denied("{a}", "not this")'))
_permits = _under(_tools.map(lambda tool: f'permitted("{tool}")'))


@st.composite
def rules(draw: st.DrawFn, *, with_conflicts: bool = True) -> Rules:
    domain: list[str] = []
    for tool in TOOLS:
        if draw(st.integers(0, 11)) == 0:
            continue  # a tool that others may name and that does not exist
        domain.append(f'macro("{tool}", "Does {tool}.").')
        if draw(st.integers(0, 15)):  # else a tool without steps
            steps = draw(st.lists(st.sampled_from(("look", "look", "patch", "pay")), min_size=1, max_size=2))
            domain += [f'macro_step("{tool}", {n}, "{name}").' for n, name in enumerate(steps, 1)]
        if draw(st.integers(0, 7)) == 0:
            domain.append(clause(f'macro_step("{tool}", 9, Name)', f'seen("ghost"), Name = "{GHOST}"'))
    relevant = st.builds(lambda tool, score: f'relevant("{tool}", {score})', _tools, _scores)
    domain += draw(st.lists(_under(relevant), min_size=2, max_size=10))
    domain += draw(st.lists(_under(_tools.map(lambda tool: f'mandatory("{tool}")')), max_size=3))
    domain += draw(st.lists(_under(_pairs("requires", TOOLS)), max_size=5))
    conflicts = draw(st.lists(_under(_pairs("conflicts", TOOLS)), max_size=6)) if with_conflicts else []
    forbidden = draw(st.lists(prohibitions, max_size=2)) + draw(st.lists(_denials, max_size=1))
    if draw(st.integers(0, 7)) == 0:
        forbidden += draw(st.lists(_permits, min_size=2, max_size=8))
    return Rules(tuple(domain), tuple(forbidden), tuple(conflicts))


_at = st.sampled_from(("2026-01-15T11:58:00Z", "2026-01-15T11:55:00Z", "2026-01-15T11:00:00Z"))
wire_facts = st.one_of(
    st.sampled_from((*WORDS, "ghost")).map(lambda word: {"pred": "seen", "args": [word]}),
    st.builds(lambda word, at: {"pred": "logged", "args": [word], "t": {"at": at}}, st.sampled_from(WORDS), _at),
)


@st.composite
def cases(draw: st.DrawFn, *, with_conflicts: bool = True) -> Case:
    return Case(
        draw(rules(with_conflicts=with_conflicts)),
        draw(st.sampled_from(INTENTS)),
        tuple(draw(st.lists(wire_facts, max_size=5))),
        draw(st.sampled_from((frozenset(), frozenset({"write"})))),
    )
