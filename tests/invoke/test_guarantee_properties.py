"""Whatever rules a pack has, and whatever changes when: nothing happens that is not proven at that moment.

Packs, revisions, permissions, server facts and the clock are drawn; all of them change between an offer and its use,
and between the steps of a run. Two oracles judge each admission and each effect: a fresh evaluation of the pack, and
the meaning of the drawn rules in a few lines of Python. Drawn rules also require approvals: a run without one may have
no effect while they do. The dates that the client sends are drawn as well, and must not matter.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

import pytest
from hypothesis import Phase, given, settings, strategies as st

from manglecp.intent import Domain, Identity, respond
from manglecp.invoke.approval import APPROVE
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
ROLE: Final = "lead"
APPROVER: Final = Identity("leo", frozenset({APPROVE, ROLE}), "user")
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
            "needs_approval": f'needs_approval("{self.about}", "{ROLE}")',
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
        return chain(TOOLS, when=support, policy=DECLARED + policy, permissions=(*PERMISSIONS, ROLE))

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
    for _ in range(random.randint(0, 3)):
        head = random.choice(("prohibited", "prohibited", "effect_denied", "effect_denied", "intent_denied"))
        about = random.choice(("write", "erase", "look") if head == "effect_denied" else tuple(ACTIONS))
        rules.append(Rule(head, about, body(2)))
    if random.random() < 0.4:
        rules += [Rule("permitted", tool, body(1)) for tool in ACTIONS for _ in range(random.randint(0, 2))]
    rules += [Rule("needs_approval", tool, body(1)) for tool in ("t", "u") if random.random() < 0.6]
    return Revision(tuple(rules))


@dataclass
class World:
    """All that a verdict may depend on, as it is now, and the oracles."""

    random: Random
    seen: Counter[str]
    revision: Revision = field(default_factory=lambda: Revision(()))
    shop: Shop | None = None
    reloads: list[tuple[Revision, Shop]] = field(default_factory=list)
    """The revisions that will replace the current one, the next last."""
    replaced: list[Shop] = field(default_factory=list)
    seconds: int = 50
    held: frozenset[str] = frozenset(PERMISSIONS)
    flags: frozenset[int] = frozenset()
    tool: str = ""
    macro_id: str = ""
    admitted: Identity | None = None
    approved: bool = False
    running: bool = False
    """Not while an approval request is rendered, which reads as well."""
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
        if identity.name == APPROVER.name:
            return identity
        return identity._replace(permissions=identity.permissions & self.held)

    # --- changes -----------------------------------------------------------------------------------------------------

    def change(self, chance: float = 1.0) -> None:
        while self.random.random() < chance:
            what = self.random.choice(("clock", "clock", "permission", "permission", "flag", "flag", "revision"))
            if what == "clock":
                self.seconds = self.random.choice(TIMES)
            elif what == "revision":
                self.reload()
            elif what == "permission":
                self.held ^= {self.random.choice(PERMISSIONS)}
            else:
                self.flags ^= {self.random.choice(FLAGS)}
                self.publish()
            chance *= 0.5

    def reload(self) -> None:
        """Replace the revision as a server does, also while a run is under way; not if there is no other one left."""
        if self.reloads:
            if self.shop is not None:
                self.replaced.append(self.shop)
                self.seen["reloaded in a run"] += self.running
            self.revision, self.shop = self.reloads.pop()
            for shop_before in self.replaced:
                shop_before.invoker.replace_by(self.shop.invoker)
            self.publish()

    def publish(self) -> None:
        assert self.shop is not None
        self.shop.invoker.offers.renew(self.domain())

    def domain(self) -> Domain:
        key = self.revision, self.flags
        if key not in self.domains:
            loaded = self.domains.get((self.revision, frozenset())) or Domain.load(self.revision.pack)
            added = [Fact("flag", (flag,)) for flag in sorted(self.flags)]
            self.domains[key] = loaded.with_facts(added, [], f"flags {sorted(self.flags)}") if added else loaded
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
        return closed or self.any("prohibited", self.tool) or self.any("intent_denied") or self.lacks_approval

    @property
    def lacks_approval(self) -> bool:
        return not self.approved and self.any("needs_approval", self.tool)

    def is_proven(self) -> bool:
        """Both oracles must agree; that the run has the approval that it needs is not part of the proof."""
        assert self.admitted is not None
        denied = any(self.any("effect_denied", action) for action in ACTIONS[self.tool])
        approved, self.approved = self.approved, True
        expected = self.any("mandatory", self.tool) and not self.is_forbidden and not denied
        self.approved = approved
        identity = self.current(self.admitted)
        offered: set[str] = set()
        with suppress(IntentDenied), intent_denied():
            answer = respond(self.domain(), request("go", eval_time=None), identity, clock=self.now).response
            offered = {tool.macro_id for tool in answer.payload.macro_tools}
        if (self.macro_id in offered) != expected:
            self.violations.append(f"the oracles disagree about {self.tool}: {offered}")
        return expected

    # --- what happens ------------------------------------------------------------------------------------------------

    def begin(self, tool: str, macro_id: str, *, approved: bool = False) -> None:
        self.tool, self.macro_id, self.admitted, self.effects = tool, macro_id, self.identity, 0
        self.approved, self.running = approved, False
        self.fails = self.random.random() < 0.5

    def point(self, name: str) -> None:
        if name == "accepted":
            self.require(self.is_proven(), "was admitted")
            self.require(not self.lacks_approval, "was admitted without an approval")
            self.running = True
            self.seen["admitted"] += 1
            self.seen["admitted with an approval"] += self.approved
            self.change(0.7)
        elif name.startswith(("answered", "finished")):
            self.change(0.3)

    def require(self, held: bool, what: str) -> None:
        if not held:
            self.violations.append(
                f"{self.tool} {what} at {self.seconds} s with {sorted(self.held)}, {sorted(self.flags)}"
            )

    def look(self, given: dict[str, Any]) -> dict[str, Any]:
        if not self.running:
            return given
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
                self.require(not self.lacks_approval, "had an effect without an approval")
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
        async with AsyncExitStack() as stack:
            for revision in random.choices(revisions, k=5):
                made = shop(
                    revision.pack, work, store=store, clock=world.now, refresh_identity=world.current, point=world.point
                )
                world.reloads.append((revision, await stack.enter_async_context(made)))
            world.reload()
            for _ in range(4):
                assert world.shop is not None
                for _ in range(2):
                    with suppress(IntentDenied), intent_denied():
                        offers |= await world.shop.tools(identity=world.identity, eval_time=random.choice(dates))
                    world.change(0.5)
                for tool, macro_id in offers.items():
                    await invoke(world, tool, macro_id, random.choice(dates))
                    world.change(0.3)
                if random.random() < 0.5:
                    world.reload()
    finally:
        store.close()


async def invoke(world: World, tool: str, macro_id: str, date: int | None) -> None:
    dated: dict[str, Any] = {} if date is None else {"eval_time": date}
    before = world.seen["admitted"]
    code = None
    try:
        world.begin(tool, macro_id)
        await call(world, macro_id, dated)
    except WireError as error:
        code = error.code
        if code == "confirmation_required" and world.seen["admitted"] == before:
            code = await invoke_approved(world, tool, macro_id, dated, error)
    assert world.violations == [], world.revision
    if code is None:
        world.seen["succeeded"] += 1
    elif world.seen["admitted"] == before:
        world.seen["refused at admission"] += 1
        expired = ("macro_expired", "x-macro_not_yet_valid", "macro_not_found")
        assert code in (*expired, "auth_insufficient", "confirmation_required", "confirmation_invalid")
    elif world.effects:
        world.seen["stopped after an effect"] += 1
        assert code == "execution_failed"
    else:
        world.seen["stopped before the first effect"] += 1
        assert code in ("macro_expired", "auth_insufficient", "execution_failed", "confirmation_required")


async def call(world: World, macro_id: str, payload: dict[str, Any]) -> None:
    assert world.shop is not None
    await world.shop.invoke(macro_id, {"n": 1}, evaluate=False, identity=world.identity, **payload)


async def invoke_approved(
    world: World, tool: str, macro_id: str, dated: dict[str, Any], required: WireError
) -> str | None:
    """Approve the call, and repeat it after further changes; return the code of its error."""
    assert world.shop is not None
    assert required.details is not None
    token = required.details["challenge"]["approval"]
    try:
        await world.shop.approve(required, APPROVER)
    except WireError as error:
        if error.code != "x-approval_decided":  # approved earlier, and not used
            raise
    world.change(0.5)
    world.begin(tool, macro_id, approved=True)
    try:
        await call(world, macro_id, {**dated, "confirmation_token": token})
    except WireError as error:
        return error.code
    return None


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
    changed = ("admitted with an approval", "reloaded in a run")
    assert {name: seen[name] for name in (*wanted, *stopped, *changed) if seen[name] < 3} == {}
