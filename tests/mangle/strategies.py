"""Hypothesis strategies for everything that can be written in Mangle.

Each makes syntax trees (or values) that have a text: printing one and parsing the text gives it back. Nothing here
knows what a program means; most of these programs would be refused by the analysis.
"""

from datetime import UTC, datetime

from hypothesis import strategies as st

from manglecp.base.source import Source
from manglecp.mangle.lexer import KEYWORDS, Lexer
from manglecp.mangle.syntax import (
    NOW,
    Annotation,
    Apply,
    Atom,
    Clause,
    Constant,
    Decl,
    Equality,
    Let,
    Literal,
    Operator,
    OperatorKind,
    Package,
    Premise,
    Term,
    TimeBound,
    Transform,
    Unit,
    Variable,
)
from manglecp.mangle.values import INT_MAX, INT_MIN, Bytes, Duration, Float, Name, Time

__all__ = [
    "annotations",
    "atoms",
    "clauses",
    "comment_texts",
    "constants",
    "decls",
    "facts",
    "names",
    "numbers",
    "operators",
    "packages",
    "plain_constants",
    "predicates",
    "premises",
    "spaced",
    "strings",
    "terms",
    "time_bounds",
    "transforms",
    "units",
    "variables",
]

_KINDS: tuple[OperatorKind, ...] = ("<-", "[-", "<+", "[+")
_UNITS = {"ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9, "d": 86400 * 10**9}

# --- constants -----------------------------------------------------------------------------------------------------

names: st.SearchStrategy[Name] = st.one_of(
    st.sampled_from(["/a", "/b", "/true", "/a.", "/v1.2", "/a/.", "/-1", "/name", "/50%25/~x"]),
    st.from_regex(r"\A(?:/[A-Za-z0-9._~%-]{1,5}){1,3}\Z"),
).map(Name)
numbers = st.one_of(st.integers(-3, 3), st.integers(INT_MIN, INT_MAX))
_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
strings = st.one_of(st.sampled_from(["", "#", "\n", "/a", 'say "hi"', "\\", "\r\n", "é\t"]), _text)
floats = st.floats(allow_nan=False, allow_infinity=False).map(Float)
byte_strings = st.binary(max_size=6).map(Bytes)

plain_constants: st.SearchStrategy[Constant] = st.one_of(names, numbers, strings)
"""What the parser's short cut may take."""
constants: st.SearchStrategy[Constant] = st.one_of(plain_constants, floats, byte_strings)

# --- terms ---------------------------------------------------------------------------------------------------------

variables: st.SearchStrategy[Variable] = (
    st.one_of(st.sampled_from(["X", "Y", "_", "Some_name2"]), st.from_regex(r"\A[A-Z][A-Za-z0-9_]{0,4}\Z"))
    .filter(lambda name: name not in KEYWORDS)
    .map(Variable)
)
_word = st.from_regex(r"\A[a-z](?:[A-Za-z0-9:_]|\.[A-Za-z0-9:_]){0,4}\Z")
functions = st.one_of(
    st.sampled_from(["fn:list", "fn:map", "fn:struct", "fn:plus", "fn:pair", "fn:Struct", "fn:opt", "fn:time:now"]),
    _word.map(lambda word: f"fn:{word}"),
)
predicates = st.one_of(
    st.sampled_from(["p", "edge", "mode", "b", ":lt", ":ge", ":match_cons", "zoo.animal"]),
    st.builds(str.__add__, st.sampled_from(["", ":"]), _word),
).filter(lambda name: name not in KEYWORDS and not name.startswith("fn:"))


def _several(terms: st.SearchStrategy[Term]) -> st.SearchStrategy[tuple[Term, ...]]:
    return st.lists(terms, max_size=4).map(tuple)


terms: st.SearchStrategy[Term] = st.recursive(
    st.one_of(constants, variables),
    lambda inner: st.builds(Apply, functions, _several(inner)),
    max_leaves=6,
)
applications = st.builds(Apply, functions, _several(terms))
atoms = st.builds(Atom, predicates, _several(terms))

# --- time ----------------------------------------------------------------------------------------------------------


@st.composite
def _timestamps(draw: st.DrawFn) -> TimeBound:
    moment = draw(st.datetimes(datetime(1678, 1, 1), datetime(2262, 1, 1))).replace(microsecond=0)
    fraction = draw(st.one_of(st.just(""), st.from_regex(r"\A[0-9]{1,9}\Z")))
    text = moment.isoformat()
    if not fraction and draw(st.booleans()):
        moment = moment.replace(hour=0, minute=0, second=0)
        text = moment.date().isoformat()
    else:
        text += (f".{fraction}" if fraction else "") + draw(st.sampled_from(["", "Z"]))
    ns = int(moment.replace(tzinfo=UTC).timestamp()) * 10**9 + int(fraction.ljust(9, "0"))
    return TimeBound(Time(ns), text)


def _duration(count: int, unit: str) -> TimeBound:
    return TimeBound(Duration(count * _UNITS[unit]), f"{count}{unit}")


time_bounds: st.SearchStrategy[TimeBound] = st.one_of(
    _timestamps(),
    st.builds(_duration, st.integers(0, 100_000), st.sampled_from(sorted(_UNITS))),
    variables.map(lambda variable: TimeBound(variable, variable.name)),
    st.just(TimeBound(NOW, "now")),
)
_windows = st.lists(time_bounds, min_size=1, max_size=2).map(tuple)
annotations = st.builds(Annotation, _windows)
operators = st.builds(Operator, st.sampled_from(_KINDS), _windows)

# --- statements ----------------------------------------------------------------------------------------------------

premises: st.SearchStrategy[Premise] = st.one_of(
    st.builds(Literal, atoms, st.booleans(), st.none() | operators, st.none() | annotations),
    st.builds(Literal, st.builds(Atom, st.sampled_from([":lt", ":le", ":gt", ":ge"]), st.tuples(terms, terms))),
    st.builds(Equality, terms, terms, st.booleans()),
)
lets = st.builds(Let, variables, applications)
transforms = st.one_of(
    st.builds(Transform, applications, st.lists(lets, max_size=3).map(tuple)),
    st.builds(Transform, st.none(), st.lists(lets, min_size=1, max_size=3).map(tuple)),
)
plain_facts = st.builds(
    Clause, st.builds(Atom, predicates, st.lists(plain_constants, min_size=1, max_size=3).map(tuple))
)
facts = st.one_of(plain_facts, st.builds(Clause, atoms, st.none() | annotations))
rules = st.builds(
    Clause,
    atoms,
    st.none() | annotations,
    st.lists(premises, min_size=1, max_size=4).map(tuple),
    st.lists(transforms, max_size=2).map(tuple),
)
clauses = st.one_of(facts, rules)
_lists_of_atoms = st.lists(atoms, max_size=3).map(tuple)
decls = st.builds(
    Decl,
    st.builds(Atom, predicates, st.lists(variables, max_size=3).map(tuple)),
    st.booleans(),
    _lists_of_atoms,
    st.lists(_several(terms), max_size=2).map(tuple),
    _lists_of_atoms,
)
packages = st.builds(
    Package,
    st.from_regex(r"\A[a-z][a-z0-9_]{0,5}(?:\.[a-z0-9_]{1,4})?\Z").filter(lambda name: name not in KEYWORDS),
    _lists_of_atoms,
)
units = st.builds(
    Unit,
    st.none() | packages,
    st.lists(packages, max_size=2).map(tuple),
    st.lists(st.one_of(plain_facts, facts, rules, decls), max_size=6).map(tuple),
)

# --- texts ---------------------------------------------------------------------------------------------------------

comment_texts = st.one_of(
    st.sampled_from(["#", "# why", '# it\'s "quoted"', "## /a. p(X) :-", "#\t`", "# end \t"]),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n"), max_size=6).map(lambda text: f"#{text}"),
)


_gaps = st.one_of(
    st.sampled_from([" ", "\t", "\n", "\n\n", "\r\n", "\f", "\n \n\n"]),
    st.builds("{}{}\n{}".format, st.sampled_from(["", " ", "\n", "\n  "]), comment_texts, st.sampled_from(["", "  "])),
)


@st.composite
def spaced(draw: st.DrawFn, text: str) -> str:
    """The same program with other white space, and comments, in up to a dozen places between its tokens."""
    lex = Lexer(Source("spaced", text))
    lex.depth = 1  # what is printed never needs to know whether a dot ends a name
    gaps: list[tuple[int, int]] = []
    while lex.kind != "end":
        end = lex.end
        lex.advance()
        gaps.append((end, lex.start))
    chosen = draw(st.dictionaries(st.integers(0, len(gaps) - 1), _gaps, max_size=12))
    for index in sorted(chosen, reverse=True):
        start, end = gaps[index]
        text = text[:start] + chosen[index] + text[end:]
    return text
