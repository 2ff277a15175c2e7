"""The check of a toolhost against the IPC contract, by scripted conversations with host processes.

``toolhost_scripts/*.toml`` has the conversations: requests, and the members that their answers must have. A script
needs actions in roles, such as an action that fails; the *cast* is the table with the action for each role. In texts,
``<role.member>`` stands for a member of the cast, ``<plugin>`` for the plugin, and other names for parts of earlier
answers (:mod:`.patterns`).
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
import tomllib
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from manglecp.base.json import resolve_pointer
from manglecp.conformance.patterns import differences, fill, parse

_SCRIPTS: Final = Path(__file__).parent / "toolhost_scripts"


class Step(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request (``send`` as JSON, ``line`` as text, or ``hex``), and its answer."""

    send: Any = None
    line: str = ""
    hex: str | None = None
    pad: int = 0  # the size to which the request is padded with spaces
    repeat: int = 1  # how often the request is sent before the first answer is read; ``<n>`` is the count
    unterminated: bool = False  # whether the input ends after the request, without a newline
    wait: float = 0.0  # seconds before the request is sent, in which leases of the host may expire
    expect: Mapping[str, Any] | None = None  # the expected answer; None for no output
    capture: Mapping[str, str] = {}  # the JSON pointer into the answer for each new name


class Conversation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The requests to one host process: a single request or, with ``--serve``, any number of requests."""

    name: str
    arguments: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()  # ids of the requirements that the conversation tests
    needs: tuple[str, ...] = ()  # roles that the cast must have
    ours: bool = False  # whether it tests additions of this project, or parts that the C++ toolhost lacks
    leases: bool = False  # whether the conversation needs a host that issues leases on its pipe
    environ: Mapping[str, str] = {}  # additional environment variables
    step: tuple[Step, ...] = ()
    end: str = "empty line"  # what ends the input, or "end of input"
    exit: int = 0  # the expected exit status
    stderr: str = "anything"  # the expected standard error: also "nothing" or "something"


class Toolhost(msgspec.Struct, frozen=True, kw_only=True):
    """The host to check."""

    argv: tuple[str, ...]
    plugin: str
    roles: Mapping[str, Mapping[str, Any]] = {}  # the cast: for each role an action, its input and its output
    lease_options: tuple[str, ...] = ()  # the options with which the host issues leases on its pipe
    patience: float = 30.0  # the time limit of an answer, in seconds

    def with_cast(self, file: Path) -> Toolhost:
        """Return this host with the cast of a TOML file. Raises OSError and ValueError."""
        roles = tomllib.loads(file.read_text("utf-8"))
        options = roles.pop("host", {}).get("lease_options", [])
        return msgspec.structs.replace(self, roles=roles, lease_options=tuple(options))

    def missing_roles(self, conversation: Conversation) -> list[str]:
        return [role for role in conversation.needs if role not in self.roles]


def toolhost_conversations() -> dict[str, Conversation]:
    """Return all conversations by their names, ``SCRIPT: NAME``, in the order of the scripts."""
    return {
        f"{file.stem}: {table['name']}": msgspec.convert(table, Conversation)
        for file in sorted(_SCRIPTS.glob("*.toml"))
        for table in tomllib.loads(file.read_text("utf-8"))["conversation"]
    }


def check_toolhost(conversation: Conversation, host: Toolhost) -> list[str]:
    """Hold the conversation with a new host process, and return the errors. Raises OSError if it does not start."""
    return asyncio.run(_check(conversation, host))


async def _check(conversation: Conversation, host: Toolhost) -> list[str]:
    names = {f"{role}.{name}": value for role, members in host.roles.items() for name, value in members.items()}
    names["plugin"] = host.plugin
    environ = {**os.environ, "MACHINA_LEASE_ENFORCE": "0", **conversation.environ}
    with tempfile.TemporaryFile() as stderr:  # unlike a pipe, a file never blocks its writer
        arguments = [*fill(conversation.arguments, names), *(host.lease_options if conversation.leases else ())]
        process = await asyncio.create_subprocess_exec(
            *host.argv, *arguments, stdin=PIPE, stdout=PIPE, stderr=stderr, env=environ, limit=1 << 26
        )
        try:
            errors = await _converse(conversation, process, names, host.patience)
            status = await asyncio.wait_for(process.wait(), host.patience)
        except TimeoutError:
            return [f"the host did not answer, or did not exit, within {host.patience:.0f} s"]
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        stderr.seek(0)
        stderr_bytes = stderr.read()
    if status != conversation.exit:
        errors.append(f"the exit status is {status}, expected {conversation.exit}; stderr: {stderr_bytes[-300:]!r}")
    if conversation.stderr == ("nothing" if stderr_bytes else "something"):
        errors.append(f"stderr is {stderr_bytes[:300]!r}, expected {conversation.stderr}")
    return errors


async def _converse(conversation: Conversation, process: Process, names: dict[str, Any], patience: float) -> list[str]:
    stdin, stdout, errors = process.stdin, process.stdout, list[str]()
    assert stdin is not None
    assert stdout is not None
    serves = conversation.arguments[:1] == ("--serve",) and conversation.exit == 0
    is_last = False
    for number, step in enumerate(conversation.step or ([] if serves else [Step()]), 1):
        await asyncio.sleep(step.wait)
        is_last = step.unterminated or not serves
        for count in range(step.repeat):
            names["n"] = str(count)
            text = fill(step.line, names) if step.send is None else json.dumps(fill(step.send, names))
            line = (text.encode() if step.hex is None else bytes.fromhex(step.hex)).ljust(step.pad)
            if not stdin.is_closing():  # the pipe closes when the host ends
                stdin.write(line if is_last else line + b"\n")
        if is_last:
            stdin.write_eof()
        for count in range(step.repeat):
            answer = await asyncio.wait_for(stdout.readline() if serves else stdout.read(), patience)
            if answer.endswith(b"\n") != serves:
                ending = "without a newline" if serves else "with a newline"
                return [*errors, f"step {number}: {answer[:300]!r} ends {ending}"]
            if step.expect is not None:
                names["n"] = str(count)
                errors += differences(fill(step.expect, names), parse(answer), f"step {number}: answer")
            elif answer:
                errors.append(f"stdout is {answer[:300]!r}, expected nothing")
            for name, pointer in step.capture.items():
                try:
                    names[name] = resolve_pointer(parse(answer), fill(pointer, names))
                except LookupError:
                    return [*errors, f"step {number}: the answer has no {pointer}"]
    if not is_last:
        # A host that wrongly continues to read after the empty line would answer the next request.
        stdin.write(b'\n{"aid":"AID.AFTER.THE.END"}\n' if conversation.end == "empty line" else b"")
        stdin.write_eof()
    rest_bytes = await asyncio.wait_for(stdout.read(), patience)
    return [*errors, f"the host also wrote {rest_bytes[:300]!r}"] if rest_bytes else errors
