"""Reads a pack folder, or raises with all diagnostics.

Rules are taken as text, with the trust level of their folder. If the pack has errors, its rules are parsed here, so
that its author sees their syntax errors too. Fact files are only listed: reading them needs the declarations of the
rules. Python files are described by hosts (:mod:`.host_listing`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from manglecp.base.suggestions import closest_match, did_you_mean
from manglecp.base.text import find_invisible
from manglecp.harness.policy import ENDINGS, PolicyPackage
from manglecp.mangle import ParseError, Source, Trust, parse
from manglecp.pack.descriptions import read_actions, read_externals, read_generators
from manglecp.pack.diagnostics import PackError, Problems
from manglecp.pack.folder import Folder
from manglecp.pack.governance import FOLDER, MAX_DOCUMENT_BYTES, default_governance, select_governance
from manglecp.pack.host_listing import list_tools
from manglecp.pack.interpreter import PythonEnvironment, find_environment
from manglecp.pack.model import (
    FILE_WRITING,
    NETWORK,
    ActionDescription,
    ExternalDescription,
    GeneratorDescription,
    Pack,
    PythonFile,
    SkillText,
)
from manglecp.pack.settings import FILE, MAX_SETTINGS_BYTES, SandboxPolicy, Settings, fill_params, read_settings
from manglecp.pack.skills import MAX_SKILL_BYTES, read_skill

_TRUST_LEVELS: Final = {"schema": Trust.SCHEMA, "policy": Trust.POLICY, "domain": Trust.DOMAIN}
_FACT_SUFFIXES: Final = (".mg", ".jsonl", ".csv", ".sc")
_TOP_NAMES: Final = (FILE, "rules", "facts", "skills", FOLDER, "actions.py", "externals.py", "facts.py")
_CONTENT_OF: Final = {"rules": "rules", "facts": "fact files", "skills": "skills", FOLDER: "policy documents"}
MAX_TEXT_BYTES: Final = 16_777_216  # limit for a rule file or a Python file
_T = TypeVar("_T", ActionDescription, ExternalDescription, GeneratorDescription)


def read_pack(
    folder: Path | str, params: Mapping[str, str] | None = None, *, sandbox: SandboxPolicy | None = None
) -> Pack:
    """Return the pack in a folder. Raises :class:`PackError` with all diagnostics.

    ``sandbox`` is the policy for the hosts that describe its Python files.
    """
    try:
        root = Path(folder).resolve(strict=True)
        if not root.is_dir():
            raise NotADirectoryError
    except (OSError, RuntimeError, ValueError):
        raise PackError.at("", f"there is no folder {str(folder)[:300]!r}") from None
    return _PackReader(root, params or {}, sandbox or SandboxPolicy()).read()


class _PackReader:
    def __init__(self, root: Path, params: Mapping[str, str], sandbox: SandboxPolicy) -> None:
        self._problems = Problems()
        self._folder = Folder(root, self._problems)
        self._root = root
        self._params = params
        self._sandbox = sandbox
        self._secret_files: dict[str, str] = {}  # by secret: a file with a function that takes the secret
        self._python: PythonEnvironment | None = None
        self._python_missing = False

    def read(self) -> Pack:
        self._check_names()
        text = self._folder.text(FILE, MAX_SETTINGS_BYTES) if FILE in self._folder.names else None
        settings = read_settings(text or "", self._root.name, self._problems)
        governance = self._governance(settings.governance_digest)
        if settings.interpreter is not None:
            self._python = find_environment(self._root, settings.interpreter, self._problems)
            self._python_missing = self._python is None
        params = {} if self._problems.has_error(FILE) else fill_params(settings, self._params, self._problems)
        sources, fact_files, skills = self._sources(), self._fact_files(), self._skills()
        values = {param.name: params.get(param.name, "") for param in settings.params}
        actions_file, actions = self._describe("actions", partial(read_actions, values))
        externals_file, externals = self._describe("externals", partial(read_externals, values))
        generators_file, generators = self._describe("facts", partial(read_generators, values))
        if not (sources or fact_files or actions or self._problems.any_error):
            fix = "write actions.py or rules/NAME.mg, or begin with: manglecp new NAME"
            self._problems.add("", "a pack has actions or rules", fix=fix)
        self._check_secrets(settings.secrets)
        self._check_reach(settings, {**externals, **generators, **actions}, actions)
        digest = self._folder.digest(settings.name, governance.digest, params)
        pack = Pack(
            settings=settings,
            sources=sources,
            fact_files=fact_files,
            fact_digests={
                str(self._root / name): self._folder.sha256(name)
                for name in self._inside("facts")
                if self._folder.has_digest(name)
            },
            skills=skills,
            actions=actions,
            externals=externals,
            params=params,
            governance=governance,
            digest=digest,
            folder=str(self._root),
            python=self._python,
            actions_file=actions_file,
            externals_file=externals_file,
            generators=generators,
            generators_file=generators_file,
            warnings=self._problems.warnings,
        )
        self._raise_if_errors(pack)
        return pack

    def _check_secrets(self, declared_secrets: Collection[str]) -> None:
        for name, file in self._secret_files.items():
            if name not in declared_secrets:
                fix = f"add [secrets.{name}] to pack.toml"
                self._problems.add(file, f"pack.toml declares no secret {name}", fix=fix)
        for name in sorted(set(declared_secrets) - self._secret_files.keys()):
            message = f"secrets.{name}: no action, external predicate or fact generator takes it"
            self._problems.warn(FILE, message, fix="remove it")

    def _check_reach(
        self,
        settings: Settings,
        functions: Mapping[str, ActionDescription | ExternalDescription | GeneratorDescription],
        actions: Mapping[str, ActionDescription],
    ) -> None:
        """Report missing and forbidden destinations, and writable folders that an action cannot write."""
        allowed = self._sandbox.egress
        for name, function in functions.items():
            for destination in () if allowed is None else sorted({*function.egress} - {*allowed}):
                fix = f'add "{destination}" to allow in [egress] of server.toml'
                self._problems.add("", f"{name} connects to {destination}, which the operator does not allow", fix=fix)
        is_open = settings.sandbox in ("none", "standard")  # these profiles do not restrict connections
        folders = [param.name for param in settings.params if param.writable]
        for name, action in actions.items():
            if not is_open and not action.egress and not NETWORK.isdisjoint(action.effects):
                message = f"{name} has the effect 'network', and no egress, so it cannot connect to any destination"
                fix = 'name its destinations: @action(effects=["network"], egress=["HOST:PORT"])'
                self._problems.add("actions.py", message, fix=fix)
            if folders and action.mutates and "database" in action.effects and FILE_WRITING.isdisjoint(action.effects):
                message = f"{name}: it cannot write params.{folders[0]}: its effects do not include 'filesystem'"
                self._problems.warn("actions.py", message, fix="add 'filesystem', or ignore this for a remote database")
        writers = [each for each in actions.values() if each.mutates and not FILE_WRITING.isdisjoint(each.effects)]
        if folders and actions and not writers:
            message = f"params.{folders[0]} is writable for no action: only for those with the effect 'filesystem'"
            self._problems.warn(FILE, message, fix="add 'filesystem' to the effects of an action, or remove writable")

    def _raise_if_errors(self, pack: Pack) -> None:
        """Raise :class:`PackError` if there are errors, with the syntax errors of the rules too."""
        if self._problems.any_error:
            for source in pack.sources:
                try:
                    parse(source)
                except ParseError as error:
                    self._problems.extend(error.diagnostics)
        self._problems.raise_if_errors(pack)

    def _check_names(self) -> None:
        """Report files and folders at the top of the pack whose names resemble those of parts of a pack."""
        tops = {name.partition("/")[0] for name in self._folder.names}
        for top, content in _CONTENT_OF.items():
            if top in self._folder.names:
                message = f"{top} is a file, and {content} lie in a folder"
                self._problems.add(top, message, fix=f"move it into {top}/")
        for top in _TRUST_LEVELS:
            inside = self._inside(top)
            if not inside:
                continue
            if any(name.endswith(".mg") for name in inside):
                self._problems.add(f"{top}/", "rules lie in rules/", fix=f"move it to rules/{top}")
            else:
                self._problems.warn(f"{top}/", "not part of a pack", fix=f"rules of that level lie in rules/{top}")
        for top in sorted(tops - {*_TOP_NAMES, *_TRUST_LEVELS, "actions", "externals"}):
            if top.endswith(".mg"):
                self._problems.add(top, "rules lie in rules/", fix=f"move it to rules/{top}")
            elif similar := closest_match(top, _TOP_NAMES):
                self._problems.warn(top, "not part of a pack", fix=f"did you mean {similar}?")

    def _inside(self, folder: str) -> list[str]:
        return [name for name in self._folder.names if name.startswith(f"{folder}/")]

    def _sources(self) -> tuple[Source, ...]:
        sources = []
        for name in self._inside("rules"):
            level, slash, file_name = name.removeprefix("rules/").partition("/")
            trust = _TRUST_LEVELS.get(level) if slash else Trust.DOMAIN  # without a slash, a file in rules/
            if trust is None:
                self._problems.add(name, f"rules/{level} is not a trust level", fix=did_you_mean(level, _TRUST_LEVELS))
            elif "/" in file_name:
                self._problems.add(name, "rule files lie directly in the folder of their level")
            elif not name.endswith(".mg"):
                self._problems.add(name, "the name is not that of a rule file", fix="rule files end in .mg")
            elif (text := self._folder.text(name, MAX_TEXT_BYTES)) is not None:
                sources.append(Source(name, text, trust))
                self._check_characters(sources[-1])
        return tuple(sources)

    def _check_characters(self, source: Source) -> None:
        """Report the first invisible character, in comments too."""
        if (hidden := find_invisible(source.text, running=True)) is not None:
            offset, character = hidden
            line, column = source.position(offset)
            message = f"the text holds the invisible character {character}"
            fix = f"remove it, or write it as \\u{{{character.removeprefix('U+').lower()}}} where a rule looks for it"
            self._problems.add(source.name, message, line=line, column=column, fix=fix)

    def _fact_files(self) -> tuple[str, ...]:
        files = []
        for name in self._inside("facts"):
            if "/" in name.removeprefix("facts/") or not name.removesuffix(".gz").endswith(_FACT_SUFFIXES):
                fix = f"known endings are {', '.join(_FACT_SUFFIXES)}, each also .gz"
                self._problems.add(name, "the name is not that of a fact file", fix=fix)
            else:
                files.append(str(self._root / name))
        return tuple(files)

    def _skills(self) -> dict[str, SkillText]:
        skills = {}
        for name in self._inside("skills"):
            if "/" in name.removeprefix("skills/") or not name.endswith(".md"):
                self._problems.add(name, "the name is not that of a skill", fix="skills are files skills/ID.md")
                continue
            text = self._folder.text(name, MAX_SKILL_BYTES)
            skill = None if text is None else read_skill(name, text, self._problems)
            if skill is not None:
                skills[skill.skill_id] = skill
        return skills

    def _governance(self, pin: str | None) -> PolicyPackage:
        """Return the policy package; the shipped one if a document cannot be read. ``pin`` is the expected digest."""
        documents: dict[str, str] = {}
        all_readable = True
        for name in self._inside(FOLDER):
            document = name.removeprefix(f"{FOLDER}/")
            text = None
            if "/" in document or not document.endswith(ENDINGS):
                fix = f"policy documents are files {FOLDER}/KIND.toml"
                self._problems.add(name, "the name is not that of a policy document", fix=fix)
            else:
                text = self._folder.text(name, MAX_DOCUMENT_BYTES)
            if text is None:
                all_readable = False
            else:
                documents[document] = text
        return select_governance(documents, pin, self._problems) if all_readable else default_governance()

    def _describe(
        self, stem: str, read_listing: Callable[[dict[str, Any], str, Problems], dict[str, _T]]
    ) -> tuple[PythonFile | None, dict[str, _T]]:
        """Return ``stem``.py, or the ``__init__.py`` of the package ``stem``, with the file's descriptions by name."""
        file, package_file = f"{stem}.py", f"{stem}/__init__.py"
        names = self._folder.names
        is_package = stem not in _CONTENT_OF and bool(self._inside(stem))  # the folder facts/ has fact files
        if file in names and is_package:
            self._problems.add(file, f"there is a folder {stem}/ too", fix="keep one of the two")
        if file not in names:
            if not is_package:
                return None, {}
            if package_file not in names:
                self._problems.add(f"{stem}/", "a package has a file __init__.py", fix=f"add {package_file}")
                return None, {}
            file = package_file
        if self._folder.text(file, MAX_TEXT_BYTES) is None or self._python_missing:
            return None, {}
        sha256 = self._folder.sha256(file)
        listing = list_tools(self._root, file, sha256, self._problems, sandbox=self._sandbox, python=self._python)
        python_file = PythonFile(str(self._root / file), file, sha256)
        descriptions = {} if listing is None else read_listing(listing, file, self._problems)
        self._secret_files.update((use.name, file) for each in descriptions.values() for use in each.secrets)
        return python_file, descriptions
