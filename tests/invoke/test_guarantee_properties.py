"""Whatever rules a pack has, and whatever changes when: nothing happens that is not proven at that moment.

Packs, revisions, permissions, server facts and the clock are drawn; all of them change between an offer and its use,
and between the steps of a run. Two oracles judge each admission and each effect: a fresh evaluation of the pack, and
the meaning of the drawn rules in a few lines of Python. The dates that the client sends are drawn as well, and must
not matter.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

import pytest
from hypothesis import Phase, given, settings, strategies as st

from manglecp.intent import Domain, Identity, respond
from manglecp.mangle import Fact
from manglecp.pack import Pack
from manglecp.store import open_store
from manglecp.wire import WireError
from tests.intent.packs import NOW, request
from tests.invoke.chains import chain
from tests.invoke.workshop import Fails, Shop, shop

SECOND: Final = 10**9
TIMES: Final = (-50, 50, 150, 250, 350)
"""Seconds: before, in, between and after the two eras."""
PERMISSIONS: Final = ("a", "b")
FLAGS: Final = (1, 2)
ERAS: Final = {1: (0, 100), 2: (200, 300)}

TOOLS: Final = """
macro("u", "Writes, looks, and undoes it if the look fails.").
macro_step("u", 1, "write"). macro_step("u", 2, "look"). macro_step("u", 3, "write").
undo_step("u", 1, "erase"). undo_in("u", 1, "n", "n"). nothing_to_undo("u", 3). reversible("u").
macro("v", "Looks."). macro_step("v", 1, "look").
macro_step("t", 1, "look"). macro_step("t", 2, "write"). macro_step("t", 3, "look"). macro_step("t", 4, "erase").
"""
ACTIONS: Final = {"t": {"look", "write", "erase"}, "u": {"look", "write", "erase"}, "v": {"look"}}
"""What a tool may run, undoing included."""
DECLARED: Final = """
Decl flag(N) bound [/number].
Decl era(N) temporal bound [/number].
era(1)@[2026-01-15T12:00:00Z, 2026-01-15T12:01:40Z]. era(2)@[2026-01-15T12:03:20Z, 2026-01-15T12:05:00Z].
Decl in_era(N) bound [/number]. in_era(N) :- era(N)@[now].
"""


@dataclass(frozen=True)
class Condition:
    """A literal: of a permission, a fact of the server, or an era of the clock."""

    kind: str
    name: str | int
    holds: bool

    def __str__(self) -> str:
        argument = f'"{self.name}"' if isinstance(self.name, str) else self.name
        return f"{'' if self.holds else '!'}{self.kind}({argument})"


@dataclass(frozen=True)
class Rule:
    head: str
    about: str
    body: tuple[Condition, ...]

    def __str__(self) -> str:
        head = {
            "prohibited": f'prohibited("{self.about}", "no")',
            "permitted": f'permitted("{self.about}")',
            "effect_denied": f'effect_denied("{self.about}", "no")',
            "intent_denied": 'intent_denied("no")',
            "mandatory": f'mandatory("{self.about}")',
        }[self.head]
        body = [*(['intent("go")'] if self.head == "mandatory" else []), *map(str, self.body)]
        return f"{head} :- {', '.join(body)}."


@dataclass(frozen=True)
class Revision:
    rules: tuple[Rule, ...]

    @property
    def pack(self) -> Pack:
        policy = "\n".join(str(rule) for rule in self.rules if rule.head != "mandatory")
        support = "\n".join(str(rule) for rule in self.rules if rule.head == "mandatory")
        return chain(TOOLS, when=support, policy=DECLARED + policy, permissions=PERMISSIONS)

    def all(self, head: str, about: str | None = None) -> list[Rule]:
        return [rule for rule in self.rules if rule.head == head and about in (None, rule.about)]


def drawn_revision(random: Random) -> Revision:
    def condition() -> Condition:
        kinds: list[tuple[str, tuple[str | int, ...]]] = [
            ("client_permission", PERMISSIONS),
            ("flag", FLAGS),
            ("in_era", tuple(ERAS)),
        ]
        kind, names = random.choice(kinds)
        return Condition(kind, random.choice(names), random.random() < 0.5)

    def body(most: int) -> tuple[Condition, ...]:
        return tuple(condition() for _ in range(random.randint(1, most)))

    rules = [Rule("mandatory", tool, body(1) if random.random() < 0.3 else ()) for tool in ACTIONS]
    for _ in range(random.randint(1, 4)):
        head = random.choice(("prohibited", "prohibited", "effect_denied", "effect_denied", "intent_denied"))
        about = random.choice(("write", "erase", "look") if head == "effect_denied" else tuple(ACTIONS))
        rules.append(Rule(head, about, body(2)))
    if random.random() < 0.4:
        rules += [Rule("permitted", tool, body(1)) for tool in ACTIONS for _ in range(random.randint(0, 2))]
    return Revision(tuple(rules))


@dataclass
class World:
    """All that a verdict may depend on, as it is now, and the oracles."""

    random: Random
    seen: Counter[str]
    revision: Revision = field(default_factory=lambda: Revision(()))
    shop: Shop | None = None
    seconds: int = 50
    held: frozenset[str] = frozenset(PERMISSIONS)
    flags: frozenset[int] = frozenset()
    tool: str = ""
    macro_id: str = ""
    admitted: Identity | None = None
    effects: int = 0
    fails: bool = False
    domains: dict[Any, Domain] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)

    def now(self) -> int:
        return NOW + self.seconds * SECOND

    @property
    def identity(self) -> Identity:
        return Identity("ann", self.held, "user")

    def current(self, identity: Identity) -> Identity:
        return identity._replace(permissions=identity.permissions & self.held)

    # --- changes -----------------------------------------------------------------------------------------------------

    def change(self, chance: float = 1.0) -> None:
        while self.random.random() < chance:
            what = self.random.choice(("clock", "permission", "flag"))
            if what == "clock":
                self.seconds = self.random.choice(TIMES)
            elif what == "permission":
                self.held ^= {self.random.choice(PERMISSIONS)}
            else:
                self.flags ^= {self.random.choice(FLAGS)}
                self.publish()
            chance *= 0.5

    def publish(self) -> None:
        assert self.shop is not None
        self.shop.invoker.offers.renew(self.domain())

    def domain(self) -> Domain:
        key = self.revision, self.flags
        if key not in self.domains:
            loaded = self.domains.get((self.revision, frozenset())) or Domain.load(self.revision.pack)
            added = [Fact("flag", (flag,)) for flag in sorted(self.flags)]
            self.domains[key] = loaded.changed(added, [], f"flags {sorted(self.flags)}") if added else loaded
        return self.domains[key]

    # --- oracles -----------------------------------------------------------------------------------------------------

    def holds(self, rule: Rule, permissions: frozenset[str]) -> bool:
        def true(one: Condition) -> bool:
            if one.kind == "client_permission":
                return one.name in permissions
            if one.kind == "flag":
                return one.name in self.flags
            begin, end = ERAS[int(one.name)]
            return begin <= self.seconds <= end

        return all(true(one) == one.holds for one in rule.body)

    def any(self, head: str, about: str | None = None) -> bool:
        assert self.admitted is not None
        permissions = self.current(self.admitted).permissions
        return any(self.holds(rule, permissions) for rule in self.revision.all(head, about))

    @property
    def is_forbidden(self) -> bool:
        """By policy, for the tool of the run."""
        closed = bool(self.revision.all("permitted")) and not self.any("permitted", self.tool)
        return closed or self.any("prohibited", self.tool) or self.any("intent_denied")

    def is_proven(self) -> bool:
        """Both oracles must agree."""
        assert self.admitted is not None
        denied = any(self.any("effect_denied", action) for action in ACTIONS[self.tool])
        expected = self.any("mandatory", self.tool) and not self.is_forbidden and not denied
        identity = self.current(self.admitted)
        offered: set[str] = set()
        with suppress(IntentDenied), intent_denied():
            answer = respond(self.domain(), request("go", eval_time=None), identity, clock=self.now).response
            offered = {tool.macro_id for tool in answer.payload.macro_tools}
        if (self.macro_id in offered) != expected:
            self.violations.append(f"the oracles disagree about {self.tool}: {offered}")
        return expected

    # --- what happens ------------------------------------------------------------------------------------------------

    def begin(self, tool: str, macro_id: str) -> None:
        self.tool, self.macro_id, self.admitted, self.effects = tool, macro_id, self.identity, 0
        self.fails = self.random.random() < 0.5

    def point(self, name: str) -> None:
        if name == "accepted":
            self.require(self.is_proven(), "was admitted")
            self.seen["admitted"] += 1
            self.change(0.7)
        elif name.startswith(("answered", "finished")):
            self.change(0.3)

    def require(self, held: bool, what: str) -> None:
        if not held:
            self.violations.append(
                f"{self.tool} {what} at {self.seconds} s with {sorted(self.held)}, {sorted(self.flags)}"
            )

    def look(self, given: dict[str, Any]) -> dict[str, Any]:
        self.change(0.6)
        if self.tool == "u" and self.fails:
            raise Fails
        return given

    def effect(self, action: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
        def act(given: dict[str, Any]) -> dict[str, Any]:
            if self.tool == "u" and action == "erase":
                kind = "undo"
                self.require(not self.any("effect_denied", action), "was undone by a denied effect")
            elif self.effects:
                kind = "later effect"
                self.require(not self.is_forbidden, "went on")
                self.require(not self.any("effect_denied", action), f"went on with the denied {action}")
            else:
                kind = "first effect"
                self.require(self.is_proven(), "had an effect")
            self.effects += 1
            self.seen[kind] += 1
            self.change(0.4)
            return given

        return act


class IntentDenied(Exception):
    """Policy denies the intent."""


@contextmanager
def intent_denied() -> Iterator[None]:
    try:
        yield
    except WireError as error:
        raise (IntentDenied if error.code == "auth_insufficient" else error) from error


async def live(seed: int, seen: Counter[str]) -> None:
    random = Random(seed)
    world = World(random, seen)
    revisions = [drawn_revision(random) for _ in range(2)]
    work = {"look": world.look, "write": world.effect("write"), "erase": world.effect("erase")}
    offers: dict[str, str] = {}
    store = open_store(":memory:")
    dates = [None, *((NOW + seconds * SECOND) // 1_000_000 for seconds in TIMES)]
    try:
        for _ in range(4):
            world.revision = random.choice(revisions)  # a reload
            made = shop(
                world.revision.pack, work, store=store, clock=world.now, current=world.current, point=world.point
            )
            async with made as s:
                world.shop = s
                world.publish()
                for _ in range(2):
                    with suppress(IntentDenied), intent_denied():
                        offers |= await s.tools(identity=world.identity, eval_time=random.choice(dates))
                    world.change(0.5)
                for tool, macro_id in offers.items():
                    await invoke(world, s, tool, macro_id, random.choice(dates))
                    world.change(0.3)
    finally:
        store.close()


async def invoke(world: World, s: Shop, tool: str, macro_id: str, date: int | None) -> None:
    world.begin(tool, macro_id)
    before = world.seen["admitted"]
    dated: dict[str, Any] = {} if date is None else {"eval_time": date}
    code = None
    try:
        await s.invoke(macro_id, {"n": 1}, evaluate=False, identity=world.identity, **dated)
    except WireError as error:
        code = error.code
    assert world.violations == [], world.revision
    if code is None:
        world.seen["succeeded"] += 1
    elif world.seen["admitted"] == before:
        world.seen["refused at admission"] += 1
        assert code in ("macro_expired", "x-macro_not_yet_valid", "macro_not_found", "auth_insufficient")
    elif world.effects:
        world.seen["stopped after an effect"] += 1
        assert code == "execution_failed"
    else:
        world.seen["stopped before the first effect"] += 1
        assert code in ("macro_expired", "auth_insufficient", "execution_failed")


@pytest.mark.req("SEC-28", "SEC-29")
def test_nothing_happens_that_is_not_proven_then() -> None:
    seen: Counter[str] = Counter()

    assert settings.default is not None

    # A smaller seed is not a simpler world, so nothing is shrunk.
    @settings(max_examples=max(20, settings.default.max_examples), phases=(Phase.explicit, Phase.reuse, Phase.generate))
    @given(st.integers(0, 2**32 - 1))
    def check(seed: int) -> None:
        asyncio.run(live(seed, seen))

    check()
    wanted = ("admitted", "succeeded", "first effect", "later effect", "undo", "refused at admission")
    stopped = ("stopped before the first effect", "stopped after an effect")
    assert {name: seen[name] for name in (*wanted, *stopped) if seen[name] < 3} == {}
