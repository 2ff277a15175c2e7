"""The settings in ``pack.toml``, all with defaults; unknown keys are errors (MANI-08 to MANI-26).

Imports neither :mod:`manglecp.mangle` nor the harness: a server publishes its settings before those are loaded.
docs/reference/requirements.md explains ids such as MANI-08.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final, Literal, TypeVar, cast, get_args

from manglecp.base.suggestions import did_you_mean
from manglecp.base.text import find_invisible, parse_age
from manglecp.pack.diagnostics import Problems
from manglecp.pack.toml_reader import TomlTable, read_toml
from manglecp.wire import CATEGORIES, MIN_MESSAGE_BYTES, SCHEMES

TokenCounting = Literal["auto", "estimate", "o200k_base", "cl100k_base"]
ParamKind = Literal["text", "folder"]
Profile = Literal["none", "standard", "spawn", "strict"]  # profiles of the sandbox
_MAX_LIMIT: Final = 1 << 40  # maximum for a limit without a tighter bound
_DAY_MS: Final = 86_400_000


def _bounded(default: int, minimum: int, maximum: int) -> int:
    """Return a dataclass field for a number in ``pack.toml``."""
    number: int = field(default=default, metadata={"bounds": (minimum, maximum)})
    return number


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxPolicy:
    """The operator's minimum for the sandbox of a pack's hosts; by default the complete strict profile."""

    degrade: bool = False
    """Start hosts with the mechanisms that the Linux kernel supports, even if some of the profile are missing."""
    allow_weaker: bool = False
    """Use the profile ``none`` or ``standard`` where the pack requests it."""
    egress: tuple[str, ...] | None = None
    """The only destinations that a pack may declare; None: every destination."""
    private: tuple[str, ...] = ()
    """Destinations whose names may have a private address."""

    def weaker(self, requested: Profile) -> Profile | None:
        """Return the requested profile if it is ``none`` or ``standard`` and the operator allows these, else None.

        ``spawn`` is weaker than strict too, but is not decided here: a host has it if the operator allows programs
        that its actions name.
        """
        return requested if self.allow_weaker and requested in ("none", "standard") else None

    def host_options(self, profile: Profile) -> tuple[str, ...]:
        if profile == "none":
            return ()
        private = (word for destination in self.private for word in ("--private", destination))
        return (*(("--degrade",) if self.degrade else ()), *private)


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainSettings:
    """The purpose of the pack in the manifest; clients choose servers by it."""

    id: str
    description: str = ""
    categories: tuple[str, ...] = ()
    affinities: Mapping[str, int] = field(default_factory=dict)
    """How well the domain serves a topic, 0 to 100."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IntentSettings:
    """An intent in the manifest, with the facts and parameters that clients send with the intent."""

    name: str
    description: str
    required_facts: tuple[str, ...] = ()
    optional_facts: tuple[str, ...] = ()
    params: tuple[str, ...] = ()  # the parameters that the rules read
    line: int | None = field(default=None, compare=False, repr=False)
    """The line of its entry in ``pack.toml``, for diagnostics."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackLimits:
    """The limits that the manifest publishes and the server enforces."""

    max_message_bytes: int = _bounded(16_777_216, MIN_MESSAGE_BYTES, _MAX_LIMIT)
    max_facts_per_request: int = _bounded(10_000, 1, _MAX_LIMIT)
    max_derived_facts: int = _bounded(100_000, 1, _MAX_LIMIT)
    max_intervals_per_atom: int = _bounded(1_000, 1, _MAX_LIMIT)
    max_compute_ms: int = _bounded(10_000, 1, _DAY_MS)
    max_base_facts: int = _bounded(1_000_000, 1, _MAX_LIMIT)
    """The limit for the facts that rules derive when the pack is loaded, and likewise for its generated facts.

    Despite the name, the facts in the pack's files do not count.
    """
    max_load_ms: int = _bounded(60_000, 1, _DAY_MS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Disclosure:
    """The minimal scores of the detail levels, and the token counter (EVAL-37)."""

    full: int = _bounded(70, 0, 100)
    condensed: int = _bounded(40, 0, 100)
    minimal: int = _bounded(20, 0, 100)
    tokens: TokenCounting = "auto"
    inline_skill_tokens: int = _bounded(500, 0, 2_000)
    """Longer skills are referenced, not inlined. The specification's upper bound is 2,000."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """Limits of invocations: their duration, the retention of offers, the size of reports to clients."""

    max_execution_ms: int = _bounded(600_000, 1, _DAY_MS)  # for a whole run, without evaluation (OPEN-71)
    max_events: int = _bounded(20, 1, 10_000)  # OBS-07
    max_delta_facts: int = _bounded(50, 1, 10_000)  # a larger delta is rolled up (OPEN-45)
    retention_ms: int = _bounded(300_000, 1_000, _DAY_MS)
    """How long an offer without a validity window is valid, from the response that contains it (INVK-12)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthSettings:
    """The authentication that the manifest announces."""

    required: bool = False
    schemes: tuple[str, ...] = ()
    token_url: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Param:
    """A setting that the operator gives as ``--set NAME=VALUE``; rules see it as ``setting(Name, Value)``."""

    name: str
    description: str = ""
    default: str | None = None
    kind: ParamKind = "text"
    """The pack's host processes get access to a ``folder``, so only the operator can set one."""
    writable: bool = False  # whether actions may write in the folder

    @property
    def required(self) -> bool:
        return self.default is None


@dataclass(frozen=True, slots=True, kw_only=True)
class FactSource:
    """A source of facts that all servers of one store share: ``[facts.NAME]``."""

    name: str
    """The name of a generator in ``facts.py``, unless the facts are pushed."""
    push: bool = False
    """Whether clients with the permission ``push_facts`` replace the facts."""
    predicates: tuple[str, ...] = ()
    """The predicates of pushed facts."""
    max_facts: int = 100_000
    every: float | None = None
    """The seconds between two passes of the generator; None: as ``facts.py`` declares."""
    stale_after_ns: int | None = None
    """The age above which the facts are stale; None: they are stale only until the first ones arrive."""
    on_stale: Literal["deny", "keep"] = "deny"
    """Whether the tools are denied whose rules read stale facts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The content of ``pack.toml``, with defaults for absent keys."""

    name: str
    version: str = "0.1.0"
    description: str = ""
    domain: DomainSettings
    permissions: tuple[str, ...] = ()
    """The permissions that the rules read, without those that the server defines."""
    trust_levels: tuple[str, ...] = ()
    """The trust levels that the rules read, without those that the server defines."""
    intents: tuple[IntentSettings, ...] = ()
    limits: PackLimits = PackLimits()
    disclosure: Disclosure = Disclosure()
    invocation: Invocation = Invocation()
    auth: AuthSettings = AuthSettings()
    params: tuple[Param, ...] = ()
    fact_sources: tuple[FactSource, ...] = ()
    secrets: Mapping[str, str] = field(default_factory=dict)
    """The descriptions of the secrets that functions of the pack take, by name."""
    sandbox: Profile = "strict"
    interpreter: str | None = None
    """The interpreter of a virtual environment, relative to the pack; None: the hosts have the packages of manglecp."""
    structured_facts: bool = False
    """Whether clients may send facts as clauses, the extension ``x-structured_facts``."""
    rule_coverage: bool = False
    """Whether every client may request the rule coverage, the extension ``x-rule_coverage``."""
    governance_digest: str | None = None
    """The pinned digest of the policy package."""


FILE: Final = "pack.toml"
MAX_SETTINGS_BYTES: Final = 65_536  # limit for the file
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_NAME_FORM: Final = "a name: letters, digits, '.', '_' and '-', at most 64"
_VERSION: Final = re.compile(r"[0-9A-Za-z][0-9A-Za-z.+-]{0,63}")
_ONE_LINE: Final = re.compile(r"[^\s\x00-\x1f\x7f](?:[^\x00-\x1f\x7f]{0,126}[^\s\x00-\x1f\x7f])?")
_PREDICATE: Final = re.compile(r"[a-z][A-Za-z0-9_]*(?:\.[a-z][A-Za-z0-9_]*)*")
SECRET_NAME: Final = re.compile(r"[A-Z][A-Z0-9_]{0,63}")
_PARAM: Final = re.compile(r"[a-z][a-z0-9_]{0,63}")
_SOURCE: Final = _PARAM
_CATEGORY: Final = re.compile("|".join((*CATEGORIES, r"x-[A-Za-z0-9][A-Za-z0-9._-]{0,63}")))
_SCHEME: Final = re.compile("|".join(SCHEMES))
_URL: Final = re.compile(r"https?://[^\s/]+\S*")
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_USERINFO: Final = re.compile(r"https?://[^/?#]*@")
_MAX_VALUE: Final = 65_536  # characters of a param
_MAX_KEY: Final = 200  # characters
_UNUSABLE: Final = re.compile("[\0\ud800-\udfff]")  # NUL, and surrogates: a command line that is not UTF-8
_NumbersT = TypeVar("_NumbersT", PackLimits, Invocation, Disclosure)


def read_settings(text: str, folder_name: str, problems: Problems) -> Settings:
    """Return the settings in the text of ``pack.toml``, which is empty if there is no such file; report problems."""
    document = read_toml(FILE, text, problems)
    pack = document.section("pack")
    name = pack.text("name", default_name(folder_name), pattern=_NAME, takes=_NAME_FORM)
    version = pack.text("version", "0.1.0", pattern=_VERSION, takes="a version such as 1.4.0")
    description = pack.text("description", "")
    permissions = pack.texts("permissions", _ONE_LINE, "a permission: one line of at most 128 characters")
    trust_levels = pack.texts("trust_levels", _ONE_LINE, "a trust level: one line of at most 128 characters")
    pack.finish()
    extensions, governance = document.section("extensions"), document.section("governance")
    python = document.section("python")
    settings = Settings(
        name=name,
        version=version,
        description=description,
        domain=_domain(document.section("domain"), name, description),
        permissions=permissions,
        trust_levels=trust_levels,
        intents=_intents(document),
        limits=_numbers(document.section("limits"), PackLimits),
        disclosure=_disclosure(document.section("disclosure")),
        invocation=_numbers(document.section("invocation"), Invocation),
        auth=_auth(document.section("auth")),
        params=_params(document.section("params")),
        fact_sources=_fact_sources(document.section("facts")),
        secrets=_secrets(document.section("secrets")),
        sandbox=_sandbox(document.section("sandbox"), problems),
        interpreter=python.text("interpreter", None, pattern=_ONE_LINE, takes="a path such as .venv/bin/python"),
        structured_facts=extensions.flag("structured_facts", False),
        rule_coverage=extensions.flag("rule_coverage", False),
        governance_digest=governance.text(
            "digest", None, pattern=_DIGEST, takes="a digest: sha256: and 64 hexadecimal digits"
        ),
    )
    extensions.finish()
    governance.finish()
    python.finish()
    # Keys of [pack] are easily written above it; the problem then names the table to which they belong.
    document.finish(table_of=dict.fromkeys(("name", "version", "description", "permissions", "trust_levels"), "pack"))
    return settings


def is_pack_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None


def default_name(folder_name: str) -> str:
    """Return a valid pack name made from the name of its folder."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", folder_name).strip("-._")[:64] or "pack"


def fill_params(settings: Settings, overrides: Mapping[str, str], problems: Problems) -> dict[str, str]:
    """Return the value of every param: the operator's (in ``overrides``) or the default. Report invalid values."""
    params = {param.name: param for param in settings.params}
    for name in sorted(overrides.keys() - params.keys()):
        problems.add("", f"--set {name}: the pack has no param of that name", fix=did_you_mean(name, params))
    values = {}
    for param in settings.params:
        value = overrides.get(param.name, param.default)
        if value is None:
            message = f"params.{param.name}: a value is needed"
            problems.add(FILE, message, fix=f"give --set {param.name}=… or a default")
        elif len(value) > _MAX_VALUE or _UNUSABLE.search(value):
            problems.add("", f"--set {param.name}: text of at most {_MAX_VALUE:,} characters is expected")
        elif param.kind == "folder" and value:
            values[param.name] = _resolve_folder(param.name, value, problems)
        else:
            values[param.name] = value
    return values


def _resolve_folder(name: str, value: str, problems: Problems) -> str:
    """Return the path with links resolved, so that a link changed later gives the sandbox no access elsewhere."""
    try:
        folder = Path(value).expanduser().resolve(strict=True)
        if folder.is_dir():
            return str(folder)
        problem = "that is not a folder"
    except (OSError, RuntimeError):
        problem = "there is no such folder"
    problems.add("", f"--set {name}: {problem}")
    return value


def _domain(domain: TomlTable, name: str, description: str) -> DomainSettings:
    affinities = domain.section("affinities")
    settings = DomainSettings(
        id=domain.text("id", name, pattern=_NAME, takes=_NAME_FORM),
        description=domain.text("description", description),
        categories=domain.texts("categories", _CATEGORY, f"one of {', '.join(CATEGORIES)} or a name with x- before it"),
        affinities={key: affinities.number(key, 0, 0, 100) for key in sorted(affinities)},
    )
    for key in settings.affinities:
        if not key.strip() or len(key) > _MAX_KEY:
            affinities.report(key, f"a key has from 1 to {_MAX_KEY} characters")
        elif (hidden := find_invisible(key)) is not None:
            affinities.report(key, f"the key holds the invisible character {hidden[1]}", "remove it")
    domain.finish()
    return settings


def _intents(document: TomlTable) -> tuple[IntentSettings, ...]:
    intents: dict[str, IntentSettings] = {}
    for intent in document.sections("intents"):
        name = intent.text("name", None, pattern=_NAME, takes=_NAME_FORM, required=True)
        description = intent.text("description", "", required=True)
        required = intent.texts("required_facts", _PREDICATE, "the name of a predicate")
        optional = intent.texts("optional_facts", _PREDICATE, "the name of a predicate")
        params = intent.texts("params", _ONE_LINE, "a parameter: one line of at most 128 characters")
        intent.finish()
        for predicate in sorted(set(required) & set(optional)):
            intent.report("optional_facts", f"{predicate} is required already", "remove it")
        if name is not None and name in intents:
            intent.report("name", f"there is an intent {name} already", "rename or remove one of them")
        elif name is not None:
            intents[name] = IntentSettings(
                name=name,
                description=description,
                required_facts=required,
                optional_facts=optional,
                params=params,
                line=intent.line,
            )
    return tuple(intents.values())


def _numbers(table: TomlTable, settings: type[_NumbersT], **values: Any) -> _NumbersT:
    """Read the numbers of a table, each within its bounds; ``values`` are the other fields of the settings."""
    for number in fields(settings):
        if "bounds" in number.metadata:
            default: Any = number.default
            values[number.name] = table.number(number.name, default, *number.metadata["bounds"])
    table.finish()
    return settings(**values)


def _disclosure(disclosure: TomlTable) -> Disclosure:
    levels = _numbers(disclosure, Disclosure, tokens=disclosure.choice("tokens", "auto", get_args(TokenCounting)))
    if not levels.full >= levels.condensed >= levels.minimal:
        scores = f"full {levels.full}, condensed {levels.condensed}, minimal {levels.minimal}"
        fix = "a higher level needs at least the score of the lower one"
        disclosure.report(None, f"{scores} are not in descending order", fix)
    return levels


def _auth(auth: TomlTable) -> AuthSettings:
    required = auth.flag("required", False)
    schemes = auth.texts("schemes", _SCHEME, f"one of {', '.join(SCHEMES)}")
    token_url = auth.text("token_url", None, pattern=_URL, takes="an http or https address")
    auth.finish()
    if required and not schemes:
        auth.report("required", "then schemes are needed too", f"add schemes = […] of {', '.join(SCHEMES)}")
    if "oauth2" in schemes and "token_url" not in auth:
        auth.report("schemes", "oauth2 needs a token_url", 'add token_url = "https://…", or remove oauth2')
    if token_url is not None and _USERINFO.match(token_url):
        auth.report("token_url", "the address names a user, and clients would see it", "remove the part before the @")
    return AuthSettings(required=required, schemes=schemes, token_url=token_url)


def _params(params: TomlTable) -> tuple[Param, ...]:
    settings = []
    for name in params:
        param = params.section(name)
        if not _PARAM.fullmatch(name):
            params.report(name, "a param is named in lower case, such as root or time_zone")
        description = param.text("description", "")
        default = param.text("default", None, longest=_MAX_VALUE, empty=True)
        required = param.flag("required", None)
        kind = cast("ParamKind", param.choice("kind", "text", get_args(ParamKind)))
        writable = param.flag("writable", False)
        param.finish()
        if writable and kind != "folder":
            param.report("writable", "only a folder can be written", 'add kind = "folder"')
        if kind == "folder" and default:
            message = "a folder is named by the operator, not by the pack"
            param.report("default", message, 'write default = "", or nothing')
        if required is True and default is not None:
            param.report("required", "a param with a default is not required", "remove one of them")
        elif required is False and default is None:
            param.report("required", "an optional param needs a default", 'add default = "…"')
        settings.append(Param(name=name, description=description, default=default, kind=kind, writable=writable))
    return tuple(settings)


def _secrets(secrets: TomlTable) -> dict[str, str]:
    descriptions = {}
    for name in secrets:
        secret = secrets.section(name)
        if not SECRET_NAME.fullmatch(name):
            secrets.report(name, "a secret is named in upper case, such as GITHUB_TOKEN")
        descriptions[name] = secret.text("description", "")
        secret.finish()
    return descriptions


def _fact_sources(tables: TomlTable) -> tuple[FactSource, ...]:
    sources = []
    for name in tables:
        table = tables.section(name)
        if not _SOURCE.fullmatch(name):
            tables.report(name, "a source is named in lower case, such as alerts or on_call")
        push = table.flag("push", False)
        predicates = table.texts("predicates", _PREDICATE, "the name of a predicate")
        every_ns, stale_after_ns = _age(table, "every"), _age(table, "stale_after")
        on_stale = table.choice("on_stale", "deny", ("deny", "keep"))
        max_facts = table.number("max_facts", 100_000, 1, _MAX_LIMIT)
        table.finish()
        if push and not predicates:
            table.report("push", "the predicates of pushed facts are needed too", 'add predicates = ["…"]')
        if push and every_ns is not None:
            table.report("every", "pushed facts have no schedule", "remove it, or use stale_after")
        if not push and predicates:
            table.report("predicates", "@facts(…) names the predicates of a generator", "remove it, or add push = true")
        every = None if every_ns is None else every_ns / 1e9
        limits: dict[str, Any] = {"max_facts": max_facts, "stale_after_ns": stale_after_ns, "on_stale": on_stale}
        sources.append(FactSource(name=name, push=push, predicates=predicates, every=every, **limits))
    return tuple(sources)


def _age(table: TomlTable, key: str) -> int | None:
    """Return a duration such as ``30s`` in nanoseconds."""
    text = table.text(key, None)
    age = None if text is None else parse_age(text)
    if text is not None and age is None:
        table.report(key, "takes a positive number of seconds, minutes, hours or days, such as 30s, 5m, 12h or 1d")
    return age


def _sandbox(sandbox: TomlTable, problems: Problems) -> Profile:
    """Return the requested profile; warn unless it is strict.

    The others are weaker, and take effect only if the operator allows them: ``none`` and ``standard`` by
    :class:`SandboxPolicy`, ``spawn`` by allowing programs.
    """
    profile = sandbox.choice("profile", "strict", get_args(Profile))
    if profile != "strict":
        message = f"sandbox.profile: {profile} is weaker than strict, and holds only where the operator allows it"
        problems.warn(FILE, message, fix="remove it if the pack does not need it")
    sandbox.finish()
    return cast("Profile", profile)
