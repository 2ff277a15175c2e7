"""A plugin: a Python file or module whose actions a host serves.

What is hashed is what is run: the file is read once, and those bytes are both compared with the pin and compiled. The
pin covers that file only; what it imports is the business of whoever installed it.

To find a plugin runs nothing of it. Loading runs the top level of the file, as any import does: a host does that in a
process of its own, after it has put the protocol out of the file's reach and locked itself in. No bytecode is written
beside the file.

An action's id is made of the plugin's name and the function's: ``apply_patch`` of ``workspace.py``, of
``workspace/actions.py`` or of ``workspace/actions/__init__.py`` is ``AID.WORKSPACE.APPLY_PATCH.v1``. An action that the
file imports from elsewhere is not its own and is left out, unless ``__all__`` names it. External predicates and
generators of facts are served as actions (:mod:`.external`, :mod:`.generator`).
"""

# pathlib would take a tenth of the time in which a worker has to start:
# ruff: noqa: PTH113, PTH119, PTH120, PTH122, PTH123

from __future__ import annotations

import os
import re
import sys
from types import ModuleType
from typing import Final, NamedTuple

from manglecp.toolhost.action_decorator import declaration, serving
from manglecp.toolhost.describing import describe
from manglecp.toolhost.tool import Tool

__all__ = ["Plugin", "PluginError", "Source", "action_id", "find", "load", "plugin_name"]

NAMELESS: Final = frozenset({"actions", "__init__"})
"""Files that are called after their folder."""
_MODULE: Final = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


class PluginError(Exception):
    """A plugin that cannot be served, and why."""


class Plugin:
    """The tools of a loaded plugin, by action id and in its order."""

    def __init__(self, source: bytes, tools: dict[str, Tool]) -> None:
        self._source = source
        self.tools: Final = dict(sorted(tools.items()))

    @property
    def sha256(self) -> str:
        """The hash of what was loaded, to pin it by."""
        return _sha256(self._source)


class Source(NamedTuple):
    """A plugin that was found and read, and of which nothing has run yet."""

    where: str
    path: str
    module: str
    """What its module is called while it runs."""
    root: str
    """The folder that its imports begin in: its own or, if it was named as a module, that of its outermost package."""
    content: bytes


def find(where: str, pin: str | None = None) -> Source:
    """Find and read a file or an importable module; with ``pin``, only if that is its SHA-256."""
    path, module, root = _locate(where)
    try:
        with open(path, "rb") as file:
            content = file.read()
    except OSError as error:
        raise PluginError(f"cannot read plugin {where}: {error.strerror}") from error
    if pin is not None:
        _compare(content, pin)
    return Source(where, path, module, root, content)


def load(plugin: str | Source) -> Plugin:
    """Run the top level of a plugin and take its actions."""
    source = find(plugin) if isinstance(plugin, str) else plugin
    folder, file_name = os.path.split(source.path)
    if source.root not in sys.path:
        sys.path.append(source.root)
    module = ModuleType(source.module)
    module.__file__ = source.path
    _place(module, folder if file_name == "__init__.py" else None)
    try:
        _import_package_of(source.module)
        sys.modules[source.module] = module  # where hints that are strings, and pickles, look for their names
        exec(compile(source.content, source.path, "exec"), module.__dict__)
        return Plugin(source.content, _tools(module, plugin_name(source.path)))
    except PluginError:
        raise
    except BaseException as error:  # SystemExit too: it is not for a plugin to end its host
        raise PluginError(f"cannot load plugin {source.where}: {describe(error)}") from error


def _place(module: ModuleType, folder: str | None) -> None:
    """Say where relative imports begin; ``folder`` is that of a package."""
    spec = type(os.__spec__)(module.__name__, None, origin=module.__file__, is_package=folder is not None)
    if folder is not None:
        spec.submodule_search_locations = module.__path__ = [folder]
    module.__spec__ = spec
    module.__package__ = spec.parent


def plugin_name(path: str) -> str:
    """What a plugin is called: its file, or the folder that it is named after."""
    folder, file_name = os.path.split(path)
    name = os.path.splitext(file_name)[0]
    while name in NAMELESS and folder not in ("", "/"):
        folder, name = os.path.split(folder)
    return name


def action_id(plugin: str, function: str, version: int) -> str:
    """``AID.<PLUGIN>.<FUNCTION>.v<N>``, in the letters that ids have."""
    return f"AID.{_part(plugin)}.{_part(function)}.v{version}"


def _part(name: str) -> str:
    part = re.sub(r"[^A-Z0-9_]", "_", name.upper())
    return part if part[:1].isalpha() else f"P{part}"


def _locate(where: str) -> tuple[str, str, str]:
    """The path of a plugin, the name of its module, and the folder that its imports begin in."""
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
    """Where a module lies. Unlike the standard library's `find_spec`, this runs nothing of the packages around it."""
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


def _import_package_of(module: str) -> None:
    package = module.rpartition(".")[0]
    if package:
        from importlib import import_module

        import_module(package)


def _compare(source: bytes, pin: str) -> None:
    found = _sha256(source)
    if found != pin.removeprefix("sha256:").lower():
        raise PluginError(f"plugin hash mismatch: expected {pin}, found sha256:{found}")


def _sha256(source: bytes) -> str:
    from hashlib import sha256  # OpenSSL takes its time to load, and most hosts compare nothing

    return sha256(source).hexdigest()


def _tools(module: ModuleType, name: str) -> dict[str, Tool]:
    tools: dict[str, Tool] = {}
    public = module.__dict__.get("__all__", ())
    for known_as, candidate in module.__dict__.items():
        function = serving(candidate)
        said = declaration(function)
        if said is None or (getattr(function, "__module__", None) != module.__name__ and known_as not in public):
            continue
        aid = action_id(name, function.__name__, said.version)
        if aid in tools and tools[aid].function is not function:
            raise PluginError(f"two actions are called {aid}")
        tools[aid] = Tool(aid, function, said)
    return tools
