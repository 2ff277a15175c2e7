"""Packs in memory: from rule texts and actions that exist by description only, and random ones.

`pack("…rules…")` is enough for most tests. `cases()` draws a whole pack with tools that require, rival, prohibit and
miss each other, under conditions that a drawn request meets or not.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from textwrap import dedent
from typing import Any, Final

import msgspec
from hypothesis import strategies as st

from manglecp.mangle import Source, Trust
from manglecp.pack import ActionDescription, Disclosure, ExternalDescription, IntentSettings, Pack, Settings, SkillText
from manglecp.pack.settings import DomainSettings, PackLimits
from manglecp.wire.messages import IntentRequest

NOW: Final = 1_768_478_400 * 10**9
"""2026-01-15T12:00:00Z, the time of requests that say none."""
_PERMISSION: Final = re.compile(r'(?:client_permission\(|needs_approval\([^,()]+, )"([^"]+)"')
_TRUST: Final = re.compile(r'client_trust\("([^"]+)"')
NOW_TEXT: Final = "2026-01-15T12:00:00Z"


def clock() -> int:
    return NOW


def action(name: str, **changes: Any) -> ActionDescription:
    """An action ``name(path: str, depth: int = 1)`` without effects, or with ``params`` by name and schema.

    It is no tool of its own, unless with ``tool=True``.
    """
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
        tool=False,
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
    limits: PackLimits | None = None,
    disclosure: Disclosure | None = None,
    externals: Iterable[ExternalDescription] = (),
    params: Mapping[str, str] | None = None,
    fact_files: Sequence[str] = (),
    permissions: Iterable[str] | None = None,
    trust_levels: Iterable[str] | None = None,
    name: str = "sample",
) -> Pack:
    """Rules by trust level; an action, a skill and an intent may be just a name.

    All permissions and trust levels that the rules read are declared, unless they are given.
    """
    texts = (
        ("rules/schema/schema.mg", schema, Trust.SCHEMA),
        ("rules/policy/policy.mg", policy, Trust.POLICY),
        ("rules/domain/domain.mg", domain, Trust.DOMAIN),
    )
    if permissions is None:
        permissions = dict.fromkeys(_PERMISSION.findall(domain + policy))
    settings = Settings(
        name=name,
        permissions=tuple(permissions),
        trust_levels=tuple(_TRUST.findall(domain + policy) if trust_levels is None else trust_levels),
        domain=DomainSettings(id=name, description=f"The domain {name}."),
        intents=tuple(
            IntentSettings(name=intent, description=f"To {intent}.") if isinstance(intent, str) else intent
            for intent in intents
        ),
        limits=limits or PackLimits(),
        disclosure=disclosure or Disclosure(),
        rule_coverage=True,
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
Decl logged(Word) temporal
  descr [doc("A word was logged."), direction("input"), untimed("always")]
  bound [/string].
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


_SCORES: Final = (0, 10, 19, 20, 39, 40, 69, 70, 99, 100, *(75, 80) * 5)
"""Half of them are that of a dependency or close to it, so that rivals often tie."""


class _Drawing:
    """Clauses by chance.

    A few dozen choices make a pack. Left to themselves they would be drawn alike from one example to the next, mostly
    the simplest, and twenty examples would hold hardly a conflict. So one number is drawn, and all of them follow from
    it.
    """

    def __init__(self, random: Random) -> None:
        self.random = random

    def one_in(self, number: int) -> bool:
        return self.random.randrange(number) == 0

    def under(self, head: str) -> str:
        """A clause with this head; half of them hold whatever is asked."""
        return clause(head, "" if self.one_in(2) else self.random.choice(CONDITIONS))

    def some(self, heads: Callable[[], str], least: int, most: int) -> list[str]:
        return [self.under(heads()) for _ in range(self.random.randint(least, most))]

    def tool(self) -> str:
        return self.random.choice(TOOLS)

    def relevant(self) -> str:
        return f'relevant("{self.tool()}", {self.random.choice(_SCORES)})'

    def mandatory(self) -> str:
        return f'mandatory("{self.tool()}")'

    def prohibited(self) -> str:
        return f'prohibited("{self.tool()}", "not now")'

    def permitted(self) -> str:
        return f'permitted("{self.tool()}")'

    def effect_denied(self) -> str:
        return f'effect_denied("{self.random.choice(ACTIONS).name}", "not this")'

    def requires(self) -> str:
        return self._pair("requires")

    def conflicts(self) -> str:
        return self._pair("conflicts")

    def _pair(self, predicate: str) -> str:
        first, second = self.random.sample(TOOLS, 2)
        return f'{predicate}("{first}", "{second}")'

    def definitions(self) -> Iterator[str]:
        for tool in TOOLS:
            if self.one_in(20):
                yield clause(f'macro("{tool}", "Does {tool}.")', 'seen("never")')  # others may name it
                continue
            yield f'macro("{tool}", "Does {tool}.").'
            if not self.one_in(20):  # else a tool without steps
                for n in range(1, self.random.randint(1, 2) + 1):
                    yield f'macro_step("{tool}", {n}, "{self.random.choice(("look", "look", "patch", "pay"))}").'
            if self.one_in(8):
                name = f'fn:string:concat("{GHOST}", "")'  # rules do not name an action that does not exist
                yield clause(f'macro_step("{tool}", 9, Name)', f'seen("ghost"), Name = {name}')


prohibitions = st.randoms(use_true_random=True).map(lambda random: (one := _Drawing(random)).under(one.prohibited()))


def _rules(some: _Drawing, with_conflicts: bool) -> Rules:
    tools = some.random.sample(TOOLS, len(TOOLS))
    spoken_for, others = tools[:4], tools[4:]
    domain = [
        *some.definitions(),
        *(f'relevant("{tool}", {some.random.choice(_SCORES)}).' for tool in spoken_for),
        *some.some(some.relevant, 0, 3),
        *some.some(some.mandatory, 0, 2),
        *(f'requires("{tool}", "{some.random.choice(others)}").' for tool in spoken_for if some.one_in(2)),
        *some.some(some.requires, 0, 2),
    ]
    conflicts = []
    if with_conflicts:
        pairs = itertools.pairwise(spoken_for)
        conflicts = [f'conflicts("{a}", "{b}").' for a, b in pairs if some.one_in(2)] + some.some(some.conflicts, 0, 3)
    forbidden = some.some(some.prohibited, 0, 2)
    if some.one_in(6):
        forbidden += some.some(some.effect_denied, 1, 1)
    if some.one_in(12):
        forbidden += some.some(some.permitted, 2, 8)
    return Rules(tuple(domain), tuple(forbidden), tuple(conflicts))


_AT: Final = ("2026-01-15T11:58:00Z", "2026-01-15T11:55:00Z", "2026-01-15T11:00:00Z")


def _fact(random: Random) -> Mapping[str, Any]:
    if random.randrange(2):
        return {"pred": "logged", "args": [random.choice(WORDS)], "t": {"at": random.choice(_AT)}}
    return {"pred": "seen", "args": [random.choice((*WORDS, "ghost"))]}


def cases(*, with_conflicts: bool = True) -> st.SearchStrategy[Case]:
    """In a third of them a tool loses a conflict, and in a third a dependency comes along; a test counts them."""

    def case(random: Random) -> Case:
        return Case(
            _rules(_Drawing(random), with_conflicts),
            random.choice(INTENTS),
            tuple(_fact(random) for _ in range(random.randint(0, 5))),
            random.choice((frozenset(), frozenset({"write"}))),
        )

    return st.randoms(use_true_random=True).map(case)
