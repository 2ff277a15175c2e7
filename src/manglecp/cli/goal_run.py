"""One execution of ``manglecp run``: its target, its selector, its approvals and its output."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import shutil
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from manglecp import runner, toolhost
from manglecp.base.child import capture
from manglecp.base.digest import digest, digest_bytes
from manglecp.base.text import escape_invisible
from manglecp.cli import VerbError
from manglecp.cli.files import read_json, read_sources
from manglecp.cli.intent_request import clock_starting_at, decode_value
from manglecp.cli.invocation import CallRequest, LocalSession
from manglecp.cli.options import CallerOptions, IntentOptions, RuntimeOptions
from manglecp.cli.output import ProgressLine, columns, count, json_text, print_result, print_stderr, refuse, write_lines
from manglecp.cli.run_log import read_key
from manglecp.cli.target import is_at_terminal, prompt_for_approval
from manglecp.cli.tool_text import argument_schemas
from manglecp.invoke import open_packs, serve_pack_actions
from manglecp.mangle import MangleError
from manglecp.runner import ActionOutcome, ControlMode, MenuAction, RunnerError
from manglecp.toolhost import Artifact, HostCommand, Listing, Slots
from manglecp.wire import WireError, messages


@dataclass(kw_only=True)
class GoalRun:
    """The command line of ``manglecp run``."""

    target: tuple[str, ...]
    goal_file: str
    goal_id: str | None
    request_id: str | None
    run_inputs: Mapping[str, str]
    rules: tuple[str, ...]
    policy: str | None
    policy_env: tuple[str, ...]
    policy_timeout: float
    autopilot: int | None
    allow: tuple[str, ...]
    intent: str | None
    inputs: IntentOptions
    confirm: bool
    log_file: Path | None
    key_file: str | None
    why: bool
    caller: CallerOptions
    runtime: RuntimeOptions
    as_json: bool

    async def run(self) -> int:
        """Run, print the result, and return the exit status. Raises ``ClickException`` or ``RunnerError`` otherwise."""
        selector = self._selector()
        goal, request = self._read_request()
        header = runner.RunHeader.new(request.request_id)
        budget = runner.Budget() if self.autopilot is None else runner.Budget(steps=self.autopilot)
        async with AsyncExitStack() as stack:
            with ProgressLine("loading"):
                actions, execute = await self._open_target(stack, request, header.run_id, budget.steps)
            goal.check(request.inputs, [action.aid for action in actions])
            menu = request.menu(actions)
            if not menu.entries:
                tags = ", ".join(sorted({tag for action in actions for tag in action.tags})) or "none"
                raise RunnerError(f"no action has a tag of {', '.join(request.candidate_tags)}; tags here: {tags}")
            file = self.log_file or Path(f"run-{header.run_id}.jsonl")
            try:
                log = stack.enter_context(runner.RunLog.create(file, header, key=read_key(self.key_file)))
            except OSError as error:
                raise VerbError(f"cannot create {click.format_filename(file)}: {error.strerror}") from None
            result = await runner.run(
                request,
                {},
                _PrintingLog(log, self.why, self.as_json),
                menu=lambda _: menu,
                execute=execute,
                selector=selector,
                goal_done=goal.is_complete,
                budget=budget,
            )
        members = {**header.members(), **result.members(), "inputs": result.inputs, "log": str(file), "head": log.head}
        document = {"ok": result.reason.exit_code == 0, **members, "ds_state": toolhost.full_state(result.state)}
        slots = sorted(result.state.items())
        lines = [f"DS{slot}: {escape_invisible(artifact.content_json)}" for slot, artifact in slots]
        summary = f"{result.reason} after {count(result.steps, 'step')}"
        advice = f"verify the log with: manglecp run-log verify {shlex.quote(str(file))} --head {log.head}"
        print_result(document, [*lines, summary, advice], as_json=self.as_json)
        return result.reason.exit_code

    def _selector(self) -> runner.Selector:
        if self.rules and self.policy is not None:
            raise click.UsageError("give either --rules or --policy.")
        if self.rules:
            try:
                return runner.RulesSelector(read_sources(self.rules))
            except MangleError as error:
                refuse(error, status=2)
        if self.policy is None and self.autopilot is None and not is_at_terminal():
            raise click.UsageError("there is no terminal to pick at: give --rules, --policy or --autopilot.")
        if self.policy is None:
            return _pick_at_terminal if self.autopilot is None else runner.FirstFit()
        try:
            program, *arguments = shlex.split(self.policy)
        except ValueError as error:  # the text has an unclosed quote, or no word
            raise click.UsageError(f"--policy: {error}.") from None
        program_path = shutil.which(program)
        if program_path is None:
            raise click.UsageError(f"--policy: there is no program {program!r}.")
        path = os.path.abspath(program_path)  # noqa: PTH100 - resolve() would leave a virtual environment
        env = {name: os.environ[name] for name in self.policy_env if name in os.environ}
        limits = runner.PolicyLimits(seconds=self.policy_timeout)
        policy = runner.ExternalPolicy([path, *arguments], {path}, compatible=True, env=env, limits=limits)

        async def select(situation: runner.Situation) -> runner.Selection:
            with ProgressLine("selecting"):
                return await policy(situation)

        return select

    def _read_request(self) -> tuple[runner.Goal, runner.RunRequest]:
        mode = ControlMode.POLICY_ONLY if self.rules or self.policy else ControlMode.FALLBACK_ONLY
        goal = runner.GoalPack.read(read_json(self.goal_file)).find(self.goal_id)
        inputs = {name: decode_value(text) for name, text in self.run_inputs.items()}
        return goal, runner.RunRequest(self.goal_id or goal.goal_id, inputs, goal.candidate_tags, mode, self.request_id)

    async def _open_target(
        self, stack: AsyncExitStack, request: runner.RunRequest, run_id: str, max_effects: int
    ) -> tuple[list[MenuAction], runner.Execute]:
        """Return the actions of the target, and the function that executes an action."""
        first, *other_words = self.target
        is_pack = not other_words and Path(first).is_dir()
        if not is_pack and self.intent is not None:
            raise click.UsageError("--intent is for a pack, whose rules prove its tools.")
        if is_pack and self.allow:
            raise click.UsageError(
                "--allow is for plugins and commands; the effects of a pack are tools: give --intent."
            )
        if is_pack:
            return await self._open_pack(stack, Path(first))
        is_command = other_words or (not first.endswith(".py") and shutil.which(first) is not None)
        list_actions = self._list_command if is_command else self._list_plugin
        command, document, plugin_digest = await asyncio.to_thread(list_actions)
        plugin = toolhost.ServedPlugin(toolhost.read_catalogue(document), command)
        dispatcher = await stack.enter_async_context(toolhost.Dispatcher([plugin], size=1))
        return runner.read_actions(document), runner.GatedExecutor(
            dispatcher,
            run_id,
            self._approve,
            admission_digest=digest([request.goal_id, dict(request.inputs), self.allow]),
            selector=self.policy or " ".join(self.rules) or ("first-fit" if self.autopilot else "operator"),
            plugin_digest=plugin_digest,
            sandbox="none" if is_command else "spawn" if command.contained else "strict",
            max_effects=max_effects,
        )

    def _list_plugin(self) -> tuple[HostCommand, bytes, str]:
        """Return the command of the plugin's host, its list of actions, and the digest of the plugin."""
        policy, workspace = self.runtime.sandbox, [str(folder.resolve()) for folder in self.runtime.workspace]
        listing = toolhost.list_plugin(self.target[0], os.environ, policy=policy)
        if not isinstance(listing, Listing):
            raise VerbError(listing["detail"])
        command = listing.command(os.environ, programs=self.runtime.programs, workspace=workspace, policy=policy)
        if not isinstance(command, HostCommand):
            raise VerbError(command["detail"])
        return command, listing.document, f"sha256:{listing.sha256}"

    def _list_command(self) -> tuple[HostCommand, bytes, str]:
        """Return the values of :meth:`_list_plugin` for the command of another toolhost."""
        position = max(len(self.target) - 1, 1)  # --list and --serve are inserted before the last word
        before, after = self.target[:position], self.target[position:]
        settings = {name: value for name, value in os.environ.items() if name.startswith("MACHINA_")}
        environ = {**HostCommand.inherited(os.environ), **settings}
        try:
            output, stderr, status = capture([*before, "--list", *after], environ, seconds=30, limit=1 << 20)
        except OSError as error:
            raise VerbError(f"cannot start {before[0]}: {error.strerror}") from None
        if status != 0:
            text = (output + stderr).decode(errors="replace").strip()[:500]
            raise VerbError(f"{shlex.join(before)} --list failed with status {status}: {text}")
        enforces_leases = settings.get("MACHINA_LEASE_ENFORCE") in ("1", "true")
        command = HostCommand(argv=(*before, "--serve", *after), environ=environ, issues_leases=enforces_leases)
        return command, output, digest_bytes(output)

    def _approve(self, aid: str, input_json: str) -> bool:
        """Return whether --allow names the action, or the user approves it at the terminal."""
        if runner.matches_pattern(aid, self.allow) or prompt_for_approval(f"{aid} has effects. Inputs: {input_json}"):
            return True
        print_stderr(f"{aid} was not approved; --allow {aid} approves it")
        return False

    async def _open_pack(self, stack: AsyncExitStack, folder: Path) -> tuple[list[MenuAction], runner.Execute]:
        """Return the actions of tier 0 and the proven tools as the menu, and the function that executes an entry."""
        options, identity = self.runtime.for_pack(folder), self.caller.identity
        payload = self.inputs.payload(self.intent or "")
        clock = clock_starting_at(payload["eval_time"])
        packs = await stack.enter_async_context(open_packs([options], self.runtime.open_store, clock=clock))
        pack = packs.invokers[0].domain.pack
        dispatcher = await stack.enter_async_context(serve_pack_actions(pack, options))
        execute_action = runner.PluginExecutor(dispatcher, identity.name)
        request = CallRequest(payload=payload, tool="", args={}, confirm=self.confirm)
        tools: dict[str, messages.MacroTool] = {}
        if self.intent is not None:
            try:
                proven = await LocalSession(request, identity, packs).tools()
            except WireError as error:
                raise VerbError(f"{error.code}: {error.message}") from None
            tools = {f"AID.TOOL.{re.sub('[^A-Z0-9_]', '_', tool.name.upper())}.v1": tool for tool in proven}
        safe_actions = [action for action in pack.actions.values() if action.tier == toolhost.SAFE]
        entries = [(action.aid, action.name, action.input_schema) for action in safe_actions]
        entries += [(aid, tool.name, tool.input_schema or {}) for aid, tool in tools.items()]
        tags = frozenset({runner.META_TAG})  # for every goal: actions of a pack have no tags
        menu = [MenuAction(aid, name, tags, inputs_schema=schema) for aid, name, schema in entries]

        async def execute(aid: str, inputs: dict[str, Any], state: Slots) -> ActionOutcome:
            """Execute an action, or invoke a tool as ``manglecp call`` does; the result of a tool becomes slot 0."""
            if aid not in tools:
                return await execute_action(aid, inputs, state)
            args = {name: json.dumps(inputs[name]) for name in argument_schemas(tools[aid]) if name in inputs}
            session = LocalSession(replace(request, tool=tools[aid].name, args=args), identity, packs)
            try:
                output = (await session.invoke(await session.prove())).result
            except WireError as error:
                failure = {"code": error.code, "detail": error.message}
                return ActionOutcome(runner.StepStatus.TOOL_ERROR, failure, state)
            text = json.dumps(output, ensure_ascii=False)
            artifact = Artifact("json", tools[aid].name, text, len(text.encode()))
            return ActionOutcome(runner.StepStatus.OK, output, {**state, 0: artifact})

        return menu, execute


@dataclass(frozen=True, slots=True)
class _PrintingLog:
    """Writes events to the log, and prints proofs, outcomes and refused selections."""

    log: runner.RunLog
    why: bool
    as_json: bool

    def write(self, event: str, step: int, payload: Mapping[str, Any]) -> None:
        self.log.write(event, step, payload)
        number, lines = f"{step + 1:>3}  ", list[str]()
        if event == "tool_ok":
            lines = [f"{number}{payload['aid']}  {json_text(payload['output'])}"]
        elif event == "tool_error":
            error = payload["err"]
            reason = error["detail"] if isinstance(error, dict) and "detail" in error else json_text(error)
            lines = [f"{number}{payload['aid']}  {payload['status']}: {reason}"]
        elif event == "invalid_pick":
            lines = [f"{number}refused selection: {payload['why']}"]
        elif event == "selector_chosen" and self.why:
            lines = [f"     {line}" for line in payload.get("why", "").splitlines()]
        if self.as_json:  # standard output is for the document alone
            print_stderr(*lines)
        else:
            write_lines(map(escape_invisible, lines))


def _pick_at_terminal(situation: runner.Situation) -> runner.Selection:
    """Print the menu; prompt for an entry, and for each input that the entry requires and the run does not have."""
    entries = situation.menu.entries
    print_stderr(*columns([(entry.sid, entry.action.aid, entry.action.name) for entry in entries]))
    answer = click.prompt("Number (? asks the supervisor, Enter ends)", default="", show_default=False, err=True)
    if answer in ("", "?"):
        return runner.parse_selection("<ASK_SUP><END>" if answer else "<NOOP><END>")
    sid = f"SID{int(answer):04}" if answer.isascii() and answer.isdecimal() else answer
    action = situation.menu.get(sid)
    names = (action.inputs_schema or {}).get("required", ()) if action is not None else ()
    patch = {name: decode_value(click.prompt(name, err=True)) for name in names if name not in situation.inputs}
    return runner.parse_selection(f"<PICK><{sid}><INP>{json.dumps(patch)}</INP><END>")
