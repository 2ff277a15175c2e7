"""Read the test patterns and import roots of a project from the configuration of pytest and of build tools.

A file that cannot be parsed is ignored. As in pytest, only the first file with a pytest section counts.
"""

from __future__ import annotations

import configparser
import shlex
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["FILES", "Configuration", "read_configuration"]

FILES: Final = ("pytest.ini", ".pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg")
"""The configuration files in the root of the repository, in the order of pytest."""
_SECTIONS: Final = {"pytest.ini": "pytest", ".pytest.ini": "pytest", "tox.ini": "pytest", "setup.cfg": "tool:pytest"}


@dataclass(frozen=True)
class Configuration:
    """The test patterns and import roots; the defaults are those of pytest."""

    test_files: tuple[str, ...] = ("test_*.py", "*_test.py")
    test_classes: tuple[str, ...] = ("Test",)
    test_functions: tuple[str, ...] = ("test",)
    import_roots: tuple[str, ...] = ()
    """Folders on the import path, in addition to the root and all ``src`` folders."""


def read_configuration(texts: Mapping[str, str]) -> Configuration:
    """Return the configuration from the contents of the existing ``FILES``."""
    project = _toml(texts.get("pyproject.toml", ""))
    options: Mapping[str, Any] = {}
    for name in FILES:
        if name not in texts:
            continue
        section = (
            _table(project, "tool", "pytest", "ini_options") if name == "pyproject.toml" else _ini(name, texts[name])
        )
        if section is not None:
            options = section
            break
    defaults = Configuration()
    packages = _words(_table(project, "tool", "hatch", "build", "targets", "wheel"), "packages")
    roots = [
        *_words(options, "pythonpath"),
        *_words(_table(project, "tool", "setuptools", "packages", "find"), "where"),
        *_words(_table(project, "tool", "setuptools", "package-dir"), ""),
        *(package.rpartition("/")[0] for package in packages),
    ]
    return Configuration(
        test_files=_words(options, "python_files") or defaults.test_files,
        test_classes=_words(options, "python_classes") or defaults.test_classes,
        test_functions=_words(options, "python_functions") or defaults.test_functions,
        import_roots=tuple(sorted({_folder(root) for root in roots} - {""})),
    )


def _folder(name: str) -> str:
    parts = [part for part in name.split("/") if part not in ("", ".")]
    return "" if ".." in parts or name.startswith("/") else "/".join(parts)


def _toml(text: str) -> Mapping[str, Any]:
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError):
        return {}


def _ini(name: str, text: str) -> Mapping[str, Any] | None:
    parser = configparser.RawConfigParser(strict=False)
    try:
        parser.read_string(text)
    except configparser.Error:
        return None
    section = _SECTIONS[name]
    if parser.has_section(section):
        return dict(parser[section])
    return {} if name.endswith("pytest.ini") else None  # pytest uses this file even if it is empty


def _table(document: object, *keys: str) -> Mapping[str, Any] | None:
    for key in keys:
        document = document.get(key) if isinstance(document, dict) else None
    return document if isinstance(document, dict) else None


def _words(table: Mapping[str, Any] | None, key: str) -> tuple[str, ...]:
    value = (table or {}).get(key)
    if isinstance(value, str):
        try:
            return tuple(shlex.split(value))
        except ValueError:
            return tuple(value.split())
    return tuple(word for word in value if isinstance(word, str)) if isinstance(value, list) else ()
