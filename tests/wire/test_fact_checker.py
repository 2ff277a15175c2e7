"""The short way reads a fact as the complete check does, or leaves it to that."""

from __future__ import annotations

import math
from typing import Any, Final

import pytest
from hypothesis import given, strategies as st

from manglecp.base.strict_json import Fault
from manglecp.mangle import INT_MAX, Fact, Program, Source, parse_rfc3339
from manglecp.wire.errors import WireError
from manglecp.wire.profile import Profile
from manglecp.wire.values import read_instant

T: Final = "2026-03-02T09:14:00Z"
PROFILE: Final = Profile.of(
    Program.load(
        [
            Source(
                "schema.mg",
                """
                Decl plain(Text, Number) temporal descr [direction("input")] bound [/string, /number].
                Decl mixed(Kind, Share) temporal descr [direction("both")]
                    bound [fn:Union(fn:Singleton(/ok), fn:Singleton(/true), /string), /float64].
                Decl timed(At, For) descr [direction("input")] bound [/time, /duration].
                Decl alike(A, B) descr [direction("input")] bound [/name, /name] bound [/number, /number].
                Decl any_one(X) descr [direction("input")].
                Decl ready() temporal descr [direction("input")].
                Decl dated(A) temporal descr [direction("input"), untimed("now")] bound [/string].
                Decl sized(A) descr [direction("input")] bound [/string].
                Decl sized(A, B) descr [direction("input")] bound [/string, /string].
                Decl told(A) descr [direction("output")] bound [/string].
                """,
            )
        ]
    ).predicates
)

_predicates = st.sampled_from(
    ["plain", "mixed", "timed", "alike", "any_one", "ready", "dated", "sized", "told", "none", 7]
)
_texts = st.sampled_from(["", "a", "/ok", "/true", "/x", "ok", T, "1h", "now", "_"])
_scalars = st.one_of(
    _texts,
    st.integers(-2, 2),
    st.sampled_from([2**53, -(2**53), 2**70, 0.0, -0.0, 1.0, 1.5, True, False, None]),
)
_values = st.one_of(
    _scalars,
    st.lists(_scalars, max_size=2),
    st.dictionaries(st.sampled_from(["a", "_type", "value", "_var"]), _scalars, max_size=2),
    st.sampled_from([{"_type": "int64", "value": "5"}, {"_type": "name", "value": "/ok"}]),
)
_times = st.one_of(
    st.none(),
    st.dictionaries(st.sampled_from(["at", "start", "end"]), st.sampled_from([T, "now", "_", 5, "x"]), max_size=2),
)
_sources = st.sampled_from([None, {}, {"source_type": "scan"}, {"source_type": "client", "asserted_at": "x"}])


def _typical(predicate: str, *values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    args = st.tuples(*values).map(list)
    times = st.sampled_from([None, {"at": T}, {"at": "now"}, {"start": "_", "end": T}])
    timed = st.fixed_dictionaries({"pred": st.just(predicate), "args": args}, optional={"t": times})
    return (
        timed
        if predicate in ("plain", "mixed", "ready", "dated")
        else st.fixed_dictionaries(
            {"pred": st.just(predicate), "args": args}, optional={"category": st.just("derived"), "source": st.none()}
        )
    )


_likely = st.one_of(
    _typical("plain", st.sampled_from(["a", "b"]), st.integers(-2, 2)),
    _typical("mixed", st.sampled_from(["a", "/ok", True]), st.sampled_from([1, 1.0, 0.0, -0.0])),
    _typical("timed", st.sampled_from([T, 5]), st.sampled_from(["1h", 5])),
    _typical("alike", st.sampled_from(["/a", 1]), st.sampled_from(["/b", 2])),
    _typical("any_one", _values),
    _typical("ready"),
    _typical("dated", st.just("a")),
    st.fixed_dictionaries(
        {"pred": st.just("plain"), "named_args": st.fixed_dictionaries({"number": st.just(1), "text": st.just("a")})}
    ),
)
_wild = st.one_of(
    st.fixed_dictionaries(
        {},
        optional={
            "pred": _predicates,
            "args": st.one_of(st.none(), st.lists(_values, max_size=3)),
            "named_args": st.dictionaries(st.sampled_from(["text", "number", "x"]), _values),
            "t": _times,
            "source": _sources,
            "category": st.sampled_from(["server", "x", None, 1]),
            "extra": st.none(),
        },
    ),
    _values,
)
_requests = st.one_of(
    st.lists(_likely, max_size=8), st.lists(st.one_of(_likely, _likely, _likely, _wild), max_size=5), st.lists(_wild)
)


@given(_requests)
def test_a_fact_is_accepted_or_reported(facts: list[Any]) -> None:
    accepted, violations = PROFILE.check(facts, 1)
    assert len(accepted) + len({violation.fact_index for violation in violations}) == len(facts)


def test_each_form_of_a_fact_is_accepted() -> None:
    facts = [
        {"pred": "plain", "args": ["a", 1], "t": {"at": T}},
        {"pred": "plain", "named_args": {"number": 2, "text": "b"}, "category": "session"},
        {"pred": "mixed", "args": ["/ok", 0.5], "source": {"source_type": "client"}},
        {"pred": "mixed", "args": [True, 1]},
        {"pred": "any_one", "args": [{"a": [1]}]},
        {"pred": "alike", "args": [1, 2]},
        {"pred": "ready", "args": []},
    ]
    assert len(PROFILE.read(facts, 1)) == len(facts)


@pytest.mark.req("DATA-24")
def test_a_fact_without_a_time_holds_as_declared() -> None:
    written = [{"pred": "dated", "args": ["a"]}, {"pred": "dated", "args": ["b"], "t": None}]
    now = PROFILE.read(written, 7)
    assert now == [Fact("dated", ("a",), (7, 7)), Fact("dated", ("b",), (7, 7))]
    assert PROFILE.read([PROFILE.write(fact) for fact in now], 9) == now
    assert PROFILE.read([{"pred": "plain", "args": ["a", 1]}], 7) == [Fact("plain", ("a", 1))]
    (always,) = PROFILE.read([{"pred": "ready", "args": [], "t": {"start": "_", "end": "_"}}], 7)
    assert always == Fact("ready", ())
    assert PROFILE.read([PROFILE.write(always)], 9) == [always]


@pytest.mark.parametrize(
    ("start", "end", "validity"),
    [
        ("_", "_", (7, 7)),
        (1, "_", (1, 7)),
        ("_", 9, (7, 7)),
        ("_", 3, (3, 3)),
        (1, 9, (1, 7)),
        (1, 3, (1, 3)),
        (7, 9, (7, 7)),
        (8, 9, (8, 9)),  # it has not begun
        (8, "_", (8, None)),
    ],
)
def test_a_fact_of_now_ends_now_at_the_latest(start: Any, end: Any, validity: tuple[int, int | None]) -> None:
    """Also if it names an end that is later; times are milliseconds."""
    ms = 10**6
    (fact,) = PROFILE.read([{"pred": "dated", "args": ["a"], "t": {"start": start, "end": end}}], 7 * ms)
    first, last = validity
    assert fact.interval == (first * ms, INT_MAX if last is None else last * ms)
    if fact.interval[1] <= 7 * ms:
        assert PROFILE.read([PROFILE.write(fact)], 20 * ms) == [fact], "a proof that is repeated changes nothing"


@pytest.mark.parametrize(
    "wrong",
    [
        {"pred": "plain", "args": ["a", "b"]},
        {"pred": "plain", "args": ["a"]},
        {"pred": "plain", "args": ["a", 1], "t": {"at": "soon"}},
        {"pred": "plain", "args": ["a", 1], "category": "forever"},
        {"pred": "plain", "named_args": {"text": "a", "numbr": 1}},
        {"pred": "unknown", "args": []},
        None,
    ],
    ids=str,
)
@pytest.mark.parametrize("place", [0, 1_234, 2_999])
def test_only_the_invalid_fact_is_reported(wrong: Any, place: int) -> None:
    facts: list[Any] = [{"pred": "plain", "args": [f"a{n}", n], "t": {"at": n}} for n in range(3_000)]
    facts[place] = wrong
    with pytest.raises(WireError) as refused:
        PROFILE.read(facts, 1)
    assert refused.value.details is not None
    assert [violation["fact_index"] for violation in refused.value.details["violations"]] == [place]


@pytest.mark.parametrize("number", [2**53, -(2**53)])
def test_a_number_that_a_reader_might_round_is_refused(number: int) -> None:
    facts = [{"pred": "plain", "args": ["a", one]} for one in (1, number)]
    with pytest.raises(WireError):
        PROFILE.read(facts, 1)


def test_zeros_are_kept_apart() -> None:
    facts = [{"pred": "mixed", "args": ["a", zero]} for zero in (0.0, -0.0, 0.0)]
    assert [math.copysign(1, fact.args[1].value) for fact in PROFILE.read(facts, 1)] == [1, -1]  # type: ignore[union-attr]


_like_instants = st.one_of(
    st.from_regex(
        r"[0-9]{4}-[01][0-9]-[0-3][0-9][Tt ][0-2][0-9]:[0-6][0-9]:[0-6][0-9]"
        r"(\.[0-9]{0,10})?(Z|z|[+-][0-9]{2}:?[0-9]{2})?",
        fullmatch=True,
    ),
    st.tuples(st.integers(0, 26), st.sampled_from("0Zz.,+-:T W٣")).map(
        lambda edit: "2026-03-02T09:14:00.123456Z"[: edit[0]] + edit[1] + "2026-03-02T09:14:00.123456Z"[edit[0] + 1 :]
    ),
    st.sampled_from(
        [
            "2026-03-02T24:00:00Z",
            "2026-W10-1T09:14:00Z",
            "20260302T091400Z",
            "2026-03-02T09:14:00.1+1Z",
            "0001-01-01T00:00:00Z",
            "1677-01-01T00:00:00Z",
            "1678-01-01T00:00:00Z",
            "2261-12-31T23:59:59.999999Z",
            "2262-04-11T23:47:16.854775807Z",
            "2262-04-12T00:00:00Z",
            "2026-03-02 09:14:00Z",
            "2026-03-02t09:14:00Z",
            "2026-03-02x09:14:00Z",
            "2026-03-02T09:14:00,123Z",
            "2026-03-02T09:14:00.Z",
        ]
    ),
)


@pytest.mark.req("DATA-28")
@given(_like_instants)
def test_the_usual_instants_are_read_like_the_others(text: str) -> None:
    expected = parse_rfc3339(text.upper())
    if expected is None or not -(2**63) <= expected < 2**63:
        with pytest.raises(Fault):
            read_instant(text)
    else:
        assert read_instant(text) == expected
