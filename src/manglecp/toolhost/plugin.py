"""A plugin: a Python file or module whose actions a host serves.

The file is read once; the same bytes are compared with the expected SHA-256 and compiled. That digest does not
cover the modules that the file imports. Finding a plugin executes no code of it. Loading executes its top level, in a
host that has already sandboxed itself and hidden its protocol streams.

The id of ``apply_patch`` of ``workspace.py``, ``workspace/actions.py`` or ``workspace/actions/__init__.py`` is
``AID.WORKSPACE.APPLY_PATCH.v1``. Imported actions are omitted unless ``__all__`` names them. Loading raises for an
invalid declaration of an action.
"""

from __future__ import annotations

import json
import os
import re
import sys
import typing
from collections.abc import Callable, Mapping
from hashlib import sha256
from types import ModuleType
from typing import Any, Final, NamedTuple

from manglecp.toolhost.actions import Declaration, declaration, decorated_function, is_lifespan, served_function
from manglecp.toolhost.context import Context, describe
from manglecp.toolhost.conversion import DIALECT, Converter, converter, encode_value, schema
from manglecp.toolhost.hints import Constrained, Field, HintError, ObjectOf, Shape, secret_name, shape

_HEADINGS: Final = ("Args:", "Arguments:", "Parameters:")
_ENTRY: Final = re.compile(r"\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:(.*)")  # name: text, or name (type): text


class Docstring:
    """The text of a docstring before ``Args:``, and the ``name: text`` lines below it."""

    def __init__(self, text: str) -> None:
        lines = text.expandtabs().splitlines()
        heading = next((index for index, line in enumerate(lines) if line.strip() in _HEADINGS), len(lines))
        first, *others = re.split(r"\n\s*\n", "\n".join(lines[:heading]).strip(), maxsplit=1)
        details = "".join(others).split("\n")
        indent = min(_indent(line) for line in details if line.strip() or not others)
        details = [line[indent:] for line in details]
        self.text: Final = "\n".join([" ".join(first.split()), "", *details]).rstrip()
        self.parameters: Final[dict[str, str]] = {}
        if heading < len(lines):
            self._read_parameters(lines[heading + 1 :], _indent(lines[heading]))

    def _read_parameters(self, lines: list[str], heading_indent: int) -> None:
        entry_indent: int | None = None  # that of the first entry; a line with a larger indent continues an entry
        name = ""
        for line in filter(str.strip, lines):
            indent = _indent(line)
            if indent <= heading_indent:
                return
            entry_indent = indent if entry_indent is None else entry_indent
            text = line.strip()
            if indent > entry_indent:
                if name:
                    self.parameters[name] = f"{self.parameters[name]} {text}".strip()
                continue
            entry = _ENTRY.match(text)
            name = entry[1] if entry is not None else ""
            if entry is not None:
                self.parameters[name] = entry[2].strip()


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


_VARIADIC_FLAGS: Final = 0x04 | 0x08  # CO_VARARGS and CO_VARKEYWORDS of a code object
_GENERATOR_FLAGS: Final = 0x20 | 0x200  # CO_GENERATOR and CO_ASYNC_GENERATOR of a code object


class PluginAction:
    """An action of a plugin. ``convert`` makes arguments from a JSON object; ``context`` names its Context parameter.

    ``secrets`` has the name of a secret for each parameter that gets one; such a parameter is no input.
    Raises :class:`HintError`, and TypeError or ValueError if its description has no JSON form.
    """

    def __init__(self, aid: str, function: Callable[..., Any], declared: Declaration) -> None:
        self.aid: Final = aid
        self.name: Final[str] = function.__name__
        self.function: Final = function
        self.declaration: Final = declared
        self._docstring: Final = Docstring(function.__doc__ or "")
        innermost = _unwrap(function)
        code = innermost.__code__
        decorated = _unwrap(decorated_function(function))
        if (code.co_flags & _VARIADIC_FLAGS and decorated is innermost) or code.co_posonlyargcount:
            raise HintError(f"{self.name}: a parameter without a name cannot be given in JSON")
        if getattr(function, "__code__", code).co_flags & _GENERATOR_FLAGS:
            raise HintError(f"{self.name}: an action returns one result; a generator has none")
        hints = typing.get_type_hints(innermost, include_extras=True)
        self.secrets: Final = _secrets(decorated)
        returns = hints.pop("return", Any)
        self.defaults: Final = _defaults(innermost)
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        context_names = [name for name in names if Context in (hints.get(name), typing.get_origin(hints.get(name)))]
        if len(context_names) > 1:
            raise HintError(f"{self.name}: there is one Context for a call, not {len(context_names)}")
        self.context: Final = context_names[0] if context_names else None
        names = tuple(name for name in names if name not in context_names and name not in self.secrets)
        inputs = ObjectOf(tuple(self._field(name, hints) for name in names), dict)
        self.convert: Final[Converter] = converter(inputs)
        descriptor = self._describe(schema(inputs), schema(shape(returns)))
        if self.secrets:
            self.defaults.update(_defaults(decorated))
            required = {secret for name, secret in self.secrets.items() if name not in self.defaults}
            descriptor["secrets"] = [[secret, secret in required] for secret in sorted({*self.secrets.values()})]
        encode_value(descriptor)  # raises for values without a JSON form
        self.descriptor = descriptor  # its entry in a listing
        self.parameters: Final = frozenset(descriptor["inputs_schema"]["properties"])

    def _field(self, name: str, hints: dict[str, Any]) -> Field:
        if name not in hints:
            line = _unwrap(self.function).__code__.co_firstlineno
            raise HintError(f"{self.name} (line {line}): the parameter {name!r} has no type hint; write {name}: str")
        field_shape: Shape = shape(hints[name])
        text = self._docstring.parameters.get(name)
        is_described = isinstance(field_shape, Constrained) and "description" in field_shape.keywords
        if text is not None and not is_described:
            field_shape = Constrained(field_shape, {"description": text})
        return Field(name, field_shape, name not in self.defaults, name)

    def _describe(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> dict[str, Any]:
        declared = self.declaration
        if (generator := declared.generator) is not None:
            settings = [name for name in generator["settings"] if name not in self.secrets]
            generator = {**generator, "settings": settings}
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
            "description": self._docstring.text,
            "inputs_schema": {"$schema": DIALECT, **inputs},
            "outputs_schema": {"$schema": DIALECT, **outputs},
            "tier": declared.tier,
            "capabilities": {
                "spawn": list(declared.spawn),
                **({"egress": list(declared.egress)} if declared.egress else {}),
            },
            "reversible": declared.reversible,
            "idempotent": declared.idempotent,
            "mutates": declared.mutates,
            "timeout": declared.timeout,
            **({} if declared.preview is None else {"preview": declared.preview}),
            **({} if declared.tool else {"tool": False}),
            **({} if declared.concurrency == 1 else {"concurrency": declared.concurrency}),
            **({} if declared.external is None else {"external": declared.external}),
            **({} if generator is None else {"generator": generator}),
        }


def _secrets(function: Any) -> dict[str, str]:
    """Return the names of secrets by parameter, none if a hint cannot be evaluated; raises HintError."""
    try:
        hints = typing.get_type_hints(function, include_extras=True)
    except Exception:  # external predicates and generators may have hints for type checkers only
        return {}
    named = ((parameter, secret_name(hint)) for parameter, hint in hints.items())
    return {parameter: name for parameter, name in named if name is not None}


def _unwrap(function: Any) -> Any:
    """Return the innermost decorated function, which has the parameters of the action; raises HintError."""
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    if not hasattr(function, "__code__"):
        raise HintError(f"{function!r} is not a plain function")
    return function


def _defaults(function: Any) -> dict[str, Any]:
    code = function.__code__
    positional = code.co_varnames[: code.co_argcount]
    defaults = function.__defaults__ or ()  # they belong to the last positional parameters
    by_position = zip(positional[len(positional) - len(defaults) :], defaults, strict=True)
    return {**dict(by_position), **(function.__kwdefaults__ or {})}


# Importing pathlib would take a tenth of the start time of a host:
# ruff: noqa: PTH113, PTH119, PTH120, PTH122, PTH123

_GENERIC_NAMES: Final = frozenset({"actions", "__init__"})  # a plugin with such a name is named after its folder
_MODULE: Final = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


class PluginError(Exception):
    """A plugin that cannot be served."""


class Lifespan:
    """The lifespan function of a plugin; raises :class:`PluginError` for its parameters, NameError for its hints."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function: Final = function
        code = function.__code__
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        # Without parameters, the hints are for type checkers only.
        hints = typing.get_type_hints(function, include_extras=True) if names else {}
        self._secrets = {name: secret for name in names if (secret := secret_name(hints.get(name))) is not None}
        self._defaults = _defaults(function)
        self._context = [name for name in names if name not in self._secrets]
        if len(self._context) > 1:
            raise PluginError(
                f"the lifespan {function.__name__} has the parameters {', '.join(self._context)}; it gets at most a"
                ' Context, and secrets: dsn: Annotated[str, Secret("DSN")]'
            )

    @property
    def secrets(self) -> list[tuple[str, bool, bool]]:
        """The names of its secrets for a listing: whether each is required, and that hosts get it when they start."""
        required = {secret for name, secret in self._secrets.items() if name not in self._defaults}
        return [(secret, secret in required, True) for secret in sorted({*self._secrets.values()})]

    def arguments(self, context: Context, values: Mapping[str, str]) -> dict[str, Any]:
        """Return the arguments of a call, with ``values`` of secrets by name; raises :class:`PluginError`."""
        arguments: dict[str, Any] = dict.fromkeys(self._context, context)
        for parameter, name in self._secrets.items():
            if name in values:
                arguments[parameter] = values[name]
            elif parameter not in self._defaults:
                raise PluginError(f"the lifespan {self.function.__name__} has no value of the secret {name}")
        return arguments


class Plugin:
    """The actions of a loaded plugin (``tools`` in the IPC contract), sorted by action id, and its lifespan."""

    def __init__(self, source: bytes, tools: dict[str, PluginAction], lifespan: Lifespan | None) -> None:
        self._source = source
        self.lifespan: Final = lifespan
        self.tools: Final = dict(sorted(tools.items()))
        if lifespan is not None and lifespan.secrets:
            for tool in tools.values():
                tool.descriptor["secrets"] = [*tool.descriptor.get("secrets", ()), *lifespan.secrets]

    @property
    def sha256(self) -> str:
        return sha256(self._source).hexdigest()


class Source(NamedTuple):
    """A plugin that was found and read, but not executed."""

    where: str
    """A path or the name of a module, as the caller passed it."""
    path: str
    module: str
    root: str
    """The folder for ``sys.path``: that of the file or, for a module, the one that contains its outermost package."""
    content: bytes


def find(where: str, expected_sha256: str | None = None) -> Source:
    """Find and read a file or an importable module; raises PluginError, also if the SHA-256 is not the expected one."""
    path, module, root = _locate(where)
    try:
        with open(path, "rb") as file:
            content = file.read()
    except OSError as error:
        raise PluginError(f"cannot read plugin {where}: {error.strerror}") from error
    digest = sha256(content).hexdigest()
    if expected_sha256 is not None and digest != expected_sha256.removeprefix("sha256:").lower():
        raise PluginError(f"plugin hash mismatch: expected {expected_sha256}, found sha256:{digest}")
    return Source(where, path, module, root, content)


def load(plugin: str | Source) -> Plugin:
    """Run the top level of a plugin and collect its actions; raises PluginError."""
    source = find(plugin) if isinstance(plugin, str) else plugin
    folder, file_name = os.path.split(source.path)
    if source.root not in sys.path:
        sys.path.append(source.root)
    module = ModuleType(source.module)
    module.__file__ = source.path
    _set_spec(module, folder if file_name == "__init__.py" else None)
    try:
        if package := source.module.rpartition(".")[0]:
            from importlib import import_module

            import_module(package)
        sys.modules[source.module] = module  # string annotations and pickles resolve names here
        exec(compile(source.content, source.path, "exec"), module.__dict__)
        return Plugin(source.content, _tools(module, plugin_name(source.path)), _lifespan(module))
    except PluginError:
        raise
    except BaseException as error:  # SystemExit too: a plugin must not end its host
        raise PluginError(
            f"cannot load plugin {source.where}: {describe(error)}{error_line(error, source.path)}"
        ) from error


def error_line(error: BaseException, path: str) -> str:
    """Return the last line number of this file in the traceback, as text for a message; empty if there is none."""
    line, frame = "", error.__traceback__
    while frame is not None:
        if frame.tb_frame.f_code.co_filename == path:
            line = f" (line {frame.tb_lineno})"
        frame = frame.tb_next
    return line


def _set_spec(module: ModuleType, folder: str | None) -> None:
    """Give a module the attributes that imports from it need; ``folder`` is the folder of a package, else None."""
    # type(os.__spec__) is ModuleSpec, without an import of importlib.
    spec = type(os.__spec__)(module.__name__, None, origin=module.__file__, is_package=folder is not None)
    if folder is not None:
        spec.submodule_search_locations = module.__path__ = [folder]
    module.__spec__ = spec
    module.__package__ = spec.parent


def plugin_name(path: str) -> str:
    """Return the name of a plugin: its file name or, if that is ``actions`` or ``__init__``, the name of its folder."""
    folder, file_name = os.path.split(path)
    name = os.path.splitext(file_name)[0]
    while name in _GENERIC_NAMES and folder not in ("", "/"):
        folder, name = os.path.split(folder)
    return name


def action_id(plugin: str, function: str, version: int) -> str:
    return f"AID.{_aid_part(plugin)}.{_aid_part(function)}.v{version}"


def _aid_part(name: str) -> str:
    """Return a name as a part of an action id: upper case letters, digits and ``_``, with a letter first."""
    part = re.sub(r"[^A-Z0-9_]", "_", name.upper())
    return part if part[:1].isalpha() else f"P{part}"


def _locate(where: str) -> tuple[str, str, str]:
    """Return path, module and root of a :class:`Source`."""
    if os.path.isfile(where):
        path = os.path.realpath(where)
        stem = os.path.splitext(os.path.basename(path))[0]
        if stem == "__init__":
            stem = os.path.basename(os.path.dirname(path))
        return path, f"manglecp_plugin_{_aid_part(stem).lower()}", os.path.dirname(path)
    if not where.endswith(".py") and _MODULE.fullmatch(where):
        origin = _path_of_module(where)
        if origin is not None:
            package_depth = where.count(".") + (1 if os.path.basename(origin) == "__init__.py" else 0)
            root = os.path.dirname(origin)
            for _ in range(package_depth):
                root = os.path.dirname(root)
            return origin, where, root
    raise PluginError(f"plugin not found: {where}")


def _path_of_module(name: str) -> str | None:
    """Return the file of a module, without running its packages (``importlib.util.find_spec`` would run them)."""
    folders: list[str] | None = None
    prefix = ""
    for part in name.split("."):
        prefix = f"{prefix}.{part}" if prefix else part
        specs = (finder.find_spec(prefix, folders, None) for finder in sys.meta_path)
        spec = next((spec for spec in specs if spec is not None), None)
        if prefix == name:
            return spec.origin if spec is not None and spec.has_location else None
        if spec is None or spec.submodule_search_locations is None:
            raise PluginError(f"cannot find plugin {name}: No module named {prefix!r}")
        folders = list(spec.submodule_search_locations)
    return None


def _tools(module: ModuleType, plugin: str) -> dict[str, PluginAction]:
    """Return the actions of a module, by action id; ``plugin`` is the name of the plugin."""
    tools: dict[str, PluginAction] = {}
    exported = module.__dict__.get("__all__", ())
    for name, candidate in module.__dict__.items():
        function = served_function(candidate)
        declared = declaration(function)
        is_imported = getattr(function, "__module__", None) != module.__name__
        if declared is None or (is_imported and name not in exported):
            continue
        aid = action_id(plugin, function.__name__, declared.version)
        if aid in tools and tools[aid].function is not function:
            raise PluginError(f"two actions are called {aid}")
        tools[aid] = PluginAction(aid, function, declared)
    return tools


def _lifespan(module: ModuleType) -> Lifespan | None:
    """Return the lifespan that the module defines or imports; raises PluginError for several."""
    found = {each.__name__: each for each in module.__dict__.values() if is_lifespan(each)}
    if len(found) > 1:
        raise PluginError(f"a plugin has one @lifespan, not {len(found)}: {', '.join(sorted(found))}")
    return next(map(Lifespan, found.values()), None)
