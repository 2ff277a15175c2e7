"""The Python that runs the hosts of a pack: that of this process, or of a virtual environment that the pack names.

Neither a pack nor its environment is trusted: no code of either runs before the host is sandboxed. The host starts with
the base interpreter that ``bin/python`` links to, without ``site``, and adds the packages itself. The host imports the
modules of manglecp from this process, so that both ends of the protocol have one version; these need the standard
library only.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Final, NamedTuple

from manglecp.pack.diagnostics import Problems
from manglecp.pack.settings import FILE

_HOST: Final = "manglecp.toolhost.host"
_PROGRAM: Final = re.compile(r"python(\d(\.\d+)?t?)?")
_PACKAGE: Final = str(Path(__file__).resolve().parent.parent)
# This program imports only manglecp from the folder that is its first argument. It runs on any Python 3.
_BOOTSTRAP: Final = f"""\
import json, sys
if sys.version_info < (3, 11):
    version = "%d.%d" % sys.version_info[:2]
    reason = "python.interpreter: Python " + version + " is too old; create the environment with Python 3.11 or later"
    print(json.dumps(dict(ok=False, error=reason)))
    sys.exit(3)
import runpy, importlib.util
folder = sys.argv.pop(1)
spec = importlib.util.spec_from_file_location("manglecp", folder + "/__init__.py", submodule_search_locations=[folder])
sys.modules["manglecp"] = module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
runpy.run_module("{_HOST}", run_name="__main__", alter_sys=True)
"""


class PythonEnvironment(NamedTuple):
    """The absolute paths of a virtual environment and its interpreter."""

    folder: str
    program: str  # the base interpreter, outside of the environment and of the pack


def host_argv(environment: PythonEnvironment | None) -> list[str]:
    """Return the command that runs a host, without the arguments of the host."""
    if environment is None:
        return [sys.executable, "-I", "-m", _HOST]
    return [environment.program, "-I", "-S", "-c", _BOOTSTRAP, _PACKAGE, "--packages", environment.folder]


def find_environment(root: Path, interpreter: str, problems: Problems) -> PythonEnvironment | None:
    """Return the environment of ``[python] interpreter``; report a problem and return None if it cannot be used."""
    path = root / interpreter
    folder = path.parent.parent
    program = Path(os.path.realpath(path))
    problem = None
    if not path.exists():
        problem, fix = "there is no such file", f"create it: python3 -m venv {folder.name}"
    elif not (folder / "pyvenv.cfg").is_file() or path.parent.name != "bin":
        problem, fix = "it does not belong to a virtual environment", "name ENVIRONMENT/bin/python"
    elif not program.is_file() or not os.access(program, os.X_OK):
        problem, fix = "it is not an executable file", "create the environment again"
    elif not _PROGRAM.fullmatch(program.name):
        problem, fix = "it does not link to a Python interpreter", "create the environment again"
    elif program.is_relative_to(folder.resolve()) or program.is_relative_to(root):
        problem = "it is a copy of an interpreter, which would run outside of the sandbox"
        fix = "create the environment with links: python3 -m venv --symlinks"
    if problem is not None:
        problems.add(FILE, f"python.interpreter: {problem}", fix=fix)
        return None
    return PythonEnvironment(str(folder), str(program))
