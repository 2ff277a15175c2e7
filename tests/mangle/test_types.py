"""Types: what they hold, how they relate, and what type a value has (D11)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import pytest
from hypothesis import assume, given, strategies as st

from manglecp.base.source import Source
from manglecp.mangle.parser import parse
from manglecp.mangle.syntax import Decl
from manglecp.mangle.types import (
    ANY,
    BOT,
    BYTES,
    DURATION,
    EMPTY,
    FLOAT,
    NAME,
    NUMBER,
    STRING,
    TIME,
    Base,
    ListType,
    MapType,
    NameType,
    PairType,
    Singleton,
    StructType,
    Type,
    Union,
    Vocabulary,
    conforms,
    describe_type,
    meet,
    read_type,
    union,
    upper,
)
from manglecp.mangle.values import Bytes, Duration, Float, List, Map, Name, Pair, Struct, Time, Value
from tests.effort import examples
from tests.mangle.membership import is_member

# --- reading ---------------------------------------------------------------------------------------------------------


def type_of(text: str) -> Type:
    (decl,) = parse(Source("type", f"Decl p(X) bound [{text}].")).items
    assert isinstance(decl, Decl)
    return read_type(decl.bounds[0][0])


def test_a_tuple_is_nested_pairs() -> None:
    assert type_of("fn:Tuple(/number, /string, /name)") == PairType(NUMBER, PairType(STRING, NAME))


def test_dots_are_sugar() -> None:
    assert type_of(".Struct</a : /number, opt /b : .List</string>>") == type_of(
        "fn:Struct(/a, /number, fn:opt(/b, fn:List(/string)))"
    )


def test_a_tagged_union_is_a_union_of_structs() -> None:
    tagged = type_of("fn:TaggedUnion(/k, /a, fn:Struct(/x, /number), /b, fn:Struct(fn:opt(/y, /string)))")
    assert str(tagged) == (
        "fn:Union(fn:Struct(/k, fn:Singleton(/a), /x, /number), fn:Struct(/k, fn:Singleton(/b), fn:opt(/y, /string)))"
    )


def test_a_wildcard_is_any_type_each_time() -> None:
    assert type_of("fn:Pair(_, _)") == PairType(ANY, ANY)


def test_a_sentence_joins_alternatives() -> None:
    assert describe_type(type_of("fn:Union(/number, fn:List(/any))")) == "/number or fn:List(/any)"
    assert describe_type(NUMBER) == "/number"


# --- strategies ------------------------------------------------------------------------------------------------------

LABELS: Final = [Name("/x"), Name("/y"), Name("/z")]
ATOMS: Final[list[Value]] = [
    1, 2, "s", "t", Name("/a"), Name("/a/b"), Name("/a/b/c"), Name("/ab/c"), Name("/b/c"),
    Float(1.0), Bytes(b"s"), Time(1), Duration(1),
]  # fmt: skip
_bases: Final[list[Type]] = [
    ANY, NUMBER, FLOAT, STRING, BYTES, TIME, DURATION, NAME, NameType("/a"), NameType("/a/b"), NameType("/b"),
]  # fmt: skip
_singletons = st.sampled_from(ATOMS).map(Singleton)


def _fields(types: st.SearchStrategy[Type]) -> st.SearchStrategy[tuple[tuple[Value, Type], ...]]:
    return st.dictionaries(st.sampled_from(LABELS), types, max_size=2).map(
        lambda fields: tuple(sorted(fields.items(), key=lambda field: field[0].text))
    )


def _composed(inner: st.SearchStrategy[Type]) -> st.SearchStrategy[Type]:
    return st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(lambda members: Union(tuple(members))),
        st.builds(PairType, inner, inner),
        st.builds(ListType, inner),
        st.builds(MapType, st.sampled_from([NUMBER, STRING]), inner),
        _fields(inner).map(StructType),
    )


plain_types: st.SearchStrategy[Type] = st.recursive(st.sampled_from(_bases), _composed, max_leaves=5)
types: st.SearchStrategy[Type] = st.recursive(st.sampled_from(_bases) | _singletons, _composed, max_leaves=5)


def _with_options(types: st.SearchStrategy[Type]) -> st.SearchStrategy[Type]:
    """A struct may also have optional fields, of other names than its required ones."""

    def build(fields: dict[Name, tuple[bool, Type]]) -> Type:
        ordered = sorted(fields.items(), key=lambda field: field[0].text)
        return StructType(
            tuple((label, t) for label, (needed, t) in ordered if needed),
            tuple((label, t) for label, (needed, t) in ordered if not needed),
        )

    return st.dictionaries(st.sampled_from(LABELS), st.tuples(st.booleans(), types), max_size=3).map(build)


def _maps(keys: st.SearchStrategy[Value], inner: st.SearchStrategy[Value]) -> st.SearchStrategy[Value]:
    return st.dictionaries(keys, inner, max_size=2).map(lambda entries: Map(tuple(entries.items())))


values: st.SearchStrategy[Value] = st.recursive(
    st.sampled_from(ATOMS),
    lambda inner: st.one_of(
        st.builds(Pair, inner, inner),
        st.lists(inner, max_size=3).map(lambda items: List(tuple(items))),
        _maps(st.sampled_from([1, 2]), inner),
        _maps(st.sampled_from(["s", "t"]), inner),
        st.dictionaries(st.sampled_from(LABELS), inner, max_size=2).map(lambda fields: Struct(tuple(fields.items()))),
    ),
    max_leaves=5,
)


@st.composite
def members_of(draw: st.DrawFn, type_: Type) -> Value:
    """A value of the type, if it has any."""
    match type_:
        case Base() | NameType():
            fitting = [value for value in ATOMS if is_member(value, type_)]
            assume(fitting)
            return draw(st.sampled_from(fitting))
        case Singleton(only):
            return only
        case Union(several):
            return draw(members_of(draw(st.sampled_from(several))))
        case PairType(first, second):
            return Pair(draw(members_of(first)), draw(members_of(second)))
        case ListType(element):
            return List(tuple(draw(st.lists(members_of(element), max_size=3))))
        case MapType(key, value):
            return draw(_maps(members_of(key), members_of(value)))
        case StructType(required, optional):
            chosen = [*required, *(field for field in optional if draw(st.booleans()))]
            return Struct(tuple((label, draw(members_of(t))) for label, t in chosen))
    raise AssertionError(type_)


# --- laws ------------------------------------------------------------------------------------------------------------


@given(types | _with_options(types))
def test_the_text_of_a_type_reads_back(type_: Type) -> None:
    assume(not any(isinstance(atom, Time | Duration) and str(Singleton(atom)) in str(type_) for atom in ATOMS))
    assert type_of(str(type_)) == type_


@given(types | _with_options(types))
def test_every_type_conforms_to_itself(type_: Type) -> None:
    assert conforms(type_, type_)
    assert conforms(type_, ANY)
    assert conforms(BOT, type_)
    assert conforms(EMPTY, type_)


@given(types, types, types)
@examples(200)
def test_conformance_is_transitive(a: Type, b: Type, c: Type) -> None:
    for middle in (b, union((a, b))):
        for top in (c, union((middle, c))):
            if conforms(a, middle) and conforms(middle, top):
                assert conforms(a, top)


def test_with_optional_fields_it_is_not() -> None:
    """A struct may have more fields than its type says, so the type in the middle may forget one."""
    wrong, any_struct, optional = (
        type_of("fn:Struct(/x, /string)"),
        StructType(()),
        type_of(".Struct<opt /x : /number>"),
    )
    assert conforms(wrong, any_struct)
    assert conforms(any_struct, optional)
    assert not conforms(wrong, optional)


@given(plain_types, plain_types)
@examples(200)
def test_meet_is_commutative(a: Type, b: Type) -> None:
    one, other = meet(a, b), meet(b, a)
    assert conforms(one, other)
    assert conforms(other, one)


@given(plain_types, plain_types)
@examples(200)
def test_meet_is_a_lower_bound(a: Type, b: Type) -> None:
    both = meet(a, b)
    assert conforms(both, a)
    assert conforms(both, b)
    assert meet(a, a) == a
    assert meet(a, ANY) == a


@given(st.data(), types | _with_options(types), types | _with_options(types))
@examples(200)
def test_meet_loses_nothing(data: st.DataObject, a: Type, b: Type) -> None:
    """What is in both is in the meet. With singletons the meet may hold more: it never proves too much."""
    value = data.draw(members_of(a))
    if is_member(value, b):
        assert is_member(value, meet(a, b))


@given(st.lists(types, max_size=4))
@examples(200)
def test_union_is_the_least_upper_bound_of_what_conforms(several: list[Type]) -> None:
    whole = union(several)
    assert all(conforms(one, whole) for one in several)
    assert conforms(union([*several, *several]), whole)
    assert conforms(whole, union(reversed(several)))
    assert all(conforms(whole, above) for above in several if all(conforms(one, above) for one in several))
    if isinstance(whole, Union):
        pairs = [(a, b) for a in whole.members for b in whole.members if a is not b]
        assert not any(conforms(a, b) for a, b in pairs)


def test_the_upper_bound_of_nothing_is_the_bottom() -> None:
    assert upper([]) == BOT
    assert union([]) == EMPTY
    assert upper([NUMBER]) == NUMBER
    assert upper([NUMBER, ANY]) == ANY
    assert upper([NAME, NameType("/a"), STRING]) == Union((NAME, STRING))


# --- values ----------------------------------------------------------------------------------------------------------


@given(values, types)
@examples(300)
def test_a_value_whose_type_conforms_is_a_member(value: Value, type_: Type) -> None:
    for exact in (True, False):
        if conforms(Vocabulary([type_]).value(value, exact), type_):
            assert is_member(value, type_)


@given(st.data(), types | _with_options(types))
@examples(200)
def test_the_type_of_a_member_conforms(data: st.DataObject, type_: Type) -> None:
    """Every fact that fits its declaration is accepted."""
    value = data.draw(members_of(type_))
    assert conforms(Vocabulary([type_]).value(value), type_)


@given(values, types)
def test_a_value_belongs_to_its_own_type(value: Value, type_: Type) -> None:
    vocabulary = Vocabulary([type_])
    assert is_member(value, vocabulary.value(value))
    assert is_member(value, vocabulary.value(value, exact=False))


def typed(value: Value, *declared: str) -> str:
    return str(Vocabulary(map(type_of, declared)).value(value))


@pytest.mark.parametrize(
    ("value", "type_"),
    [
        (1, "/number"), ("s", "/string"), (Float(1.0), "/float64"), (Bytes(b""), "/bytes"), (Time(0), "/time"),
        (Duration(0), "/duration"), (Name("/a"), "/name"), (Pair(1, "s"), "fn:Pair(/number, /string)"),
        (Pair(1, Pair(2, 3)), "fn:Pair(/number, fn:Pair(/number, /number))"), (List(()), "fn:List(/bot)"),
        (List((1, 2)), "fn:List(/number)"), (List((1, "s")), "fn:List(fn:Union(/number, /string))"),
        (Map(()), "fn:Map(/bot, /bot)"), (Map(((1, "s"),)), "fn:Map(/number, /string)"),
        (Struct(()), "fn:Struct()"), (Struct(((Name("/x"), 1),)), "fn:Struct(/x, /number)"),
    ],
)  # fmt: skip
def test_the_type_of_a_value(value: Value, type_: str) -> None:
    assert typed(value) == type_


def test_a_name_has_the_longest_declared_prefix() -> None:
    cat = Name("/animal/cat/tom")
    assert typed(cat) == "/name"
    assert typed(cat, "/animal") == "/animal"
    assert typed(cat, "/animal", "fn:List(/animal/cat)") == "/animal/cat"
    assert typed(cat, "/anim", "/animal/ca", "/animal/cat/tom") == "/name"
    assert typed(Name("/animal"), "/animal") == "/name"


def test_labels_and_singletons_are_declared_names_but_tags_are_not() -> None:
    assert typed(Name("/x/y"), "fn:Struct(/x, /number)") == "/x"
    assert typed(Name("/x/y"), "fn:Struct(fn:opt(/x, /number))") == "/x"
    assert typed(Name("/x/y"), "fn:Singleton(/x)") == "/x"
    assert typed(Name("/k/y"), "fn:TaggedUnion(/k, /a, fn:Struct())") == "/name"
    assert typed(Name("/a/y"), "fn:TaggedUnion(/k, /a, fn:Struct())") == "/name"


def test_a_declared_singleton_is_kept() -> None:
    assert typed(Name("/red"), "fn:Singleton(/red)") == "fn:Singleton(/red)"
    assert typed(1, "fn:List(fn:Singleton(1))") == "fn:Singleton(1)"
    assert typed(1, "fn:Singleton(2)") == "/number"
    assert typed(Name("/a"), "fn:TaggedUnion(/k, /a, fn:Struct())") == "fn:Singleton(/a)"


def test_a_long_tuple_has_a_short_type() -> None:
    chain: Value = 0
    for _ in range(5_000):
        chain = Pair(1, chain)
    assert typed(chain) == "fn:Pair(/number, /any)"


# --- D11, item by item -----------------------------------------------------------------------------------------------


def belongs(value: Value, text: str) -> bool:
    type_ = type_of(text)
    return conforms(Vocabulary([type_]).value(value), type_)


def _struct(**fields: Value) -> Struct:
    return Struct(tuple((Name(f"/{name}"), value) for name, value in fields.items()))


@pytest.mark.parametrize(
    ("value", "type_", "fits"),
    [
        # singletons, bytes, pairs and empty maps in facts conform
        (Name("/red"), "fn:Singleton(/red)", True),
        (Name("/blue"), "fn:Singleton(/red)", False),
        (1, "fn:Singleton(1)", True),
        (2, "fn:Singleton(1)", False),
        (Float(1.0), "fn:Singleton(1)", False),
        ("1", "fn:Singleton(1)", False),
        (Bytes(b"x"), "/bytes", True),
        ("x", "/bytes", False),
        (Bytes(b"x"), "/string", False),
        (Pair(1, "s"), "fn:Pair(/number, /string)", True),
        (Pair("s", 1), "fn:Pair(/number, /string)", False),
        (Pair(1, Pair("s", 2)), "fn:Tuple(/number, /string, /number)", True),
        (Pair(1, "s"), "fn:Tuple(/number, /string, /number)", False),
        (Map(()), "fn:Map(/string, /number)", True),
        (Map(()), "fn:Map(/name, fn:List(/any))", True),
        (Map(()), "fn:List(/any)", False),
        # /name accepts names only
        (Name("/a"), "/name", True),
        (1, "/name", False),
        ("/a", "/name", False),
        (Time(0), "/name", False),
        (List(()), "/name", False),
        # a name type accepts names strictly below it at a boundary
        (Name("/animal/cat"), "/animal", True),
        (Name("/animal/cat/tom"), "/animal", True),
        (Name("/animal"), "/animal", False),
        (Name("/animals/cat"), "/animal", False),
        (Name("/time/of/day"), "/time", False),
        # unions inside constructors are opened
        (List((1, "s")), "fn:List(fn:Union(/number, /string))", True),
        (List((1,)), "fn:List(fn:Union(/number, /string))", True),
        (List((1, Name("/a"))), "fn:List(fn:Union(/number, /string))", False),
        (Pair(1, List(("s",))), "fn:Pair(fn:Union(/number, /string), fn:List(fn:Union(/name, /string)))", True),
        (Map((("a", 1), ("b", "s"))), "fn:Map(/string, fn:Union(/number, /string))", True),
        (_struct(x=1), "fn:Struct(/x, fn:Union(/number, /string))", True),
        (List((List((1,)), List(("s",)))), "fn:List(fn:Union(fn:List(/number), fn:List(/string)))", True),
        (List((List((1,)), List(("s",)))), "fn:Union(fn:List(fn:List(/number)), fn:List(fn:List(/string)))", False),
        # optional struct fields are optional, others are not, and further ones are allowed
        (_struct(x=1), "fn:Struct(/x, /number, fn:opt(/y, /string))", True),
        (_struct(x=1, y="s"), "fn:Struct(/x, /number, fn:opt(/y, /string))", True),
        (_struct(x=1, y=2), "fn:Struct(/x, /number, fn:opt(/y, /string))", False),
        (_struct(y="s"), "fn:Struct(/x, /number, fn:opt(/y, /string))", False),
        (_struct(x=1, z=9), "fn:Struct(/x, /number)", True),
        (Struct(()), "fn:Struct()", True),
        (_struct(x=1), "fn:Struct(/y, /number)", False),
        # tagged unions
        (_struct(k=Name("/a"), x=1), "fn:TaggedUnion(/k, /a, fn:Struct(/x, /number), /b, fn:Struct())", True),
        (_struct(k=Name("/b")), "fn:TaggedUnion(/k, /a, fn:Struct(/x, /number), /b, fn:Struct())", True),
        (_struct(k=Name("/a")), "fn:TaggedUnion(/k, /a, fn:Struct(/x, /number), /b, fn:Struct())", False),
        (_struct(x=1), "fn:TaggedUnion(/k, /a, fn:Struct(/x, /number), /b, fn:Struct())", False),
        (_struct(k=1, x=1), "fn:TaggedUnion(/k, /a, fn:Struct(/x, /number))", False),
        # options are their values
        (1, "fn:Option(/number)", True),
        ("s", "fn:Option(/number)", False),
        # nothing is in the bottom
        (1, "/bot", False),
        (List(()), "fn:List(/bot)", True),
        (List((1,)), "fn:List(/bot)", False),
    ],
)  # fmt: skip
def test_which_facts_conform(value: Value, type_: str, fits: bool) -> None:
    assert belongs(value, type_) is fits


def _conforming(pairs: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(left, right) for left, right in pairs if conforms(type_of(left), type_of(right))]


def test_which_types_conform() -> None:
    yes = [
        ("/animal", "/name"), ("/animal/dog", "/animal"), ("fn:Union(/animal, /plant)", "/name"),
        ("/number", "fn:Union(/string, /number)"), ("fn:List(/number)", "fn:List(/any)"),
        ("fn:Pair(/animal, /number)", "fn:Pair(/name, /any)"), ("fn:Singleton(/animal/dog)", "/animal"),
        ("fn:List(fn:Union(/number, /animal))", "fn:List(fn:Union(/name, /number))"),
        ("fn:Struct(/a, /number, /b, /string)", "fn:Struct(/a, /any)"),
        ("fn:Struct(/a, /number)", "fn:Struct(fn:opt(/a, /number), fn:opt(/b, /string))"),
        ("fn:Struct(fn:opt(/a, /number))", "fn:Struct(fn:opt(/a, /any))"),
        ("fn:Map(/name, /number)", "fn:Map(/animal, /any)"),  # contravariant in the key
        ("/number", "X"), ("X", "X"),
        ("fn:Struct(/k, /name, /x, /number)", "fn:TaggedUnion(/k, /a, fn:Struct(/x, /number))"),
        ("fn:TaggedUnion(/k, /a, fn:Struct(/x, /number))", "fn:Struct(/k, fn:Singleton(/a), /x, /number)"),
    ]  # fmt: skip
    no = [
        ("/name", "/animal"), ("/animals", "/animal"), ("/animal", "/animal/dog"), ("/number", "/name"),
        ("/any", "/number"), ("fn:Union(/number, /string)", "/number"), ("fn:List(/any)", "fn:List(/number)"),
        ("fn:Map(/animal, /number)", "fn:Map(/name, /number)"), ("fn:Map(/name, /any)", "fn:Map(/name, /number)"),
        ("fn:Struct(fn:opt(/a, /number))", "fn:Struct(/a, /number)"), ("fn:Struct()", "fn:Struct(/a, /any)"),
        ("fn:Struct(/a, /string)", "fn:Struct(fn:opt(/a, /number))"),
        ("fn:Pair(/number, /number)", "fn:List(/number)"), ("/name", "fn:Singleton(/a)"),
        ("fn:Struct(/k, fn:Singleton(/b), /x, /number)", "fn:TaggedUnion(/k, /a, fn:Struct(/x, /number))"),
    ]  # fmt: skip
    assert _conforming([*yes, *no]) == yes


@pytest.mark.parametrize(
    ("left", "right", "both"),
    [
        ("/any", "/number", "/number"),
        ("/number", "/string", "fn:Union()"),
        ("/name", "/animal", "/animal"),
        ("/animal", "/plant", "fn:Union()"),
        ("/animal", "/animals", "fn:Union()"),
        ("fn:Union(/number, /string)", "fn:Union(/string, /name)", "/string"),
        ("fn:Union(/number, /animal)", "/name", "/animal"),
        ("fn:List(/any)", "fn:List(/number)", "fn:List(/number)"),
        ("fn:List(/number)", "fn:List(/string)", "fn:List(fn:Union())"),  # the empty list
        ("fn:Pair(/number, /any)", "fn:Pair(/any, /string)", "fn:Pair(/number, /string)"),
        ("fn:Pair(/number, /any)", "fn:Pair(/string, /any)", "fn:Union()"),
        ("fn:Struct(/a, /number)", "fn:Struct(/b, /string)", "fn:Struct(/a, /number, /b, /string)"),
        ("fn:Struct(/a, /number)", "fn:Struct(/a, /string)", "fn:Union()"),
        ("fn:Struct(fn:opt(/a, /number))", "fn:Struct(/a, /any)", "fn:Struct(/a, /number)"),
        ("fn:Map(/string, /number)", "fn:Map(/string, /string)", "fn:Map(/string, fn:Union())"),
        ("fn:Option(/number)", "/number", "/number"),
        ("fn:Option(fn:List(/any))", "fn:Pair(/any, /any)", "fn:Union()"),
        ("fn:Option(/number)", "fn:Option(/string)", "fn:Union()"),
        # a constant may turn out to be any of its kind: what is known of it never refuses a program
        ("fn:Singleton(/red)", "fn:Singleton(/blue)", "/name"),
        ("fn:Singleton(1)", "fn:Singleton(2)", "/number"),
        ("fn:Singleton(1)", "/string", "fn:Union()"),
        ("fn:Singleton(/animal/cat)", "/animal", "fn:Singleton(/animal/cat)"),
    ],
)  # fmt: skip
def test_meets(left: str, right: str, both: str) -> None:
    assert str(meet(type_of(left), type_of(right))) == both
