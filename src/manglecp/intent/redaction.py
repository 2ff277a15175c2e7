"""Redaction: what an explanation may show to a caller.

Predicate names are public, values are not: arguments are shown only for published predicates and for those about
selection. Rules and predicates of policy are hidden from callers without the permission ``explain_policy``. Every text
is also scanned for credentials, as a second line of defence.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from manglecp.base.diagnostic import Diagnostic
from manglecp.base.source import Trust
from manglecp.mangle import Fact, Key, Program
from manglecp.mangle.syntax import Clause, Literal, Term, Variable, term_variables
from manglecp.pack import Pack
from manglecp.wire import snake_case

if TYPE_CHECKING:
    from manglecp.intent.domain import Domain
    from manglecp.intent.identity import Identity


EXPLAIN_POLICY: Final = "explain_policy"  # the permission to see decisions of policy
REDACTED: Final = "[redacted]"
MAX_CHARACTERS: Final = 512  # of a text; longer texts are cut
MAX_VALUE_CHARACTERS: Final = 4096  # of a string in a fact; longer strings are cut
_MAX_SCANNED: Final = 2 * MAX_VALUE_CHARACTERS  # characters of a text; the rest is dropped before it is redacted
CUT: Final = "…"

SELECTION: Final = frozenset(
    {
        *("intent", "intent_param", "mandatory", "relevant", "requires", "conflicts"),
        *("candidate", "chosen", "final_selected"),
    }
)
"""Predicates about selection, shown with arguments."""

_ABOUT_CALLER: Final = frozenset({"permitted", "client", "client_permission", "client_trust"})
POLICY_PREDICATES: Final = frozenset({"prohibited", "permitted", "intent_denied", "fact_denied", "effect_denied"})

_VALUE: Final = r"""(?:\\?"[^"\\]*\\?"|\\?'[^'\\]*\\?'|[^\s"',;&(){}\[\]\\]+)"""
_PATTERNS: Final = tuple(
    (re.compile(pattern, re.DOTALL), replacement)
    for pattern, replacement in (
        (
            r"-----BEGIN[A-Z0-9 ]{0,40}PRIVATE KEY.*?(?:-----END[A-Z0-9 ]{0,40}PRIVATE KEY[A-Z ]{0,10}-----|\Z)",
            REDACTED,
        ),
        (r"\beyJ[\w-]{5,}\.[\w-]{5,}(?:\.[\w-]*)*", REDACTED),
        (r"\b(?:AKIA|ASIA|AGPA|AIDA|AROA)[0-9A-Z]{16}\b", REDACTED),
        (r"\b(?:gh[pousr]_|github_pat_)\w{20,}", REDACTED),
        (r"\bglpat-[\w-]{16,}", REDACTED),
        (r"\bxox[a-z]-[\w-]{10,}", REDACTED),
        (r"\b(?:sk|pk|rk)[-_](?=[\w-]{0,200}[0-9])[\w-]{16,}", REDACTED),
        (r"\bAIza[\w-]{30,}", REDACTED),
        (r"\bya29\.[\w-]{20,}", REDACTED),
        (r"\b(?:npm|hf|dop_v1|shpat|pypi)[-_](?=[\w-]{0,200}[0-9])[\w-]{20,}", REDACTED),
        (r"\bSG\.[\w-]{16,}\.[\w-]{16,}", REDACTED),
        (r"(?i)\b([a-z][a-z0-9+.-]{1,20}://)[^\s/@:\"']{0,256}:[^\s@\"']{1,256}@", rf"\1{REDACTED}@"),
        (r"(?i)\b(bearer|basic)\s+(?=[^\s\"']{0,200}[0-9=])[\w.~+/=-]{8,}", rf"\1 {REDACTED}"),
        (
            r"(?i)(passw(?:or)?d|passphrase|pwd|secret|credentials?|authorization|token"
            r"|(?:api|access|account|sharedaccess|private|signing|encryption)[_ -]?key)"
            rf"(\\?[\"'])?(\s*(?:=|:)\s*)(?!\[redacted\]|bearer |basic ){_VALUE}",
            rf"\1\2\3{REDACTED}",
        ),
    )
)
_PATH: Final = re.compile(
    r"""(?:file://)?(?<![\w/])/(?:home|root|etc|var|usr|opt|srv|tmp|mnt|media|proc|run|Users|Volumes|private)"""
    r"""(?:/[^\s"',;:)\]}]+)+|\b[A-Za-z]:\\+[^\s"',;)]+|\\\\[\w.-]+\\[^\s"',;)]+"""
)
_SECRET_NAME: Final = re.compile(
    r"(?:^|_)(?:passw(?:or)?d|passphrase|pwd|secrets?|credentials?|(?:api|access|private|signing)_?key"
    r"|(?:access|auth|refresh|bearer|api)_token|dsn|connection_string)(?:_|$)"
)
# In names of settings, unlike names of predicates, "token" and "key" alone mean a credential.
_SECRET_SETTING: Final = re.compile(rf"{_SECRET_NAME.pattern}|(?:^|_)(?:token|key)s?(?:_|$)")
_MIN_SECRET_LENGTH: Final = 8  # a client could guess a shorter value, and [redacted] would confirm the guess


def scrub(text: str) -> str:
    """Redact what looks like a token, key, password or connection string."""
    for pattern, replacement in _PATTERNS:
        text = pattern.sub(replacement, text)
    return text


def is_secret_setting(name: str) -> bool:
    return _SECRET_SETTING.search(snake_case(name)) is not None


def secret_values(pack: Pack) -> tuple[str, ...]:
    """Return the values of secret settings, the longest first."""
    values = (value for name, value in pack.params.items() if is_secret_setting(name))
    return _longest_first(value for value in values if len(value) >= _MIN_SECRET_LENGTH)


def _longest_first(texts: Iterable[str]) -> tuple[str, ...]:
    """Sort so that each text is replaced before the shorter texts that it contains."""
    return tuple(sorted(set(texts), key=lambda text: (-len(text), text)))


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + CUT


def policy_predicates(program: Program) -> frozenset[Key]:
    """Return the predicates of policy: their most trusted clause or their declaration has the trust level policy."""
    trust: dict[Key, Trust] = {}
    for clause in (*(rule.clause for rule in program.rules), *(fact.clause for fact in program.facts)):
        key = clause.head.key
        trust[key] = min(trust.get(key, Trust.DOMAIN), clause.trust)
    return frozenset(
        key
        for key, predicate in program.predicates.items()
        if key[0] in POLICY_PREDICATES or Trust.POLICY in (predicate.owner, trust.get(key))
    )


class Visibility:
    """What one identity may see of a domain's evaluations."""

    def __init__(self, domain: Domain, identity: Identity) -> None:
        self.explains_policy = EXPLAIN_POLICY in identity.permissions
        self._predicates = domain.program.predicates
        self._policy = domain.policy
        self._profile = domain.profile
        self._published = frozenset(schema.predicate for schema in domain.profile.schemas())
        pack = domain.pack
        paths = (path for path in (pack.folder, *pack.fact_files) if len(path) >= _MIN_SECRET_LENGTH)
        self._secrets = _longest_first((*secret_values(pack), *paths))

    def hides(self, key: Key, clause: Clause | None = None) -> bool:
        """Return whether the predicate, or the clause that derived a fact, is policy that is hidden from the caller."""
        if self.explains_policy:
            return False
        return key in self._policy or (clause is not None and clause.trust is Trust.POLICY)

    def shows_arguments(self, predicate: str) -> bool:
        is_about_caller = self.explains_policy and predicate in _ABOUT_CALLER
        return predicate in self._published or predicate in SELECTION or is_about_caller

    def text(self, text: str) -> str:
        """Return a text without secret settings, paths and what looks like a credential."""
        text = text[:_MAX_SCANNED]
        for secret in self._secrets:
            text = text.replace(secret, REDACTED)
        return _cut(_PATH.sub(REDACTED, scrub(text)), MAX_CHARACTERS)

    def fact(self, fact: Fact, own: bool = False) -> str:
        """Return a fact as redacted text, or only its predicate. A caller's ``own`` fact may show paths."""
        if not self.shows_arguments(fact.predicate):
            return self.text(fact.predicate)
        secret = self._secret_positions(fact.key)
        args = tuple(
            REDACTED if position in secret else scrub(arg[:MAX_VALUE_CHARACTERS]) if type(arg) is str else arg
            for position, arg in enumerate(fact.args)
        )
        text = fact._replace(args=args).text
        return _cut(scrub(text[:_MAX_SCANNED]), MAX_CHARACTERS) if own else self.text(text)

    def wire(self, fact: Fact) -> dict[str, Any]:
        """Return a fact of the caller in wire form, with redacted arguments."""
        fact_object: dict[str, Any] = dict(self._profile.write(fact))
        secret = self._secret_positions(fact.key)
        args: Iterable[Any] = fact_object.get("args", ())
        fact_object["args"] = [REDACTED if i in secret else _scrub_value(arg) for i, arg in enumerate(args)]
        return fact_object

    def _secret_positions(self, key: Key) -> frozenset[int]:
        """Return the positions of arguments that are secret by the name of the predicate or of the argument."""
        predicate = self._predicates.get(key)
        if _SECRET_NAME.search(snake_case(key[0])):
            return frozenset(range(key[1]))
        if predicate is None or predicate.decl is None:
            return frozenset()
        return frozenset(
            i
            for i, arg in enumerate(predicate.decl.atom.args)
            if isinstance(arg, Variable) and _SECRET_NAME.search(snake_case(arg.name))
        )


def _scrub_value(value: Any) -> Any:
    if type(value) is str:
        return _cut(scrub(value[: MAX_VALUE_CHARACTERS + 1]), MAX_VALUE_CHARACTERS)
    if type(value) is list:
        return [_scrub_value(item) for item in value]
    if type(value) is dict:
        return {
            _scrub_value(key): REDACTED if _SECRET_NAME.search(snake_case(key)) else _scrub_value(item)
            for key, item in value.items()
        }
    return value


# A setting that is a credential by its name may be the value of an action's argument. In texts that clients read, the
# value is redacted, and the check of a pack warns about a rule that puts the setting into such a text.
_CLIENT_TEXTS: Final = frozenset(
    {
        *("macro", "macro_summary", "macro_param", "macro_output", "instruction", "needs_resource"),
        *("prohibited", "intent_denied", "fact_denied", "effect_denied"),
    }
)
"""Predicates whose texts clients read."""


def unchanged(value: Any) -> Any:
    """Return the value; the redactor of a pack without secrets."""
    return value


def make_redactor(secrets: Iterable[str]) -> Callable[[Any], Any]:
    """Return a function that redacts ``secrets`` in texts and JSON; :func:`unchanged` if there are no secrets."""
    texts = _longest_first(secrets)

    def redact(value: Any) -> Any:
        if isinstance(value, str):
            for text in texts:
                value = value.replace(text, REDACTED)
            return value
        if isinstance(value, dict):
            return {redact(key): redact(member) for key, member in value.items()}
        return [redact(item) for item in value] if isinstance(value, list | tuple) else value

    return redact if texts else unchanged


def scrub_json(value: Any) -> Any:
    """Return JSON without what looks like a credential."""
    if isinstance(value, str):
        return scrub(value)
    if isinstance(value, dict):
        return {name: scrub_json(member) for name, member in value.items()}
    return [scrub_json(item) for item in value] if isinstance(value, list | tuple) else value


def find_disclosed_secrets(clauses: Iterable[Clause]) -> list[Diagnostic]:
    """Warn about each rule that puts a secret setting into a text for clients, directly or through other rules."""
    clauses = list(clauses)
    settings: dict[tuple[Key, int], str] = {}  # by column (predicate, position), the secret setting that it holds
    count = -1
    while count < len(settings):
        count = len(settings)
        for clause in clauses:
            for column, setting in _secret_columns(clause, settings):
                settings.setdefault((clause.head.key, column), setting)
    return [
        Diagnostic(
            "analysis",
            f"clients read {clause.head.predicate}, and the setting {setting!r} is a secret by its name",
            clause.head.span,
            fix="use it in arg_value only; anywhere else it is replaced",
            severity="warning",
        )
        for clause in clauses
        if clause.head.predicate in _CLIENT_TEXTS
        for _, setting in _secret_columns(clause, settings)[:1]
    ]


def _secret_columns(clause: Clause, settings: dict[tuple[Key, int], str]) -> list[tuple[int, str]]:
    """Return the columns of the head that hold a secret setting, with its name; ``settings`` has the known columns."""
    secrets: dict[str, str] = {}  # by variable, the secret setting that it holds
    for premise in clause.premises:
        if isinstance(premise, Literal):
            atom = premise.atom
            if atom.key == ("setting", 2) and isinstance(atom.args[0], str) and is_secret_setting(atom.args[0]):
                secrets |= {variable.name: atom.args[0] for variable in term_variables(atom.args[1])}
            for column, arg in enumerate(atom.args):
                if (setting := settings.get((atom.key, column))) is not None and isinstance(arg, Variable):
                    secrets.setdefault(arg.name, setting)
    equalities = [premise for premise in clause.premises if not isinstance(premise, Literal) and not premise.negated]
    for _ in equalities:  # as many rounds as equalities, because an equality may depend on a later one
        for equality in equalities:
            for target, source in equality.directions:
                if isinstance(target, Variable):
                    _mark_secret(secrets, source, target)
    for let in clause.lets:
        _mark_secret(secrets, let.expression, let.variable)
    return [
        (column, secrets[variable.name])
        for column, arg in enumerate(clause.head.args)
        for variable in term_variables(arg)
        if variable.name in secrets
    ]


def _mark_secret(secrets: dict[str, str], source: Term, target: Variable) -> None:
    """Mark the target as secret if the source has a secret variable."""
    for variable in term_variables(source):
        if variable.name in secrets:
            secrets.setdefault(target.name, secrets[variable.name])
