"""Generated packs: tools of several intents, with windows, policies, conflicts, requirements, skills and resources."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import msgspec

from manglecp.mangle import Fact, Source, Trust
from manglecp.pack import ActionDescription, IntentSettings, Pack, Settings, SkillText
from manglecp.pack.settings import DomainSettings

NOW = 1_768_478_400 * 10**9
NOW_TEXT = "2026-01-15T12:00:00Z"
PER_INTENT = 15
"""The number of tools for each intent."""

SCHEMA = """
Decl event(Service, Level, Message) temporal
  descr [direction("input"), untimed("always")]
  bound [/string, /string, /string].
Decl failed(Service, Url) temporal descr [direction("input"), untimed("always")] bound [/string, /string].
Decl took(Service, Milliseconds) temporal descr [direction("input"), untimed("always")] bound [/string, /number].
Decl version(Service, Version) descr [direction("input")] bound [/string, /string].
Decl wants(Word) descr [direction("input")] bound [/string].
Decl service(Service, Team) bound [/string, /string].
Decl depends(Service, On) bound [/string, /string].
Decl known_error(Message, Kind) bound [/string, /string].
Decl released(Service, Version) bound [/string, /string].
Decl runbook(Team, Uri) bound [/string, /string].
"""

INFERRED = """
noisy(S) :- <-[0s, 5m] event(S, "error", _).
warned(S) :- <-[0s, 30m] event(S, "warning", _).
failing(S) :- noisy(S), <-[0s, 10m] failed(S, _).
slow(S) :- <-[0s, 10m] took(S, Ms), Ms > 1000.
errors(S, N) :- <-[0s, 5m] event(S, "error", M) |> do fn:group_by(S), let N = fn:count().
storm(S) :- errors(S, N), N >= 5.
understood(S, Kind) :- <-[0s, 5m] event(S, "error", M), known_error(M, Kind).
trouble(S) :- failing(S).
trouble(S) :- slow(S), warned(S).
trouble(S) :- storm(S).
behind(S, On) :- trouble(S), depends(S, On).
behind(S, Far) :- behind(S, On), depends(On, Far).
suspect(On) :- behind(_, On).
suspect(S) :- trouble(S), !slow(S).
team(T) :- trouble(S), service(S, T).
team(T) :- suspect(S), service(S, T).
outdated(S) :- version(S, V), !released(S, V).
current(S) :- version(S, V), released(S, V).
book(Uri) :- team(T), runbook(T, Uri).
quiet() :- !any_trouble().
any_trouble() :- trouble(_).
broad() :- suspect(A), suspect(B), A != B.
asked(W) :- wants(W).
database(S) :- understood(S, "database").
"""

POLICY = """
prohibited("tool_3", "not on weekends") :- intent("intent_0"), !client_permission("weekend").
prohibited(Tool, "frozen") :- frozen(Tool), setting("frozen", "yes").
prohibited("tool_7", "needs a current version") :- intent("intent_0"), outdated(_), !current(_).
effect_denied("action_9", "no payments for anonymous clients") :- client_trust("anonymous").
frozen("tool_1"). frozen("tool_2").
"""
STORM = 'prohibited("tool_11", "a storm") :- storm(_), !client_permission("storm").'
"""Left out of a pack that is too small to have this tool."""

CONDITIONS = (
    "trouble(S)",
    "outdated(S)",
    "suspect(S), service(S, _)",
    "version(S, V), service(S, _)",
    "storm(S)",
    'asked("more")',
    "understood(S, Kind)",
    "current(S)",
    "failing(S)",
    "quiet()",
)
"""Half of them depend on the evaluation time."""


def tool_rules(count: int) -> Iterator[str]:
    for i in range(count):
        intent = f'intent("intent_{i // PER_INTENT}")'
        condition = CONDITIONS[i % len(CONDITIONS)]
        head = f'mandatory("tool_{i}")' if i % PER_INTENT == 0 else f'relevant("tool_{i}", {30 + 31 * i % 70})'
        yield f"{head} :- {intent}, {condition}." if i % PER_INTENT else f"{head} :- {intent}."
        if i % 3 == 0:
            text = f"Look at the newest first; this is number {i}."
            yield f'instruction("tool_{i}", 1, "{text}") :- trouble(_).'
        if i % 10 == 0:
            yield f'needs_skill("tool_{i}", "skill_{i // 10 % 6}") :- any_trouble().'
        if i % 12 == 0:
            yield f'needs_resource("tool_{i}", Uri, "What the team wrote down", 60) :- book(Uri).'


def tool_facts(count: int) -> Iterator[str]:
    for i in range(count):
        yield f'macro("tool_{i}", "{description(i)}").'
        yield f'macro_step("tool_{i}", 1, "action_{i % 30}").'
        if i % 4 == 1:
            yield f'macro_step("tool_{i}", 2, "action_{(i + 7) % 30}").'
            yield f'arg_value("tool_{i}", 1, "depth", {i}).'
        if i % PER_INTENT == 4 and i + 1 < count:
            yield f'requires("tool_{i}", "tool_{i + 1}").'
        if i % PER_INTENT == 8 and i + 1 < count:
            yield f'conflicts("tool_{i}", "tool_{i + 1}").'


def description(i: int) -> str:
    return f"Looks for cause number {i} of a failure in what was recorded, and says where to look next."


def actions() -> Iterator[ActionDescription]:
    for i in range(30):
        properties = {
            "path": {"type": "string", "description": "The folder with the recording."},
            "depth": {"type": "integer", "description": "How many calls to follow.", "minimum": 1},
            f"filter_{i}": {"type": "string", "description": "Only lines that contain this."},
        }
        yield ActionDescription(
            name=f"action_{i}",
            aid=f"bench.action_{i}",
            description=f"Reads recording number {i}.",
            input_schema={"type": "object", "properties": properties, "required": ["path"]},
            output_schema={"type": "object"},
            effects=("payments",) if i == 9 else ("filesystem",) if i % 5 == 0 else ("none",),
            mutates=i % 5 == 0,
            tool=False,
        )


def make_pack(tools: int) -> Pack:
    texts = (
        ("rules/schema/schema.mg", SCHEMA, Trust.SCHEMA),
        ("rules/policy/policy.mg", f"{POLICY}{STORM if tools > 11 else ''}", Trust.POLICY),
        ("rules/domain/domain.mg", "\n".join([INFERRED, *tool_rules(tools), *tool_facts(tools)]), Trust.DOMAIN),
    )
    intents = [
        IntentSettings(name=f"intent_{i}", description="One of several.") for i in range(1 + (tools - 1) // PER_INTENT)
    ]
    skills = [
        SkillText(skill_id=f"skill_{i}", name=f"Skill {i}", description="How to read it.", content="Read first.\n" * 20)
        for i in range(6)
    ]
    return Pack(
        settings=Settings(
            name="bench",
            domain=DomainSettings(id="bench", description="Generated."),
            permissions=("weekend", "storm"),
            intents=tuple(intents),
        ),
        sources=tuple(Source(file, text, trust) for file, text, trust in texts),
        skills={one.skill_id: one for one in skills},
        actions={one.name: one for one in actions()},
        params={"frozen": "no"},
        digest=f"bench-{tools}",
    )


def base_facts(count: int) -> list[Fact]:
    """Return the facts of a server: services, dependencies, known errors, releases, runbooks."""
    rnd = random.Random(1)
    services = count // 10
    facts = [Fact("service", (f"service_{i}", f"team_{i % 200}")) for i in range(services)]
    facts += [Fact("runbook", (f"team_{i}", f"file:///runbooks/{i}.md")) for i in range(200)]
    facts += [Fact("depends", (f"service_{i}", f"service_{i + 1}")) for i in range(services) if i % 5 < 3]
    facts += [
        Fact("known_error", (f"message {i}", ("database", "network", "code")[i % 3])) for i in range(count * 3 // 10)
    ]
    facts += [Fact("released", (f"service_{i}", f"1.{i % 50}")) for i in range(services // 10)]
    while len(facts) < count:
        facts.append(Fact("released", (f"service_{rnd.randrange(services)}", f"1.{len(facts)}")))
    return facts


def request_bytes(intent: str = "intent_0", facts: int = 50) -> bytes:
    """Return a request with recent events, failures, durations and versions of a few services."""
    stated: list[dict[str, Any]] = []
    for i in range(facts):
        service = f"service_{5 * (i % 4)}"
        at = {"at": f"2026-01-15T11:{59 - i // 12 % 60:02}:{59 - i % 60:02}Z"}
        stated.append(
            (
                {"pred": "event", "args": [service, "error", f"message {i}"], "t": at},
                {"pred": "failed", "args": [service, f"https://example.org/{i}"], "t": at},
                {"pred": "event", "args": [service, "warning", f"message {i}"], "t": at},
                {"pred": "took", "args": [service, 200 * i], "t": at},
                {"pred": "version", "args": [service, f"1.{i}"]} if i % 2 else {"pred": "wants", "args": ["more"]},
            )[i % 5]
        )
    payload = {
        "intent": {"name": intent},
        "facts": stated,
        "eval_time": NOW_TEXT,
        "constraints": {"max_tools_returned": 20},
    }
    message = {"type": "intent_request", "id": "r-1", "manglecp": "2026-02-draft", "payload": payload}
    return msgspec.json.encode(message)
