"""The syntax tree.

Nodes are frozen; equality and hashing ignore spans. A constant is the value itself (:mod:`manglecp.mangle.values`), not
a node, so it has no span; :func:`manglecp.mangle.parser.argument_span` finds the span of an argument.

Lists, maps and structs are applications of ``fn:list``, ``fn:map`` and ``fn:struct``; ``A < B`` is the atom
``:lt(A, B)``. The printer writes the short forms.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, Literal as LiteralType, TypeAlias

from manglecp.base.source import Source, Span, Trust
from manglecp.mangle.values import Bytes, Duration, Float, Name, Time

Key: TypeAlias = tuple[str, int]  # name and arity of a predicate
Constant: TypeAlias = int | str | Name | Float | Bytes  # the values that have a literal


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable ``X``, or ``_``. Each occurrence of ``_`` stands for a different variable."""

    name: str
    span: Span | None = field(default=None, compare=False, repr=False)

    @property
    def anonymous(self) -> bool:
        return self.name == "_"


@dataclass(frozen=True, slots=True)
class Apply:
    """A function applied to terms: ``fn:plus(X, 1)``, ``[X, 2]``, ``{/a: X}``, ``.List</number>``."""

    function: str
    args: tuple[Term, ...]
    span: Span | None = field(default=None, compare=False, repr=False)


Term: TypeAlias = Constant | Variable | Apply


@dataclass(frozen=True, slots=True)
class Atom:
    """A predicate with its arguments: ``p(X, 1)``."""

    predicate: str
    args: tuple[Term, ...]
    span: Span | None = field(default=None, compare=False, repr=False)

    @property
    def key(self) -> Key:
        return self.predicate, len(self.args)

    @property
    def is_builtin(self) -> bool:
        """Whether the atom is computed, like ``:lt(X, Y)``, and reads no facts."""
        return self.predicate.startswith(":")


class Now:
    """The evaluation time, written ``now``: the singleton :data:`NOW`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "NOW"

    def __reduce__(self) -> str:
        return "NOW"


NOW: Final = Now()


@dataclass(frozen=True, slots=True)
class TimeBound:
    """One end of an annotation or operator, with its text as written."""

    value: Time | Duration | Variable | Now
    text: str = field(compare=False)
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Annotation:
    """``@[start, end]``, or ``@[t]``, whose only bound is both start and end."""

    bounds: tuple[TimeBound, ...]
    span: Span | None = field(default=None, compare=False, repr=False)

    @property
    def start(self) -> TimeBound:
        return self.bounds[0]

    @property
    def end(self) -> TimeBound:
        return self.bounds[-1]

    @property
    def eternal(self) -> bool:
        """Whether the annotation is written ``@[_, _]`` or ``@[_]``."""
        return all(isinstance(b.value, Variable) and b.value.anonymous for b in self.bounds)


OperatorKind: TypeAlias = LiteralType["<-", "[-", "<+", "[+"]


@dataclass(frozen=True, slots=True)
class Operator:
    """A window of time, and whether a fact holds at some or every instant of the window.

    Diamonds (some): ``<-[a, b]`` looks back, ``<+[a, b]`` looks ahead. Boxes (every): ``[-[a, b]`` and ``[+[a, b]``.
    """

    kind: OperatorKind
    bounds: tuple[TimeBound, ...]
    span: Span | None = field(default=None, compare=False, repr=False)

    @property
    def is_box(self) -> bool:
        """Whether the fact must hold throughout the window, not only at some instant."""
        return self.kind[0] == "["

    @property
    def is_future(self) -> bool:
        return self.kind[1] == "+"


@dataclass(frozen=True, slots=True)
class Literal:
    """An atom as a premise, optionally negated, with an operator or an annotation."""

    atom: Atom
    negated: bool = False
    operator: Operator | None = None
    annotation: Annotation | None = None
    span: Span | None = field(default=None, compare=False, repr=False)

    @property
    def timed(self) -> bool:
        return self.operator is not None or self.annotation is not None

    @property
    def terms(self) -> tuple[Term, ...]:
        return self.atom.args


@dataclass(frozen=True, slots=True)
class Equality:
    """``left = right``, or ``left != right``."""

    left: Term
    right: Term
    negated: bool = False
    span: Span | None = field(default=None, compare=False, repr=False)

    @property
    def terms(self) -> tuple[Term, Term]:
        return self.left, self.right

    @property
    def directions(self) -> tuple[tuple[Term, Term], tuple[Term, Term]]:
        """Each side, with the other side."""
        return (self.left, self.right), (self.right, self.left)


Premise: TypeAlias = Literal | Equality


@dataclass(frozen=True, slots=True)
class Let:
    """``let X = fn:…`` in a transform."""

    variable: Variable
    expression: Apply
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Transform:
    """One ``|>`` step: ``do fn:group_by(…), let …`` or ``let …, let …``."""

    do: Apply | None
    lets: tuple[Let, ...]
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Clause:
    """A rule, or a fact when it has no premises."""

    head: Atom
    annotation: Annotation | None = None
    premises: tuple[Premise, ...] = ()
    transforms: tuple[Transform, ...] = ()
    span: Span | None = field(default=None, compare=False, repr=False)

    @property
    def is_fact(self) -> bool:
        return not self.premises

    @property
    def aggregates(self) -> bool:
        return any(t.do is not None for t in self.transforms)

    @property
    def trust(self) -> Trust:
        """The trust level of the source of the clause; DOMAIN without a source."""
        return Trust.DOMAIN if self.span is None else self.span.source.trust

    @property
    def lets(self) -> Iterator[Let]:
        return (let for transform in self.transforms for let in transform.lets)

    @property
    def literals(self) -> Iterator[Literal]:
        """The premises that are atoms, built-in ones included."""
        return (premise for premise in self.premises if isinstance(premise, Literal))

    @property
    def reads(self) -> set[Key]:
        """The predicates of the premises, built-in ones included."""
        return {literal.atom.key for literal in self.literals}

    @property
    def terms(self) -> Iterator[Term]:
        """The terms of the head, the premises and the transforms."""
        yield from self.head.args
        for premise in self.premises:
            yield from premise.terms
        yield from (let.expression for let in self.lets)


@dataclass(frozen=True, slots=True)
class Decl:
    """``Decl p(X) bound […].``: the declaration of a predicate."""

    atom: Atom
    temporal: bool = False
    descr: tuple[Atom, ...] = ()
    bounds: tuple[tuple[Term, ...], ...] = ()  # the types of each `bound […]`
    inclusion: tuple[Atom, ...] = ()
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Package:
    """``Package name [attributes]!``, or ``Use name [attributes]!``."""

    name: str
    attributes: tuple[Atom, ...] = ()
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Unit:
    """One parsed source."""

    package: Package | None = None
    uses: tuple[Package, ...] = ()
    items: tuple[Decl | Clause, ...] = ()
    source: Source | None = field(default=None, compare=False, repr=False)

    @property
    def decls(self) -> Iterator[Decl]:
        return (item for item in self.items if isinstance(item, Decl))

    @property
    def clauses(self) -> Iterator[Clause]:
        return (item for item in self.items if isinstance(item, Clause))


def subterms(*terms: Term) -> Iterator[Term]:
    """Yield the terms and all parts of them, outermost first, from left to right."""
    stack: list[Term] = list(reversed(terms))
    while stack:
        term = stack.pop()
        yield term
        if isinstance(term, Apply):
            stack.extend(reversed(term.args))


def term_variables(*terms: Term) -> Iterator[Variable]:
    """Yield every variable occurrence, from left to right, including ``_``."""
    return (term for term in subterms(*terms) if isinstance(term, Variable))


def bound_variables(bounds: tuple[TimeBound, ...]) -> Iterator[Variable]:
    return (b.value for b in bounds if isinstance(b.value, Variable))


def premise_variables(premise: Premise) -> Iterator[Variable]:
    """Yield every variable occurrence of the premise, including time bounds and ``_``."""
    if isinstance(premise, Equality):
        yield from term_variables(premise.left, premise.right)
        return
    if premise.operator is not None:
        yield from bound_variables(premise.operator.bounds)
    yield from term_variables(*premise.atom.args)
    if premise.annotation is not None:
        yield from bound_variables(premise.annotation.bounds)
