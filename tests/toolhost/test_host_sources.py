"""Bytecode beside a plugin is not run; that of the interpreter's libraries is, wherever they lie."""

from __future__ import annotations

import py_compile
import subprocess
import sys
from pathlib import Path

import pytest

from manglecp.toolhost.host import confinement

PROGRAM = """
import sys
from manglecp.toolhost.host.confinement import compile_all_below

root = sys.argv[1]
sys.path += [root + "/lib", root + "-other"]
if sys.argv[2] == "early":  # who has looked there before remembers how
    sys.path.append(root)
    try:
        import missing
    except ImportError:
        pass
compile_all_below(root)
sys.path.append(root)
import beside, library, other, package.inner

print(beside.X, package.inner.X, library.X, other.X)
"""


def module(path: Path) -> None:
    """A module whose bytecode says something else than its source."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("X = 'bytecode'\n")
    assert py_compile.compile(str(path), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    path.write_text("X = 'source'\n")


def test_sources_of_the_plugin_and_bytecode_of_libraries(tmp_path: Path) -> None:
    root = tmp_path / "plugin"
    for name in ("beside", "package/inner", "lib/library", "../plugin-other/other"):
        module(root / f"{name}.py")
    for when in ("early", "late"):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(root), when], capture_output=True, text=True, check=False
        )
        assert (done.stdout, done.stderr) == ("source source bytecode bytecode\n", "")


def test_bytecode_without_a_source_is_nothing(tmp_path: Path) -> None:
    module(tmp_path / "beside.py")
    (tmp_path / "beside.py").unlink()
    next((tmp_path / "__pycache__").iterdir()).rename(tmp_path / "beside.pyc")
    lines = (
        "import sys",
        f"from {confinement.__name__} import compile_all_below",
        "compile_all_below(sys.argv[1])",
        "sys.path.append(sys.argv[1])",
        "import beside",
    )
    done = subprocess.run(
        [sys.executable, "-c", "; ".join(lines), str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert "No module named 'beside'" in done.stderr


@pytest.mark.parametrize("folder", [".lib", ".lib/inner", "__pycache__", "node_modules", "data/.lib"])
def test_folders_of_tools_hold_nothing_to_import(tmp_path: Path, folder: str) -> None:
    """No digest covers them."""
    (tmp_path / folder).mkdir(parents=True)
    (tmp_path / folder / "beside.py").write_text("X = 1\n")
    lines = (
        "import importlib.util, sys",
        f"from {confinement.__name__} import compile_all_below",
        "compile_all_below(sys.argv[1])",
        "sys.path += [sys.argv[1], sys.argv[1] + '/' + sys.argv[2]]",
        "print(importlib.util.find_spec('beside'))",
        "import importlib, contextlib",
        "with contextlib.suppress(ImportError):",
        "    print(importlib.import_module(sys.argv[2].replace('/', '.').lstrip('.') + '.beside'))",
    )
    command = [sys.executable, "-c", "\n".join(lines), str(tmp_path), folder]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("None\n", "")
