"""A plugin: a Python file or module whose actions a host serves.

What is hashed is what is run: the file is read once, and those bytes are both compared with the pin and compiled. The
pin covers that file only; what it imports is the business of whoever installed it.

Loading runs the top level of the file, as any import does. A host does that in a process of its own, after it has put
the protocol out of the file's reach; no bytecode is written beside the file.

An action's id is made of the plugin's name and the function's: ``apply_patch`` of ``workspace.py``, or of
``workspace/actions.py``, is ``AID.WORKSPACE.APPLY_PATCH.v1``.
"""

# pathlib would take a tenth of the time in which a worker has to start:
# ruff: noqa: PTH113, PTH119, PTH122, PTH123

from __future__ import annotations

import os
import re
import sys
from types import ModuleType
from typing import Final

from manglecp.toolhost.action import declaration
from manglecp.toolhost.tool import Tool

__all__ = ["Plugin", "PluginError", "action_id", "load"]

_NAMELESS: Final = frozenset({"actions", "__init__"})
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


def load(where: str, pin: str | None = None) -> Plugin:
    """Load a plugin from a file or an importable module; with ``pin``, only if that is its SHA-256."""
    path, module_name = _find(where)
    try:
        with open(path, "rb") as file:
            source = file.read()
    except OSError as error:
        raise PluginError(f"cannot read plugin {where}: {error.strerror}") from error
    if pin is not None:
        _compare(source, pin)
    folder, file_name = os.path.split(path)
    stem = os.path.splitext(file_name)[0]
    name = os.path.basename(folder) if stem in _NAMELESS else stem
    module = ModuleType(module_name)
    module.__file__ = path
    sys.modules[module_name] = module  # where hints that are strings, and pickles, look for their names
    if folder not in sys.path:
        sys.path.append(folder)
    try:
        exec(compile(source, path, "exec"), module.__dict__)
        return Plugin(source, _tools(module, name))
    except PluginError:
        raise
    except BaseException as error:  # SystemExit too: it is not for a plugin to end its host
        raise PluginError(f"cannot load plugin {where}: {type(error).__name__}: {error}") from error


def action_id(plugin: str, function: str, version: int) -> str:
    """``AID.<PLUGIN>.<FUNCTION>.v<N>``, in the letters that ids have."""
    return f"AID.{_part(plugin)}.{_part(function)}.v{version}"


def _part(name: str) -> str:
    part = re.sub(r"[^A-Z0-9_]", "_", name.upper())
    return part if part[:1].isalpha() else f"P{part}"


def _find(where: str) -> tuple[str, str]:
    """The file of a plugin, and what its module is called while it runs."""
    if os.path.isfile(where):
        path = os.path.realpath(where)
        return path, f"manglecp_plugin_{_part(os.path.splitext(os.path.basename(path))[0]).lower()}"
    if not where.endswith(".py") and _MODULE.fullmatch(where):
        from importlib.util import find_spec

        try:
            spec = find_spec(where)
        except (ImportError, ValueError) as error:
            raise PluginError(f"cannot find plugin {where}: {error}") from error
        if spec is not None and spec.origin is not None and spec.has_location:
            return spec.origin, where
    raise PluginError(f"plugin not found: {where}")


def _compare(source: bytes, pin: str) -> None:
    found = _sha256(source)
    if found != pin.removeprefix("sha256:").lower():
        raise PluginError(f"plugin hash mismatch: expected {pin}, found sha256:{found}")


def _sha256(source: bytes) -> str:
    from hashlib import sha256  # OpenSSL takes its time to load, and most hosts compare nothing

    return sha256(source).hexdigest()


def _tools(module: ModuleType, name: str) -> dict[str, Tool]:
    tools: dict[str, Tool] = {}
    for function in module.__dict__.values():
        said = declaration(function)
        if said is None:
            continue
        aid = action_id(name, function.__name__, said.version)
        if aid in tools and tools[aid].function is not function:
            raise PluginError(f"two actions are called {aid}")
        tools[aid] = Tool(aid, function, said)
    return tools
