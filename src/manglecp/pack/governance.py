"""The policy package of a pack: documents that constrain model turns, in ``governance/`` or shipped with manglecp.

``pack.toml`` must pin the digest of a package in ``governance/``, and may pin the digest of the shipped package.
Every turn of a server needs some documents. A package without them would refuse every turn, so their absence is
reported when the pack is read.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Final

from manglecp.base.text import find_invisible
from manglecp.harness.policy import TIERS, PolicyError, PolicyPackage, package_of, read_package
from manglecp.pack.diagnostics import Problems
from manglecp.pack.settings import FILE
from manglecp.pack.toml_reader import KeyPath, KeyPositions, has_too_many_parts

FOLDER: Final = "governance"
MAX_DOCUMENT_BYTES: Final = 262_144
_REQUIRED_CONTROLS: Final = {  # by document: the control that the evidence of every turn of a server needs
    "guardrail-stages": "the stages that have to be decided",
    "observability": "the mode of observability",
    "risk-tiers": "a control profile for its risk tier",
}


def select_governance(documents: Mapping[str, str], pin: str | None, problems: Problems) -> PolicyPackage:
    """Return the package of the documents (texts by file name), or the shipped one without documents or on an error.

    ``pin`` is the digest that ``pack.toml`` expects. Problems of the documents and a wrong pin are reported.
    """
    package = _read_documents(documents, problems) if documents else default_governance()
    if package is None:
        return default_governance()
    if problems.has_error(FILE):
        return package  # errors in pack.toml: its pin is not known
    if documents and pin is None:
        message = f"{FOLDER}/ is not pinned"
        problems.add(FILE, message, fix=f'add [governance] with digest = "{package.digest}"')
    elif pin not in (None, package.digest):
        selected_text = f"the one in {FOLDER}/" if documents else f"the one that ships with manglecp ({package.ref})"
        message = f"governance.digest: pinned is the policy package {pin}, but {selected_text} is {package.digest}"
        problems.add(FILE, message, fix="review the change and pin the new digest, or restore the pinned package")
    return package


def _read_documents(documents: Mapping[str, str], problems: Problems) -> PolicyPackage | None:
    readable = [_is_readable(name, text, problems) for name, text in documents.items()]  # a list, to report all of them
    if not all(readable):
        return None
    try:
        package = read_package({name: text.encode() for name, text in documents.items()})
    except PolicyError as error:
        for problem in error.diagnostics:
            line, column = _position(problem.file, documents.get(problem.file, ""), problem.pointer)
            message = f"{problem.pointer}: {problem.message}" if problem.pointer else problem.message
            problems.add(f"{FOLDER}/{problem.file}", message, line=line, column=column)
        return None
    except ValueError:  # a number of very many digits
        problems.add(f"{FOLDER}/", "a value is too large")
        return None
    for name, message, fix in _missing_controls(package.contents):
        problems.add(f"{FOLDER}/{name}", message, fix=fix)
    return package


def _is_readable(name: str, text: str, problems: Problems) -> bool:
    file = f"{FOLDER}/{name}"
    if name.endswith(".toml") and has_too_many_parts(text):
        problems.add(file, "a key has too many parts")
    elif (hidden := find_invisible(text, running=True)) is not None:
        offset, character = hidden
        line, column = text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)
        message = f"the text holds the invisible character {character}"
        problems.add(file, message, line=line, column=column, fix="remove it")
    else:
        return True
    return False


def _position(name: str, text: str, pointer: str) -> tuple[int, int] | tuple[None, None]:
    """Return line and column of the value at a JSON pointer of a valid TOML document; both None otherwise."""
    if not pointer or not name.endswith(".toml"):
        return None, None
    steps = (step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:])
    path: KeyPath = tuple(int(step) if step.isdecimal() else step for step in steps)
    return KeyPositions(text.replace("\r\n", "\n")).of(path)


def _missing_controls(contents: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, str, str]]:
    """Yield document, message and fix for each omission that would make the server refuse every turn."""
    if not contents["governance"]["claimed"]:
        yield "governance", "every turn of a server claims governance", "write claimed = true"
    for document, control in _REQUIRED_CONTROLS.items():
        if document not in contents:
            message = f"the document is missing, and every turn of a server needs {control}"
            yield document, message, f"add {FOLDER}/{document}.toml"
    for tier in TIERS if "risk-tiers" in contents else ():
        if tier not in contents["risk-tiers"]["tiers"]:
            yield "risk-tiers", f"the tier {tier} has no control profile", f"add [tiers.{tier}]"


@cache
def default_governance() -> PolicyPackage:
    """Return the shipped package; its digest is part of the evidence of runs."""
    documents = tomllib.loads(files(__package__).joinpath("governance.toml").read_text("utf-8"))
    return package_of(documents.pop("manifest"), documents)
