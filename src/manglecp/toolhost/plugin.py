"""A plugin: a Python file or module whose actions a host serves.

The file is read once; the same bytes are compared with the pin and compiled. The pin does not cover what it imports.
Finding a plugin runs nothing of it. Loading runs its top level, in a host that has moved the protocol streams out of
its reach and sandboxed itself. No bytecode is written beside the file.

The id of ``apply_patch`` of ``workspace.py``, ``workspace/actions.py`` or ``workspace/actions/__init__.py`` is
``AID.WORKSPACE.APPLY_PATCH.v1``. Imported actions are left out unless ``__all__`` names them. A tool is described when
it is made, so that every error shows when a plugin loads.
"""

from __future__ import annotations

import json
import os
import re
import sys
import typing
from collections.abc import Callable
from hashlib import sha256
from types import ModuleType
from typing import Any, Final, NamedTuple

from manglecp.toolhost.actions import Declaration, declaration, served_function
from manglecp.toolhost.context import Context, describe
from manglecp.toolhost.conversion import DIALECT, Converter, converter, encode_value, schema
from manglecp.toolhost.hints import Constrained, Field, HintError, ObjectOf, Shape, shape

_HEADINGS: Final = ("Args:", "Arguments:", "Parameters:")
_ENTRY: Final = re.compile(r"\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:(.*)")


class Docstring:
    """The summary of a docstring, and its ``name: text`` lines under ``Args:``."""

    def __init__(self, text: str) -> None:
        lines = text.expandtabs().splitlines()
        start = next((number for number, line in enumerate(lines) if line.strip() in _HEADINGS), len(lines))
        paragraphs = re.split(r"\n\s*\n", "\n".join(lines[:start]).strip(), maxsplit=1)
        self.summary: Final = " ".join(paragraphs[0].split())
        self.parameters: Final[dict[str, str]] = {}
        if start < len(lines):
            self._read(lines[start + 1 :], _depth(lines[start]))

    def _read(self, lines: list[str], heading: int) -> None:
        entries: int | None = None
        name = ""
        for line in filter(str.strip, lines):
            depth = _depth(line)
            if depth <= heading:
                return
            entries = depth if entries is None else entries
            text = line.strip()
            if depth > entries:
                if name:
                    self.parameters[name] = f"{self.parameters[name]} {text}".strip()
                continue
            found = _ENTRY.match(text)
            name = found[1] if found is not None else ""
            if found is not None:
                self.parameters[name] = found[2].strip()


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip())


_VARIADIC: Final = 0x04 | 0x08
_GENERATOR: Final = 0x20 | 0x200


class PluginAction:
    def __init__(self, aid: str, function: Callable[..., Any], declared: Declaration) -> None:
        self.aid: Final = aid
        self.name: Final[str] = function.__name__
        self.function: Final = function
        self.declaration: Final = declared
        self._described: Final = Docstring(function.__doc__ or "")
        signature = _unwrap(function)
        code = signature.__code__
        if code.co_flags & _VARIADIC or code.co_posonlyargcount:
            raise HintError(f"{self.name}: a parameter without a name cannot be given in JSON")
        if getattr(function, "__code__", code).co_flags & _GENERATOR:
            raise HintError(f"{self.name}: an action returns one result; a generator has none")
        hints = typing.get_type_hints(signature, include_extras=True)
        returns = hints.pop("return", Any)
        self.defaults: Final = _defaults(signature)
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        contexts = [name for name in names if hints.get(name) is Context]
        if len(contexts) > 1:
            raise HintError(f"{self.name}: there is one Context for a call, not {len(contexts)}")
        self.context: Final = contexts[0] if contexts else None
        fields = tuple(self._field(name, hints) for name in names if name not in contexts)
        inputs = ObjectOf(fields, dict)
        self.convert: Final[Converter] = converter(inputs)
        self._descriptor: Final = self._describe(schema(inputs), schema(shape(returns)))
        encode_value(self._descriptor)  # raises for values without a JSON form

    def _field(self, name: str, hints: dict[str, Any]) -> Field:
        if name not in hints:
            raise HintError(f"{self.name}: the parameter {name!r} has no type hint")
        read: Shape = shape(hints[name])
        text = self._described.parameters.get(name)
        if text is not None and not (isinstance(read, Constrained) and "description" in read.keywords):
            read = Constrained(read, {"description": text})
        return Field(name, read, name not in self.defaults, name)

    def descriptor(self) -> dict[str, Any]:
        return self._descriptor

    def _describe(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> dict[str, Any]:
        declared = self.declaration
        for name in inputs["properties"].keys() & self.defaults.keys():
            try:
                inputs["properties"][name]["default"] = json.loads(encode_value(self.defaults[name]))
            except (TypeError, ValueError):  # a default that has no JSON form
                continue
        return {
            "aid": self.aid,
            "name": self.name,
            "deterministic": declared.deterministic,
            "tags": list(declared.tags),
            "side_effects": list(declared.effects) or ["none"],
            "replay_inputs": list(declared.replay_inputs),
            "description": self._described.summary,
            "inputs_schema": {"$schema": DIALECT, **inputs},
            "outputs_schema": {"$schema": DIALECT, **outputs},
            "tier": declared.tier,
            "capabilities": {"spawn": list(declared.spawn)},
            "reversible": declared.reversible,
            "idempotent": declared.idempotent,
            "mutates": declared.mutates,
            "timeout": declared.timeout,
            **({} if declared.preview is None else {"preview": declared.preview}),
            **({} if declared.external is None else {"external": declared.external}),
            **({} if declared.generator is None else {"generator": declared.generator}),
        }


def _unwrap(function: Any) -> Any:
    """Return the function inside its decorators, whose parameters are those of the action."""
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    if not hasattr(function, "__code__"):
        raise HintError(f"{function!r} is not a plain function")
    return function


def _defaults(function: Any) -> dict[str, Any]:
    code = function.__code__
    positional = code.co_varnames[: code.co_argcount]
    given = function.__defaults__ or ()
    return {
        **dict(zip(positional[len(positional) - len(given) :], given, strict=True)),
        **(function.__kwdefaults__ or {}),
    }


# pathlib would take a tenth of the time in which a worker has to start:
# ruff: noqa: PTH113, PTH119, PTH120, PTH122, PTH123


NAMELESS: Final = frozenset({"actions", "__init__"})
_MODULE: Final = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


class PluginError(Exception):
    """A plugin that cannot be served."""


class Plugin:
    """The tools of a loaded plugin, sorted by action id."""

    def __init__(self, source: bytes, tools: dict[str, PluginAction]) -> None:
        self._source = source
        self.tools: Final = dict(sorted(tools.items()))

    @property
    def sha256(self) -> str:
        return sha256(self._source).hexdigest()


class Source(NamedTuple):
    """A plugin that was found and read, but not executed."""

    where: str
    path: str
    module: str
    root: str
    """The folder of its imports: its own or, for a module, that of its outermost package."""
    content: bytes


def find(where: str, pin: str | None = None) -> Source:
    """Find and read a file or an importable module; with ``pin``, only if that is its SHA-256."""
    path, module, root = _locate(where)
    try:
        with open(path, "rb") as file:
            content = file.read()
    except OSError as error:
        raise PluginError(f"cannot read plugin {where}: {error.strerror}") from error
    if pin is not None and (found := sha256(content).hexdigest()) != pin.removeprefix("sha256:").lower():
        raise PluginError(f"plugin hash mismatch: expected {pin}, found sha256:{found}")
    return Source(where, path, module, root, content)


def load(plugin: str | Source) -> Plugin:
    """Run the top level of a plugin and collect its actions."""
    source = find(plugin) if isinstance(plugin, str) else plugin
    folder, file_name = os.path.split(source.path)
    if source.root not in sys.path:
        sys.path.append(source.root)
    module = ModuleType(source.module)
    module.__file__ = source.path
    _place(module, folder if file_name == "__init__.py" else None)
    try:
        if package := source.module.rpartition(".")[0]:
            from importlib import import_module

            import_module(package)
        sys.modules[source.module] = module  # string annotations and pickles resolve names here
        exec(compile(source.content, source.path, "exec"), module.__dict__)
        return Plugin(source.content, _tools(module, plugin_name(source.path)))
    except PluginError:
        raise
    except BaseException as error:  # SystemExit too: a plugin must not end its host
        raise PluginError(f"cannot load plugin {source.where}: {describe(error)}") from error


def _place(module: ModuleType, folder: str | None) -> None:
    spec = type(os.__spec__)(module.__name__, None, origin=module.__file__, is_package=folder is not None)
    if folder is not None:
        spec.submodule_search_locations = module.__path__ = [folder]
    module.__spec__ = spec
    module.__package__ = spec.parent


def plugin_name(path: str) -> str:
    """Return the name of a plugin: its file, or the folder that it is named after."""
    folder, file_name = os.path.split(path)
    name = os.path.splitext(file_name)[0]
    while name in NAMELESS and folder not in ("", "/"):
        folder, name = os.path.split(folder)
    return name


def action_id(plugin: str, function: str, version: int) -> str:
    return f"AID.{_part(plugin)}.{_part(function)}.v{version}"


def _part(name: str) -> str:
    part = re.sub(r"[^A-Z0-9_]", "_", name.upper())
    return part if part[:1].isalpha() else f"P{part}"


def _locate(where: str) -> tuple[str, str, str]:
    """Return the path of a plugin, the name of its module, and the folder that its imports begin in."""
    if os.path.isfile(where):
        path = os.path.realpath(where)
        stem = os.path.splitext(os.path.basename(path))[0]
        if stem == "__init__":
            stem = os.path.basename(os.path.dirname(path))
        return path, f"manglecp_plugin_{_part(stem).lower()}", os.path.dirname(path)
    if not where.endswith(".py") and _MODULE.fullmatch(where):
        origin = _path_of_module(where)
        if origin is not None:
            root = os.path.dirname(origin)
            for _ in range(where.count(".") + (os.path.basename(origin) == "__init__.py")):
                root = os.path.dirname(root)
            return origin, where, root
    raise PluginError(f"plugin not found: {where}")


def _path_of_module(name: str) -> str | None:
    folders: list[str] | None = None
    within = ""
    for part in name.split("."):
        within = f"{within}.{part}" if within else part
        found = None
        for finder in sys.meta_path:
            found = finder.find_spec(within, folders, None)
            if found is not None:
                break
        if within == name:
            return found.origin if found is not None and found.has_location else None
        if found is None or found.submodule_search_locations is None:
            raise PluginError(f"cannot find plugin {name}: No module named {within!r}")
        folders = list(found.submodule_search_locations)
    return None


def _tools(module: ModuleType, name: str) -> dict[str, PluginAction]:
    tools: dict[str, PluginAction] = {}
    public = module.__dict__.get("__all__", ())
    for member, candidate in module.__dict__.items():
        function = served_function(candidate)
        declared = declaration(function)
        if declared is None or (getattr(function, "__module__", None) != module.__name__ and member not in public):
            continue
        aid = action_id(name, function.__name__, declared.version)
        if aid in tools and tools[aid].function is not function:
            raise PluginError(f"two actions are called {aid}")
        tools[aid] = PluginAction(aid, function, declared)
    return tools
