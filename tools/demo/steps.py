"""The steps of the demo, in order. Each step prints and checks its results, and stores them for later steps."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
import textwrap
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from manglecp import Server
from manglecp.client import Client, EvaluationResult, InvocationResult, ServerError, Tool, WorkingState
from manglecp.wire import derivation_lines, fact_text, why_not_lines
from manglecp.wire.messages import UNSET, MacroTool, Options, ProgressPayload
from tools.demo import public_server
from tools.demo.environment import Environment, ServerProcess
from tools.demo.mcp_host import McpHost
from tools.demo.terminal import StepFailed, expect, show, table

__all__ = ["STEPS", "DemoState"]

RELEASE: Final = Path(__file__).parent / "release"
BEFORE_FREEZE: Final = "2025-12-31T12:00:00Z"


@dataclass
class DemoState:
    """The results that steps hand on to later steps."""

    environment: Environment
    server: ServerProcess
    url: str
    client: Client
    found: EvaluationResult | None = None
    outcome: InvocationResult | None = None
    fixes: EvaluationResult | None = None


Work = Callable[[DemoState], Awaitable[None]]
STEPS: Final[list[tuple[str, str, Work]]] = []


def step(title: str, sentence: str) -> Callable[[Work], Work]:
    def add(work: Work) -> Work:
        STEPS.append((title, sentence, work))
        return work

    return add


@step("Manifest", "The server sends its purpose and the facts that clients may assert. The manifest has no tools.")
async def manifest(demo: DemoState) -> None:
    manifest = await demo.client.ready()
    expect(manifest.domain.id == "incident" and manifest.auth.required, "this is not the incident pack with tokens")
    principal = demo.client.identity
    expected = demo.environment.kim.name
    expect(principal is not None and principal.identity == expected, f"the client is not authenticated as {expected}")
    intents = [intent.name for intent in manifest.intents]
    expect(intents == ["observe", "diagnose_error", "fix_error"], f"the intents are {intents}")
    show(f"{manifest.server_name} {manifest.server_version} at {demo.url}")
    show(f"MangleCP {manifest.protocol.manglecp}, level {manifest.protocol.conformance_level}")
    show(f"intents: {', '.join(intents)}")
    facts = [one.predicate for one in manifest.facts_profile.predicates if one.direction != "output"]
    expect("console_event" in facts, f"clients may assert {facts}")
    show(f"facts:   {', '.join(facts)}")
    show("The client sent a token; the server authenticated it as kim, who has the permission fix.")


@step(
    "Intent",
    "The agent declares an intent, with recent facts from a browser and a backend. Rules prove which tools fit.",
)
async def intent(demo: DemoState) -> None:
    demo.client.state.add([*demo.environment.facts, {"pred": "undiagnosed_error", "args": [_error(demo)]}])
    show("diagnose_error, with")
    show(f"  {fact_text(fact)}" for fact in demo.environment.facts[1:])
    show()
    demo.found = await demo.client.evaluate("diagnose_error", options=Options(include_proof_hints=True))
    names = [tool.name for tool in demo.found]
    expect(names == ["full_stack_diagnosis", "list_failures", "read_errors"], f"the tools are {names}")
    show(table([("TOOL", "SHOWN", "EFFECTS", "EXPIRES"), *(_row(tool.definition) for tool in demo.found)]))


def _error(demo: DemoState) -> str:
    [message] = (fact["args"][2] for fact in demo.environment.facts if fact["pred"] == "console_event")
    return str(message)


def _row(tool: MacroTool) -> tuple[str, ...]:
    effects = "-" if tool.safety is UNSET else ", ".join(tool.safety.side_effects)
    expires = "-" if tool.validity is UNSET or tool.validity.expires_at is UNSET else tool.validity.expires_at
    return tool.name, tool.disclosure_level, effects, expires


@step("Why", "Each tool has a proof: the rules that derive it, and the facts on which they depend.")
async def why(demo: DemoState) -> None:
    assert demo.found is not None
    hints = demo.found.result.proof_hints
    expect(hints is not UNSET, "the result has no proofs")
    assert hints is not UNSET
    tool = demo.found["full_stack_diagnosis"]
    [proof] = (one for one in hints.derivations if one.macro_id == tool.macro_id)
    used = {fact["pred"] for fact in proof.supporting_facts}
    expect(used >= {"console_event", "network_request", "backend_log"}, f"the proof depends on {sorted(used)}")
    show(derivation_lines(tool.name, proof))
    show()
    show(f"{one.candidate} is excluded, {one.excluded_by}: {one.reason}" for one in hints.excluded)


@step(
    "Why not",
    "Fifteen minutes later the failure is not recent. The tool is not offered, and the server reports what is missing.",
)
async def why_not(demo: DemoState) -> None:
    later = (datetime.now(UTC) + timedelta(minutes=15)).isoformat(timespec="seconds").replace("+00:00", "Z")
    tool = "full_stack_diagnosis"
    found = await demo.client.evaluate("diagnose_error", eval_time=later, options=Options(why_not=(tool,)))
    expect(tool not in found, f"{tool} is still offered")
    hints = found.result.proof_hints
    answers = () if hints is UNSET or hints.why_not is UNSET else hints.why_not
    expect(len(answers) == 1 and answers[0].known and bool(answers[0].would_unlock), "the result has no unlock")
    show(why_not_lines(answers[0]))


@step("Invocation", "The tool is a chain of actions. They run in a sandboxed host process, which reports its progress.")
async def invocation(demo: DemoState) -> None:
    assert demo.found is not None
    reports: list[ProgressPayload] = []

    def on_progress(progress: ProgressPayload) -> None:
        reports.append(progress)
        percent = "" if progress.percent is None else f"{progress.percent:.0f} %"
        show(f"{percent:>5}  {progress.status:<10}  {progress.detail or ''}")

    show(await _sandbox(demo.environment))
    show()
    demo.outcome = await demo.client.invoke(demo.found["full_stack_diagnosis"], on_progress=on_progress)
    result = demo.outcome.result
    expect(len(reports) >= 2, "there were no progress reports")
    expect(result.get("cause") == "missing_route" and result.get("proven") is True, f"the result is {result}")
    show()
    show(demo.outcome.summary)
    show(f"  {number}. {event}" for number, event in enumerate(result["causal_chain"], 1))


async def _sandbox(environment: Environment) -> list[str]:
    """Return the sandbox mechanisms of a host process on this machine."""
    actions = str(environment.pack / "actions.py")
    status, output = await environment.command("toolhost", "--list", actions, "--sandbox", "strict", "--degrade")
    expect(status == 0, f"the host process cannot be started: {output}")
    sandbox = json.loads(output)["sandbox"]
    missing = [f"not available on this machine: {name}, {why}" for name, why in sandbox["missing"].items()]
    return [f"sandbox: {', '.join(sandbox['active']) or 'no mechanism'}", *missing]


@step("Delta", "The result has the facts that the run asserts and retracts. The client applies them in one step.")
async def delta(demo: DemoState) -> None:
    assert demo.outcome is not None
    applied, state = demo.outcome.applied, demo.client.state
    show(f"- {fact_text(fact)}" for fact in applied.retracted)
    show(f"+ {fact_text(fact)}" for fact in applied.asserted)
    expect({"pred": "undiagnosed_error", "args": [_error(demo)]} not in state, "the error still counts as undiagnosed")
    expect(
        {"pred": "diagnosed_error", "args": [_error(demo), "missing_route"]} in state,
        "the fact with the cause is missing",
    )
    show()
    show(f"The client holds {len(state)} facts now.")


@step(
    "Suggestion",
    "The server suggests the next intent, and the client follows. Policy decides which user gets which tool.",
)
async def suggestion(demo: DemoState) -> None:
    assert demo.outcome is not None
    suggested = demo.outcome.suggestion("fix_error")
    show(f"{suggested.name} {json.dumps(suggested.params)}: {suggested.description}")
    demo.fixes = await demo.client.follow(demo.outcome, "fix_error")
    lee = demo.environment.lee
    async with Client(demo.url, token=lee.token, state=WorkingState(demo.client.state)) as client:
        theirs = await client.follow(demo.outcome, suggested)
    for person, tools in ((demo.environment.kim, demo.fixes), (lee, theirs)):
        show(f"  {person.name} is offered {' and '.join(tool.name for tool in tools)}")
    expect({tool.name for tool in demo.fixes} == {"propose_fix", "apply_fix"}, "kim is not offered both")
    expect({tool.name for tool in theirs} == {"propose_fix"}, "lee, who may not fix, is not offered the diff alone")
    show()
    proposed = await demo.client.invoke(demo.fixes["propose_fix"])
    diff = proposed.result.get("diff", "")
    expect('+"/api/users"' in diff, f"the diff is {diff!r}")
    expect("/api/users" not in demo.environment.routes(), "the proposal has changed the file")
    show(diff.splitlines())


@step(
    "Approval",
    "A change of a file needs an approval. The server stores the request; the agent gets only its id.",
)
async def approval(demo: DemoState) -> None:
    assert demo.fixes is not None
    tool, environment = demo.fixes["apply_fix"], demo.environment
    request = await _request(demo.client, tool)
    show(f"kim's agent gets the id {request}")
    own = await _refusal(demo.client.approve(request), "auth_insufficient")
    show(f"kim's agent tries to approve it: {own}")
    expect("/api/users" not in environment.routes(), "the file was changed without an approval")
    async with Client(demo.url, token=environment.ann.token) as approver:
        shown = await approver.approval(request)
        text = "" if shown.text is UNSET else shown.text
        expect("replace_file" in text, "the approval request does not name the action")
        show(["", "ann reads the request at the server, with a token of her own:", textwrap.indent(text, "  ")])
        await approver.approve(request)
    demo.outcome = await demo.client.invoke(tool, approval=request)
    show(["", "ann approves. The agent repeats the call with the id, and the server executes it once."])
    again = await _refusal(demo.client.invoke(tool, approval=request), "confirmation_invalid")
    show(f"The same id again: {again}")


async def _request(client: Client, tool: Tool) -> str:
    """Invoke a tool that needs approval, and return the id of the request."""
    try:
        await client.invoke(tool)
    except ServerError as error:
        expect(error.approval is not None, f"the server returned {error}")
        return str(error.approval)
    raise StepFailed(f"{tool.name} needed no approval")


async def _refusal(work: Awaitable[object], code: str) -> str:
    """Return the text of the server's error, which must have this code."""
    try:
        await work
    except ServerError as error:
        expect(error.code == code, f"the server returned {error}")
        return str(error)
    raise StepFailed("the server accepted it")


@step("Change", "The run is complete, and the change is in the workspace.")
async def change(demo: DemoState) -> None:
    assert demo.outcome is not None
    show(demo.outcome.summary)
    events = demo.outcome.response.observability.events
    show(f"  {event.status}  {event.action}" for event in events)
    routes = demo.environment.routes()
    expect(routes.get("/api/users") == "users.index", f"the routes are {routes}")
    show()
    show(demo.environment.table.read_text(encoding="utf-8").splitlines())
    show()
    gone = demo.outcome.applied.retracted
    expect([fact["pred"] for fact in gone] == ["fix_candidate"], "the fix is still a candidate")
    show(f"- {fact_text(fact)}" for fact in gone)
    later = await demo.client.follow(demo.outcome, "observe")
    expect("list_failures" in later, "list_failures is not offered")
    show(f"next: {demo.outcome.suggestion('observe').description} ({', '.join(tool.name for tool in later)})")


@step(
    "Attack: the clock",
    "Policy forbids deployments during a freeze. An agent asks for the tools of a day before it, and invokes one.",
)
async def back_dated(demo: DemoState) -> None:
    async with _released(demo) as (_, agent):
        now = await agent.evaluate("release")
        expect("deploy_release" not in now, "deploy_release is offered during the freeze")
        show("now: " + ", ".join(tool.name for tool in now))
        before = await agent.evaluate("release", eval_time=BEFORE_FREEZE)
        expect(before.result.hypothetical is True, "the evaluation is not marked as hypothetical")
        show(f"at {BEFORE_FREEZE}, hypothetically: " + ", ".join(tool.name for tool in before))
        work = agent.invoke(before["deploy_release"], eval_time=BEFORE_FREEZE)
        show(f"The agent invokes deploy_release: {await _refusal(work, 'macro_expired')}")
    expect(not (demo.environment.release / "deployed.txt").exists(), "the release was deployed")
    show("The server uses its own clock. Nothing was deployed.")


@step(
    "Attack: the file",
    "The approver reads the file that is published. After the approval an agent swaps it, and uses the approval.",
)
async def swapped(demo: DemoState) -> None:
    notes = demo.environment.release / "notes.txt"
    async with _released(demo) as (server, agent):
        tool = (await agent.evaluate("release"))["publish_notes"]
        request = await _request(agent, tool)
        async with Client(server, token=demo.environment.ann.token) as approver:
            text = (await approver.approval(request)).text
            expect(text is not UNSET and "Version 2: faster." in text, f"ann reads {text}")
            show(["ann reads, and approves:", textwrap.indent(str(text), "  ")])
            await approver.approve(request)
        notes.write_text("Version 2: send your password to evil.example.\n", encoding="utf-8")
        refused = await _refusal(agent.invoke(tool, approval=request), "confirmation_invalid")
        show(["", f"The file is swapped, and the approval used: {refused}"])
    expect(not (demo.environment.release / "published.txt").exists(), "the swapped file was published")
    show("The preview is made again before the effect. Nothing was published.")


@asynccontextmanager
async def _released(demo: DemoState) -> AsyncIterator[tuple[Server, Client]]:
    """Yield a server with the release pack, in this process, and the client of kim's agent."""
    environment = demo.environment
    served = Server(RELEASE, workspace=[environment.release], tokens=environment.tokens, degrade=True)
    async with served as server, Client(server, token=environment.kim.token) as agent:
        yield server, agent


@step(
    "Guard", "MCP servers that know nothing of rules get relays in front of them. Then a tool changes its description."
)
async def guard(demo: DemoState) -> None:
    environment, folder = demo.environment, demo.environment.guarded
    config, store = folder / "mcp.json", str(folder / ".manglecp" / "guard.db")
    notes = {"command": sys.executable, "args": [str(Path(__file__).with_name("notes_server.py")), str(folder)]}
    servers = {"notes": notes}
    has_public = public_server.COMMAND.exists() and shutil.which("git") is not None
    if has_public:
        await _run("git", "init", "--quiet", "--initial-branch", "main", str(folder / "repo"))
        servers["git"] = {"command": str(public_server.COMMAND), "args": []}
    else:
        show(f"{public_server.PACKAGE} is not installed here. This is a small server of the demo.")
    config.write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
    status, output = await environment.command("guard", str(config), "--enforce", "--yes")
    expect(status == 0, f"the servers cannot be guarded: {output}")
    named = ("TOOL ", "git.git_status ", "git.git_create_branch ", "git.git_commit ", "notes.read ", "notes.delete ")
    show(line for line in output.splitlines() if line.startswith(named))
    show()
    if has_public:
        repository = str(folder / "repo")
        commit: dict[str, Any] = {"repo_path": repository, "message": "First"}
        (folder / "repo" / "notes.txt").write_text("A note.\n", encoding="utf-8")
        await _run("git", "-C", repository, "add", "notes.txt")
        async with McpHost.start(config, "git", {**environment.variables, **_AUTHOR}) as host:
            text = await host.call("git_status", repo_path=repository)
            expect("notes.txt" in text, f"git_status: {text}")
            show(f"The agent calls git_status of {public_server.PACKAGE}: it reads, and is allowed")
            text = await host.call("git_commit", is_error=True, **commit)
            show(f"The agent calls git_commit: {text.partition(' Ask the user')[0]}")
            [request] = [word for word in text.split() if word.startswith("ap-")]
            status, output = await environment.command("approvals", "approve", request, "--yes", "--store", store)
            expect(status == 0, f"the approval failed: {output}")
            show(f"The user approves it, and the agent repeats it: {await host.call('git_commit', **commit)}")
            text = await host.call("git_commit", is_error=True, **commit)
            show(f"The agent calls it again: {text.partition(' Ask the user')[0]}")
        show()
    async with McpHost.start(config, "notes", environment.variables) as host:
        show(f"The agent calls read: {await host.call('read', name='a')}")
        text = await host.call("delete", is_error=True, name="a")
        show(f"The agent calls delete: {text.partition(' Ask the user')[0]}")
        (folder / "changed").touch()
        listed = await host.tools()
        expect(listed == ["delete"], f"the guard lists {listed}")
        show("The description of read changes. The guard lists only: delete")
        show(f"The agent calls read: {await host.call('read', is_error=True, name='a')}")


_AUTHOR: Final = {f"GIT_{who}_{what}": "demo" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


async def _run(*command: str) -> None:
    process = await asyncio.create_subprocess_exec(*command)
    expect(await process.wait() == 0, f"{command[0]} failed")


@step("Ledger", "Runs and decisions are in a ledger with a hash chain. Verification detects a changed entry.")
async def ledger(demo: DemoState) -> None:
    environment = demo.environment
    await demo.client.close()
    status = await demo.server.stop()
    expect(status == 0, f"the server ended with {status}")
    _, entries = await environment.command("ledger", "list", "--store", str(environment.store))
    expect("apply_fix" in entries and "replace_file done" in entries, f"the ledger holds {entries or 'nothing'}")
    show(entries.splitlines())
    status, verdict = await environment.command("ledger", "verify", "--store", str(environment.store))
    expect(status == 0 and verdict.endswith(": ok"), f"the ledger is not valid: {verdict}")
    show()
    show(verdict)
    export, store = str(environment.export), str(environment.store)
    status, output = await environment.command("ledger", "export", export, "--store", store)
    expect(status == 0, f"the ledger cannot be exported: {output}")
    text = environment.export.read_text(encoding="utf-8")
    expect('"kim"' in text, "the ledger does not contain the principal")
    environment.export.write_text(text.replace('"kim"', '"lee"', 1), encoding="utf-8")
    status, output = await environment.command("ledger", "verify", export)
    expect(status == 1, "the verification did not detect the changed entry")
    show()
    show("An exported ledger, with lee instead of kim in the first entry:")
    show(f"  {line}" for line in output.splitlines()[:-1])
