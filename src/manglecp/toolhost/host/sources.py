"""What a plugin imports from its own folder is compiled from source.

Bytecode that lies in ``__pycache__`` runs instead of the source beside it, whenever its header says that it belongs to
it. Nobody reads it and no digest covers it, so whoever can write there could have a host run what nobody has seen. The
libraries of the interpreter keep theirs: they belong to whoever installed them, and compiling them would take seconds.
For the same reason nothing at all is imported from folders that the digest of a pack leaves out.
"""

from __future__ import annotations

import sys
from importlib.machinery import EXTENSION_SUFFIXES, SOURCE_SUFFIXES, ExtensionFileLoader, FileFinder, SourceFileLoader
from types import CodeType

__all__ = ["compile_all_below"]


class _Compiling(SourceFileLoader):
    """Loads a source file as if there were no bytecode of it."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        code: CodeType = self.source_to_code(self.get_data(path), path)
        return code


def compile_all_below(folder: str) -> None:
    """Have every later import from that folder, or from one inside of it, look at sources only.

    The interpreter may lie in there too, as it does in a project with an environment of its own. Where it looks for
    its libraries is left as it is.
    """
    beginning = _beginning(folder)
    libraries = tuple(path for path in map(_beginning, sys.path) if path.startswith(beginning) and path != beginning)

    def concerns(path: str) -> bool:
        return _beginning(path).startswith(beginning) and not _beginning(path).startswith(libraries)

    def hook(path: str) -> FileFinder:
        if not concerns(path):
            raise ImportError(path)
        if _is_apart(path[len(beginning) :]):
            return FileFinder(path)  # which finds nothing
        return FileFinder(path, (ExtensionFileLoader, EXTENSION_SUFFIXES), (_Compiling, SOURCE_SUFFIXES))

    sys.path_hooks.insert(0, hook)
    for path in list(filter(concerns, sys.path_importer_cache)):
        del sys.path_importer_cache[path]


def _is_apart(path: str) -> bool:
    """Whether a folder belongs to tools and not to the pack, see :mod:`manglecp.pack.folder`."""
    return any(part in ("__pycache__", "node_modules") or part.startswith(".") for part in path.split("/"))


def _beginning(folder: str) -> str:
    return f"{folder.rstrip('/')}/"
