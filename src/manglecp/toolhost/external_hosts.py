"""The external predicates of a pack, evaluated by warm sandboxed hosts.

The engine calls a predicate synchronously, from any thread, with a batch of questions: tuples of the input arguments.
The calls run on an event loop in a background thread. No host starts if a file of the pack has changed since it was
read.

Values are sent as JSON, in the form that the ``Decl`` of the predicate states. Answers are untrusted: they are checked
against the ``Decl`` here, and once more by the engine.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from typing import Any, Final

import msgspec

from manglecp.base.background_loop import background_loop, wait_for
from manglecp.mangle import External, MangleError, Program, Source, Value, ValueFault, parse
from manglecp.pack import ExternalDescription, Pack, SandboxPolicy, SecretProvider
from manglecp.toolhost.action_hosts import pack_listing, require_command
from manglecp.toolhost.actions import SAFE
from manglecp.toolhost.dispatch.catalogue import ActionProfile
from manglecp.toolhost.dispatch.dispatcher import Dispatcher, ServedPlugin
from manglecp.toolhost.dispatch.messages import ActionResult
from manglecp.wire import ANYTHING, Fault, Schemas, Shape, to_json, to_value

_FILE: Final = "externals.py"
BATCH: Final = 1_000  # the most questions in one call
_GRACE: Final = 5.0  # seconds that dispatch has, after the deadline of a call, to return its error


@contextlib.contextmanager
def serve_externals(
    pack: Pack,
    *,
    size: int | None = None,
    sandbox: SandboxPolicy | None = None,
    secrets: SecretProvider | None = None,
) -> Iterator[Mapping[str, External]]:
    """Start hosts for the external predicates of a pack and yield the predicates for the engine, by name.

    ``size`` is the number of hosts for each set of ``secrets`` that predicates take. Hosts get the strict sandbox
    unless ``sandbox`` permits the weaker profile that the pack requests. Raises :class:`PackError` if the pack cannot
    be served as described.
    """
    if not pack.externals or pack.externals_file is None:
        yield {}
        return
    shapes = _shapes(pack)
    policy = sandbox or SandboxPolicy()
    profiles = {
        each.aid: ActionProfile(
            aid=each.aid,
            tier=SAFE,
            idempotent=True,
            timeout=each.seconds,
            secrets=each.secrets,
            egress=each.egress,
        )
        for each in pack.externals.values()
    }
    listing = pack_listing(pack, pack.externals_file, profiles)
    profile = policy.weaker(pack.settings.sandbox) or "strict"
    plugins = []
    for group in listing.by_egress():
        command = group.command(os.environ, sandbox=profile, policy=policy, python=pack.python)
        plugins.append(ServedPlugin(group.catalogue, require_command(_FILE, command)))
    longest_timeout = max(external.seconds for external in pack.externals.values())
    dispatcher = Dispatcher(plugins, size=size, timeout=longest_timeout, secrets=secrets)
    with contextlib.ExitStack() as stack:
        loop = stack.enter_context(background_loop("externals"))
        wait_for(loop, dispatcher.__aenter__())
        stack.callback(lambda: wait_for(loop, dispatcher.__aexit__(None, None, None)))
        yield {
            name: External(_Predicate(external, shapes[name], dispatcher, loop), batch=True, seconds=external.seconds)
            for name, external in pack.externals.items()
        }


class _Predicate:
    """Answers the questions of the engine about one external predicate; raises ValueFault."""

    def __init__(
        self,
        external: ExternalDescription,
        shapes: Sequence[Shape],
        dispatcher: Dispatcher,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._external = external
        self._inputs = [shape for shape, mode in zip(shapes, external.mode, strict=True) if mode == "+"]
        self._outputs = [shape for shape, mode in zip(shapes, external.mode, strict=True) if mode == "-"]
        self._dispatcher = dispatcher
        self._loop = loop

    def __call__(self, questions: Sequence[tuple[Value, ...]]) -> list[list[tuple[Value, ...]]]:
        deadline = time.monotonic() + self._external.seconds
        answers: list[list[tuple[Value, ...]]] = []
        for start in range(0, len(questions), BATCH):
            batch = questions[start : start + BATCH]
            try:
                inputs = [list(map(to_json, question, self._inputs)) for question in batch]
                answers += self._read(self._call(inputs, deadline - time.monotonic()), len(batch))
            except Fault as fault:
                raise self._fault(f"got a value without a JSON form: {fault.message}") from None
        return answers

    def _call(self, inputs: list[list[Any]], seconds: float) -> bytes:
        """Return the JSON output of one call, which may take ``seconds``."""
        timeout_fault = self._fault(f"did not answer within {self._external.seconds:g} s")
        if seconds <= 0:
            raise timeout_fault
        call = self._dispatcher.call(self._external.aid, inputs={"inputs": inputs}, timeout=seconds)
        try:
            result = wait_for(self._loop, call, seconds + _GRACE)
        except (TimeoutError, CancelledError):
            raise timeout_fault from None
        except RuntimeError:  # the loop is closed
            call.close()
            raise self._fault("is no longer served") from None
        if isinstance(result, ActionResult):
            return result.output_json.encode()
        if result["type"] == "timeout":
            raise timeout_fault
        # The detail of an error may contain secrets; its code, status and type do not.
        raise self._fault(f"failed: {result.get('code') or result.get('status') or result['type']}")

    def _read(self, output: bytes, count: int) -> list[list[tuple[Value, ...]]]:
        """Return the rows of each of ``count`` answers."""
        try:
            answers = msgspec.json.decode(output, type=dict[str, list[list[list[Any]]]]).get("rows", [])
        except (msgspec.DecodeError, RecursionError):
            raise self._fault("returned something other than rows") from None
        if len(answers) != count:
            raise self._fault(f"returned {len(answers)} answers to {count} questions")
        return [[self._row(row) for row in rows] for rows in answers]

    def _row(self, row: list[Any]) -> tuple[Value, ...]:
        if len(row) != len(self._outputs):
            raise self._fault(f"returned a row of {len(row)} values; it has {len(self._outputs)}")
        return tuple(map(to_value, row, self._outputs))

    def _fault(self, message: str) -> ValueFault:
        return ValueFault(f"external predicate {self._external.predicate} {message}")


def _shapes(pack: Pack) -> dict[str, Sequence[Shape]]:
    """Return the argument shapes of each external predicate, by name; without a declaration, any value fits."""
    shapes: dict[str, Sequence[Shape]] = {name: [ANYTHING] * each.arity for name, each in pack.externals.items()}
    for source in pack.sources:
        with contextlib.suppress(MangleError, Fault):  # loading the rules reports these errors
            for decl in parse(source).decls:
                external = pack.externals.get(decl.atom.predicate)
                if external is not None and decl.span is not None:
                    # Load this Decl alone: the rules cannot be loaded before their external predicates are served.
                    program = Program.load([Source(source.name, decl.span.text)])
                    schema = Schemas(program.predicates).find(external.predicate, external.arity)
                    shapes[external.predicate] = schema.shapes
    return shapes
