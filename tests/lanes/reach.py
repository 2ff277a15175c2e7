"""Which resources the code of a test can reach.

A graph of functions and classes: an edge for every global name in a function's bytecode, and from a class to its
methods and bases. Marks flow backwards from the primitives to the tests. The graph over-approximates: it follows every
branch. Where a value decides whether a resource is used, `DEPENDS` lists the function, which counts only for tests that
contain such a value.
"""

from __future__ import annotations

import dis
import functools
import re
import socket
import sys
import types
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import click

__all__ = ["DEPENDS", "MARKED", "PRIMITIVES", "Reach"]

PRIMITIVES: Final[Mapping[str, Mapping[str, str]]] = {
    "subprocess": dict.fromkeys(("Popen", "run", "call", "check_call", "check_output"), "process"),
    "os": dict.fromkeys(("fork", "forkpty", "posix_spawn", "posix_spawnp", "system"), "process"),
    "builtins": {"exec": "process"},  # of a page: unknown code
    "multiprocessing": dict.fromkeys(("Process", "Pool", "get_context"), "process"),
    "pty": dict.fromkeys(("fork", "spawn"), "process"),
    "asyncio": {
        **dict.fromkeys(("create_subprocess_exec", "create_subprocess_shell"), "process"),
        **dict.fromkeys(("open_connection", "open_unix_connection", "start_server", "start_unix_server"), "socket"),
    },
    "socket": dict.fromkeys(("socket", "create_connection", "create_server"), "socket"),
    "socketserver": dict.fromkeys(("TCPServer", "ThreadingTCPServer", "UnixStreamServer"), "socket"),
    "http.server": dict.fromkeys(("HTTPServer", "ThreadingHTTPServer"), "socket"),
    "websockets.asyncio.server": {"serve": "socket"},
}
"""Attributes of modules, and the mark of tests that can call them."""
MARKED: Final[Mapping[str, str]] = {"tests.store.postgres.empty_database": "postgres"}
"""Functions with a mark of their own instead of the marks of what they call."""
PARAMETERS: Final[Mapping[str, str]] = {"postgresql": "postgres"}
"""Values of parameters that decide in a fixture or a test."""
PLUGINS: Final = r"(actions|externals|facts)\.py|from manglecp import|/examples/|seed_pack"
DEPENDS: Final[Mapping[str, str]] = {
    # A pack without Python files starts no host.
    "manglecp.pack.host_listing.list_tools": PLUGINS,
    "manglecp.toolhost.dispatch.catalogue.list_plugin": PLUGINS,
    # A command is started; for other targets the test brings a server.
    "manglecp.client.transports.transport_to": r"^sys\.executable$",
}
"""Functions that use a resource for some values only, and a pattern for strings in tests that lead there."""
PATTERNS: Final = {name: re.compile(pattern) for name, pattern in DEPENDS.items()}
PROJECT: Final = ("manglecp", "tests", "tools", "examples")
Mark = tuple[str, frozenset[str]]
"""A mark and the entries of `DEPENDS` on the way to it; or an entry, for strings that match it."""
NOTHING: Final[frozenset[str]] = frozenset()


@dataclass(eq=False, slots=True)
class _Node:
    thing: Any  # kept alive: its id is its key
    name: str
    marks: set[Mark] = field(default_factory=set)
    near: list[Any] = field(default_factory=list)
    strings: set[str] = field(default_factory=set)

    @property
    def in_tests(self) -> bool:
        return not self.name.startswith("manglecp.")


class Reach:
    def __init__(self) -> None:
        self._nodes: dict[int, _Node] = {}
        self._gates = set(DEPENDS)
        self._commands: dict[str, list[str]] = defaultdict(list)
        """The gates of commands, by the word that a test has to contain."""

    def expand(self, roots: Iterable[Any]) -> None:
        """Add the code of tests, and settle which marks it reaches."""
        ahead = list(roots)
        while ahead:
            thing = ahead.pop()
            if id(thing) not in self._nodes:
                node = self._nodes[id(thing)] = _Node(thing, _name(thing))
                self._fill(node)
                ahead += node.near
        self._settle()

    def marks(self, roots: Iterable[Any], params: Iterable[Any]) -> set[str]:
        """Return the marks of a test with this code and these parameters."""
        params = list(params)
        found: set[Mark] = set().union(*(self._nodes[id(root)].marks for root in roots))
        given = {name for name, _ in found}
        if any(needed - given for _, needed in found):
            given |= {name for text in _strings(params) for name in self._matches(text)}
        reached = {mark for mark, needed in found if needed <= given and mark not in self._gates}
        return reached | {PARAMETERS[text] for text in params if isinstance(text, str) and text in PARAMETERS}

    def _settle(self) -> None:
        users: dict[int, list[_Node]] = defaultdict(list)
        for node in self._nodes.values():
            node.marks |= {(name, NOTHING) for text in node.strings for name in self._matches(text)}
            for thing in node.near:
                users[id(thing)].append(node)
        ahead = [(node, mark) for node in self._nodes.values() for mark in node.marks]
        while ahead:
            node, (mark, needed) = ahead.pop()
            for user in users[id(node.thing)]:
                gated = node.name in self._gates and not user.in_tests
                arrives = needed | {node.name} if gated else needed
                known = any(name == mark and less <= arrives for name, less in user.marks)
                if not known and user.name not in MARKED:
                    user.marks.add((mark, arrives))
                    ahead.append((user, (mark, arrives)))

    def _matches(self, text: str) -> list[str]:
        return self._commands.get(text, []) + [name for name, pattern in PATTERNS.items() if pattern.search(text)]

    # --- one node ----------------------------------------------------------------------------------------------------

    def _fill(self, node: _Node) -> None:
        thing = node.thing
        if node.name in MARKED:
            node.marks.add((MARKED[node.name], NOTHING))
        if node.name.startswith("tests.docs."):
            node.marks.add(("docs", NOTHING))
        node.near += _behind(thing)
        if not node.name.startswith(PROJECT):
            module, _, attribute = node.name.rpartition(".")
            node.marks |= _primitives(module, [attribute])
        elif isinstance(thing, types.FunctionType):
            self._fill_function(node, thing)
        elif isinstance(thing, type):
            node.near += [value for value in vars(thing).values() if _is_code(value)]
            node.near += thing.__bases__
        elif isinstance(thing, click.Group):
            context = click.Context(thing)
            for name in thing.list_commands(context):
                if (command := thing.get_command(context, name)) is not None:
                    self._gates.add(_name(command))
                    self._commands[name].append(_name(command))
                    node.near.append(command)

    def _fill_function(self, node: _Node, function: types.FunctionType) -> None:
        names, strings = _names_and_strings(function.__code__)
        values = [function.__globals__[name] for name in names if name in function.__globals__]
        values += [
            _imported(name) for name in names if name in PRIMITIVES or ("." in name and name.startswith(PROJECT))
        ]
        values += [cell.cell_contents for cell in function.__closure__ or () if _is_set(cell)]
        values += function.__defaults__ or ()
        modules = [value for value in values if isinstance(value, types.ModuleType)]
        for module in modules:
            inner = (f"{module.__name__}.{name}" for name in names)
            modules += [sys.modules[name] for name in inner if name in sys.modules]
            named = _attributes(function.__code__) if module is socket else names
            node.marks |= _primitives(module.__name__, named)
            if module.__name__.startswith(PROJECT):
                offered = {*vars(module), *getattr(module, "__all__", ())}
                values += [_attribute(module, name) for name in names & offered]
        if sys in modules and "executable" in names:
            strings.add("sys.executable")
        node.near += [value for value in values if _is_code(value)]
        if node.in_tests:
            node.marks |= _primitives("builtins", names)
            node.strings = strings | set(_strings(value for value in values if not _is_code(value)))


def _name(thing: Any) -> str:
    if isinstance(thing, click.Command):
        return f"{getattr(thing.callback, '__module__', 'manglecp.cli')}.{thing.name}"
    return f"{getattr(thing, '__module__', '')}.{getattr(thing, '__qualname__', '')}"


def _is_code(value: Any) -> bool:
    return isinstance(value, types.FunctionType | type | click.Command) or bool(_behind(value))


def _behind(value: Any) -> list[Any]:
    """Return the functions that a wrapper calls."""
    match value:
        case type() | types.ModuleType():
            return []
        case staticmethod() | classmethod():
            return [value.__func__]
        case property():
            return [one for one in (value.fget, value.fset) if one is not None]
        case functools.cached_property() | functools.partial():
            return [value.func]
        case click.Command():
            return [] if value.callback is None else [value.callback]
    state = getattr(value, "__dict__", {})
    found = [state.get("__wrapped__"), getattr(state.get("hypothesis"), "inner_test", None)]
    return [one for one in found if one is not None]


def _names_and_strings(code: types.CodeType) -> tuple[set[str], set[str]]:
    names, strings = set(code.co_names), set(_strings(code.co_consts))
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            more_names, more_strings = _names_and_strings(inner)
            names |= more_names
            strings |= more_strings
    return names, strings


def _attributes(code: types.CodeType) -> Iterator[str]:
    """Yield the names that are looked up in an object: `socket.socket` is one name in `co_names`."""
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_ATTR", "LOAD_METHOD", "IMPORT_FROM"):
            yield instruction.argval
        elif isinstance(instruction.argval, types.CodeType):
            yield from _attributes(instruction.argval)


def _is_import(name: str) -> bool:
    return name in PRIMITIVES or ("." in name and name.startswith(PROJECT))


def _imported(name: str) -> Any:
    """Import what a function would import: its lane must not depend on which tests are collected with it."""
    try:
        return import_module(name)
    except ImportError:
        return None


def _attribute(module: types.ModuleType, name: str) -> Any:
    """Return what a package exports, and leave it as it was: one that loads lazily would keep it."""
    kept = name in vars(module)
    value = getattr(module, name)
    if not kept and name in vars(module):
        delattr(module, name)
    return value


def _strings(values: Iterable[Any]) -> Iterator[str]:
    for value in values:
        if isinstance(value, str | Path):
            yield str(value)
        elif isinstance(value, Mapping):
            yield from _strings(value.keys())
            yield from _strings(value.values())
        elif isinstance(value, list | tuple | set | frozenset):
            yield from _strings(value)


def _primitives(module: str, names: Iterable[str]) -> set[Mark]:
    known = PRIMITIVES.get(module, {})
    return {(known[name], NOTHING) for name in names if name in known}


def _is_set(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True
