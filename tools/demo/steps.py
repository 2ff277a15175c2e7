"""What is shown, in order. Each step checks what it shows, and goes on from what earlier ones found out."""

from __future__ import annotations

import json
import secrets
import textwrap
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from manglecp.client import Client, Evaluation, OnConfirm, Outcome, Question, ServerError, Signer, Tool, WorkingState
from manglecp.wire import derivation_lines, fact_text, why_not_lines
from manglecp.wire.messages import UNSET, MacroTool, Options, ProgressPayload
from tools.demo.place import Place, Server
from tools.demo.showing import Unexpected, expect, say, table

__all__ = ["STEPS", "Walk"]


@dataclass
class Walk:
    """What earlier steps found out and later ones go on from."""

    place: Place
    server: Server
    url: str
    client: Client
    found: Evaluation | None = None
    outcome: Outcome | None = None
    fixes: Evaluation | None = None


Work = Callable[[Walk], Awaitable[None]]
STEPS: Final[list[tuple[str, str, Work]]] = []


def step(title: str, sentence: str) -> Callable[[Work], Work]:
    def add(work: Work) -> Work:
        STEPS.append((title, sentence, work))
        return work

    return add


@step("Manifest", "The server says what it is for and which facts it understands. It names no tool.")
async def manifest(walk: Walk) -> None:
    told = await walk.client.ready()
    expect(told.domain.id == "incident" and told.auth.required, "this is not the incident pack behind tokens")
    known = walk.client.identity
    expect(known is not None and known.identity == walk.place.kim.name, "the server does not know the client")
    intents = [intent.name for intent in told.intents]
    expect(intents == ["observe", "diagnose_error", "fix_error"], f"the intents are {intents}")
    say(f"{told.server_name} {told.server_version} at {walk.url}")
    say(f"MangleCP {told.protocol.manglecp}, level {told.protocol.conformance_level}")
    say(f"intents: {', '.join(intents)}")
    facts = [one.predicate for one in told.facts_profile.predicates if one.direction != "output"]
    expect("console_event" in facts, f"it understands {facts}")
    say(f"facts:   {', '.join(facts)}")
    say("The client showed a token; the server knows it as kim, who has the permission fix.")


@step(
    "Intent",
    "The agent says what it wants, with what a browser and a backend saw a moment ago. Rules prove which tools fit.",
)
async def intent(walk: Walk) -> None:
    walk.client.state.add([*walk.place.facts, {"pred": "undiagnosed_error", "args": [_error(walk)]}])
    say("diagnose_error, with")
    say(f"  {fact_text(fact)}" for fact in walk.place.facts[1:])
    say()
    walk.found = await walk.client.evaluate("diagnose_error", options=Options(include_proof_hints=True))
    names = [tool.name for tool in walk.found]
    expect(names == ["full_stack_diagnosis", "list_failures", "read_errors"], f"the tools are {names}")
    say(table([("TOOL", "SHOWN", "EFFECTS", "EXPIRES"), *(_row(tool.definition) for tool in walk.found)]))


def _error(walk: Walk) -> str:
    [message] = (fact["args"][2] for fact in walk.place.facts if fact["pred"] == "console_event")
    return str(message)


def _row(tool: MacroTool) -> tuple[str, ...]:
    effects = "-" if tool.safety is UNSET else ", ".join(tool.safety.side_effects)
    expires = "-" if tool.validity is UNSET or tool.validity.expires_at is UNSET else tool.validity.expires_at
    return tool.name, tool.disclosure_level, effects, expires


@step("Why", "Every tool comes with its proof: the rules that speak for it, and the facts that they rest on.")
async def why(walk: Walk) -> None:
    assert walk.found is not None
    hints = walk.found.result.proof_hints
    expect(hints is not UNSET, "the answer has no proofs")
    assert hints is not UNSET
    tool = walk.found["full_stack_diagnosis"]
    [proof] = (one for one in hints.derivations if one.macro_id == tool.macro_id)
    said = {fact["pred"] for fact in proof.supporting_facts}
    expect(said >= {"console_event", "network_request", "backend_log"}, f"the proof rests on {sorted(said)}")
    say(derivation_lines(tool.name, proof))
    say()
    say(f"{one.candidate} is not there, {one.excluded_by}: {one.reason}" for one in hints.excluded)


@step(
    "Why not",
    "A quarter of an hour later the failure is old news. The tool is gone, and the server says what is missing.",
)
async def why_not(walk: Walk) -> None:
    later = (datetime.now(UTC) + timedelta(minutes=15)).isoformat(timespec="seconds").replace("+00:00", "Z")
    tool = "full_stack_diagnosis"
    found = await walk.client.evaluate("diagnose_error", eval_time=later, options=Options(why_not=(tool,)))
    expect(tool not in found, f"{tool} is still there")
    hints = found.result.proof_hints
    answers = () if hints is UNSET or hints.why_not is UNSET else hints.why_not
    expect(len(answers) == 1 and answers[0].known and bool(answers[0].would_unlock), "nothing says what would bring it")
    say(why_not_lines(answers[0]))


@step(
    "Invocation", "The tool is a chain of actions. They run in a process that is locked in, and tell how far they are."
)
async def invocation(walk: Walk) -> None:
    assert walk.found is not None
    heard: list[ProgressPayload] = []

    def hear(progress: ProgressPayload) -> None:
        heard.append(progress)
        percent = "" if progress.percent is None else f"{progress.percent:.0f} %"
        say(f"{percent:>5}  {progress.status:<10}  {progress.detail or ''}")

    say(await _sandbox(walk.place))
    say()
    walk.outcome = await walk.client.invoke(walk.found["full_stack_diagnosis"], on_progress=hear)
    result = walk.outcome.result
    expect(len(heard) >= 2, "there was no progress")
    expect(result.get("cause") == "missing_route" and result.get("proven") is True, f"the result is {result}")
    say()
    say(walk.outcome.summary)
    say(f"  {number}. {event}" for number, event in enumerate(result["causal_chain"], 1))


async def _sandbox(place: Place) -> list[str]:
    """How this machine locks such a process in, as the process itself tells it."""
    actions = str(place.pack / "actions.py")
    status, told = await place.command("toolhost", "--list", actions, "--sandbox", "strict", "--degrade")
    expect(status == 0, f"no host of actions can be started: {told}")
    sandbox = json.loads(told)["sandbox"]
    missing = [f"not on this machine: {name}, {why}" for name, why in sandbox["missing"].items()]
    return [f"locked in by {', '.join(sandbox['active']) or 'nothing'}", *missing]


@step("Delta", "With the result comes what holds from now on. The client applies it to what it knows, in one step.")
async def delta(walk: Walk) -> None:
    assert walk.outcome is not None
    applied, state = walk.outcome.applied, walk.client.state
    say(f"- {fact_text(fact)}" for fact in applied.retracted)
    say(f"+ {fact_text(fact)}" for fact in applied.asserted)
    expect({"pred": "undiagnosed_error", "args": [_error(walk)]} not in state, "the error still counts as undiagnosed")
    expect({"pred": "diagnosed_error", "args": [_error(walk), "missing_route"]} in state, "the cause is not known")
    say()
    say(f"The client holds {len(state)} facts now.")


@step("Suggestion", "The server suggests what to ask for next, and the client follows. Policy decides who gets what.")
async def suggestion(walk: Walk) -> None:
    assert walk.outcome is not None
    suggested = walk.outcome.suggestion("fix_error")
    say(f"{suggested.name} {json.dumps(suggested.params)}: {suggested.description}")
    walk.fixes = await walk.client.follow(walk.outcome, "fix_error")
    lee = walk.place.lee
    async with Client(walk.url, token=lee.token, state=WorkingState(walk.client.state)) as client:
        theirs = await client.follow(walk.outcome, suggested)
    for person, tools in ((walk.place.kim, walk.fixes), (lee, theirs)):
        say(f"  {person.name} is offered {' and '.join(tool.name for tool in tools)}")
    expect({tool.name for tool in walk.fixes} == {"propose_fix", "apply_fix"}, "kim is not offered both")
    expect({tool.name for tool in theirs} == {"propose_fix"}, "lee, who may not fix, is not offered the diff alone")
    say()
    proposed = await walk.client.invoke(walk.fixes["propose_fix"])
    diff = proposed.result.get("diff", "")
    expect('+"/api/users"' in diff, f"the diff is {diff!r}")
    expect("/api/users" not in walk.place.routes(), "showing the change has made it")
    say(diff.splitlines())


@step("Consent", "To change a file needs a person. The server says what is to be signed; the agent cannot sign it.")
async def consent(walk: Walk) -> None:
    assert walk.fixes is not None
    tool = walk.fixes["apply_fix"]
    await _refused(walk, tool, "signed with another secret", Signer(secrets.token_bytes(32), ask=lambda _: True))
    expect("/api/users" not in walk.place.routes(), "the file was changed without consent")

    signer = Signer(walk.place.kim.secret, ask=lambda _: True)
    signed: list[str] = []

    def ask(question: Question) -> str | bool:
        """On the side of the person. Until the server says what is to be signed, there is nothing to show them."""
        if question.challenge is None:
            return True
        expect("replace_file" in question.text, "kim is not told what would be done")
        say(["", "kim is asked:", textwrap.indent(question.text, "  ")])
        say(f"  challenge {question.challenge['nonce']}, until {question.challenge['expires_at']}")
        signed.append(signer.token(question))
        return signed[-1]

    walk.outcome = await walk.client.invoke(tool, on_confirm=ask)
    expect(len(signed) == 1, f"kim was asked {len(signed)} times")
    say(["", "kim agrees and signs. The server does it, once:"])
    await _refused(walk, tool, "the same token again", lambda _: signed[0])


async def _refused(walk: Walk, tool: Tool, what: str, on_confirm: OnConfirm) -> None:
    try:
        await walk.client.invoke(tool, on_confirm=on_confirm)
    except ServerError as error:
        expect(error.code == "confirmation_invalid", f"{what} is answered with {error}")
        say(f"{what}: {error}")
    else:
        raise Unexpected(f"{what} is taken for consent")


@step("Change", "Now it is done, and it can be seen in the workspace.")
async def change(walk: Walk) -> None:
    assert walk.outcome is not None
    say(walk.outcome.summary)
    events = walk.outcome.answer.observability.events
    say(f"  {event.status}  {event.action}" for event in events)
    routes = walk.place.routes()
    expect(routes.get("/api/users") == "users.index", f"the routes are {routes}")
    say()
    say(walk.place.table.read_text(encoding="utf-8").splitlines())
    say()
    gone = walk.outcome.applied.retracted
    expect([fact["pred"] for fact in gone] == ["fix_candidate"], "the fix still counts as one to be made")
    say(f"- {fact_text(fact)}" for fact in gone)
    later = await walk.client.follow(walk.outcome, "observe")
    expect("list_failures" in later, "nothing shows whether the failure is gone")
    say(f"next: {walk.outcome.suggestion('observe').description} ({', '.join(tool.name for tool in later)})")


@step("Ledger", "What happened is written down in a chain of hashes. An entry that was altered shows.")
async def ledger(walk: Walk) -> None:
    place = walk.place
    await walk.client.close()
    status = await walk.server.stop()
    expect(status == 0, f"the server ended with {status}")
    _, entries = await place.command("ledger", "list", "--store", str(place.store))
    expect("apply_fix" in entries and "replace_file done" in entries, f"the ledger holds {entries or 'nothing'}")
    say(entries.splitlines())
    status, verdict = await place.command("ledger", "verify", "--store", str(place.store))
    expect(status == 0 and verdict.endswith(": ok"), f"the ledger does not hold: {verdict}")
    say()
    say(verdict)
    status, told = await place.command("ledger", "export", str(place.export), "--store", str(place.store))
    expect(status == 0, f"the ledger cannot be exported: {told}")
    text = place.export.read_text(encoding="utf-8")
    expect('"kim"' in text, "the ledger does not name who it was")
    place.export.write_text(text.replace('"kim"', '"lee"', 1), encoding="utf-8")
    status, told = await place.command("ledger", "verify", str(place.export))
    expect(status == 1, "nobody noticed that an entry was altered")
    say()
    say("An export of it, with lee in place of kim in the first entry:")
    say(f"  {line}" for line in told.splitlines()[:-1])
