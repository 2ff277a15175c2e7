"""What a project says about its tests and its import path, in the files that pytest and packagers read.

A file that cannot be parsed says nothing. As pytest does, the first of its files that speaks of pytest counts alone.
"""

from __future__ import annotations

import configparser
import shlex
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["FILES", "Configuration", "configured"]

FILES: Final = ("pytest.ini", ".pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg")
"""In the order in which pytest looks at them, at the top of the repository."""
_SECTIONS: Final = {"pytest.ini": "pytest", ".pytest.ini": "pytest", "tox.ini": "pytest", "setup.cfg": "tool:pytest"}


@dataclass(frozen=True)
class Configuration:
    """As pytest has it where nothing is said."""

    test_files: tuple[str, ...] = ("test_*.py", "*_test.py")
    test_classes: tuple[str, ...] = ("Test",)
    test_functions: tuple[str, ...] = ("test",)
    import_roots: tuple[str, ...] = ()
    """Folders that imports begin in, besides the top and every ``src``."""


def configured(texts: Mapping[str, str]) -> Configuration:
    """By the contents of those of ``FILES`` that there are."""
    project = _toml(texts.get("pyproject.toml", ""))
    said: Mapping[str, Any] = {}
    for name in FILES:
        if name not in texts:
            continue
        spoken = (
            _table(project, "tool", "pytest", "ini_options") if name == "pyproject.toml" else _ini(name, texts[name])
        )
        if spoken is not None:
            said = spoken
            break
    usual = Configuration()
    packages = _words(_table(project, "tool", "hatch", "build", "targets", "wheel"), "packages")
    roots = [
        *_words(said, "pythonpath"),
        *_words(_table(project, "tool", "setuptools", "packages", "find"), "where"),
        *_words(_table(project, "tool", "setuptools", "package-dir"), ""),
        *(package.rpartition("/")[0] for package in packages),
    ]
    return Configuration(
        test_files=_words(said, "python_files") or usual.test_files,
        test_classes=_words(said, "python_classes") or usual.test_classes,
        test_functions=_words(said, "python_functions") or usual.test_functions,
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
    return {} if name.endswith("pytest.ini") else None  # that file counts even if it is empty


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
