from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, strategies as st

from manglecp.base.strict_json import Fault
from manglecp.mangle import INT_MAX, INT_MIN, Fact, Name, Program, Source, Value, is_nonempty_interval
from manglecp.wire.facts import WILDCARD, read_fact, write_fact
from manglecp.wire.predicates import Schemas, snake_case
from tests.wire.strategies import values

PROGRAM = Program.load(
    [
        Source(
            "schema.mg",
            """
            Decl build(Service, BuildNumber, Outcome) temporal
                bound [/string, /number, fn:Union(fn:Singleton(/ok), fn:Singleton(/failed))].
            Decl owner(Service, TeamId) bound [/string, /team].
            Decl anything(X).
            Decl ready().
            Decl pair(X, _).
            loose("a", 1).
            """,
        )
    ]
)
SCHEMAS = Schemas(PROGRAM.predicates)
OK = Name("/ok")
AT = 1772442840 * 10**9
T = "2026-03-02T09:14:00Z"


_times = st.dictionaries(st.sampled_from(["at", "start", "end", "x"]), st.sampled_from([T, "_", "now", 5, None]))
_members = st.one_of(
    st.none(),
    st.sampled_from(["build", "ready", T]),
    st.integers(),
    st.lists(st.one_of(st.integers(), st.text(max_size=2)), max_size=3),
    _times,
)


def build(**members: Any) -> dict[str, Any]:
    return {"pred": "build", "args": ["api", 7, "/ok"], **members}


@pytest.mark.req("DATA-24", "DATA-25", "DATA-26", "DATA-27", "DATA-28")
@pytest.mark.parametrize(
    ("t", "interval"),
    [
        ({"at": T}, (AT, AT)),
        ({"at": AT // 10**6}, (AT, AT)),
        ({"start": T, "end": "_"}, (AT, INT_MAX)),
        ({"start": "_", "end": T}, (INT_MIN, AT)),
        ({"start": T, "end": "now"}, (AT, AT + 1)),
        ({"start": "_", "end": "_"}, None),
        (None, None),
    ],
)
def test_times(t: Any, interval: Any) -> None:
    assert read_fact(build(t=t), SCHEMAS, now=AT + 1) == Fact("build", ("api", 7, OK), interval)


@pytest.mark.req("DATA-05", "DATA-07", "DATA-08")
def test_named_arguments_mean_the_same_in_any_order() -> None:
    named = {"outcome": "/ok", "service": "api", "build_number": 7}
    assert read_fact({"pred": "build", "named_args": named}, SCHEMAS) == read_fact(build(), SCHEMAS)
    assert read_fact({"pred": "ready", "args": []}, SCHEMAS) == Fact("ready", ())


def test_unknown_members_are_skipped() -> None:
    assert read_fact(build(source={"source_type": "x-ci"}, category="server", extra=1), SCHEMAS).args == ("api", 7, OK)


def test_the_wildcard_stands_only_where_it_may() -> None:
    pattern = {"pred": "owner", "args": ["api", None]}
    assert write_fact(Fact("owner", ("api", WILDCARD)), SCHEMAS, wildcards=True) == pattern
    with pytest.raises(Fault, match="null"):
        read_fact(pattern, SCHEMAS)


@pytest.mark.req("DATA-06", "DATA-09", "DATA-10")
@pytest.mark.parametrize(
    ("data", "path", "message"),
    [
        ([], "$", "a fact is an object"),
        ({"args": []}, "$.pred", "pred is missing"),
        ({"pred": 1, "args": []}, "$.pred", "pred is missing"),
        ({"pred": "ready"}, "$", "either 'args' or 'named_args'"),
        ({"pred": "ready", "args": [], "named_args": {}}, "$", "either 'args' or 'named_args'"),
        ({"pred": "biuld", "args": []}, "$.pred", "unknown predicate biuld"),
        ({"pred": "biuld", "named_args": {}}, "$.pred", "unknown predicate biuld"),
        ({"pred": "owner", "args": ["api"]}, "$", "expects 2 arguments (service, team_id), got 1"),
        ({"pred": "owner", "args": "api"}, "$.args", "'args' is an array"),
        ({"pred": "owner", "named_args": []}, "$.named_args", "'named_args' is an object"),
        (
            {"pred": "owner", "named_args": {"service": "api", "team": "/team/a"}},
            "$.named_args",
            "'team_id' missing; 'team' unknown",
        ),
        ({"pred": "pair", "named_args": {"x": 1}}, "$.named_args", "'pair' does not name its arguments"),
        ({"pred": "loose", "named_args": {"x": 1}}, "$.named_args", "'loose' does not name its arguments"),
        ({"pred": "owner", "args": ["api", "/user/a"]}, "$.args[1]", "argument team_id of owner takes /team"),
        (
            {"pred": "owner", "named_args": {"service": 1, "team_id": "/team/a"}},
            "$.named_args.service",
            "not the number",
        ),
        (build(t={"at": "_"}), "$.t.at", "'_' is not a time"),
        (build(t={"at": "now"}), "$.t.at", "now is known only when"),
        (build(t={"start": T}), "$.t.end", "end is missing"),
        (build(t={"start": T, "end": 0}), "$.t", "the interval ends before it starts"),
        (build(t={"at": True}), "$.t.at", "a time is RFC 3339 text"),
        ({"pred": "owner", "args": ["api", "/team/a"], "t": {"at": T}}, "$.t", "owner is not temporal"),
    ],
)
def test_what_is_wrong_and_where(data: Any, path: str, message: str) -> None:
    with pytest.raises(Fault) as refused:
        read_fact(data, SCHEMAS)
    assert message in refused.value.message
    assert refused.value.path == path


def test_a_misspelt_predicate_is_recognised() -> None:
    with pytest.raises(Fault) as refused:
        read_fact({"pred": "biuld", "args": []}, SCHEMAS)
    assert refused.value.fix == "did you mean build?"


@pytest.mark.req("DATA-36")
@given(
    values,
    st.tuples(st.integers(INT_MIN, INT_MAX), st.integers(INT_MIN, INT_MAX)).filter(lambda i: is_nonempty_interval(*i)),
)
def test_what_goes_out_can_be_sent_back(value: Value, interval: tuple[int, int]) -> None:
    timed = Fact("build", ("api", 7, OK), None if interval == (INT_MIN, INT_MAX) else interval)
    for fact in (Fact("anything", (value,)), timed):
        assert read_fact(write_fact(fact, SCHEMAS), SCHEMAS) == fact


@given(st.dictionaries(st.sampled_from(["pred", "args", "named_args", "t"]), _members))
def test_any_object_is_a_fact_or_a_fault(data: dict[str, Any]) -> None:
    with suppress(Fault):
        assert read_fact(data, SCHEMAS).predicate in ("build", "ready")


@pytest.mark.parametrize(
    ("variable", "name"),
    [
        ("X", "x"),
        ("SessionId", "session_id"),
        ("HTTPCode", "http_code"),
        ("X1", "x1"),
        ("Team_Id", "team_id"),
        ("ID", "id"),
    ],
)
def test_names_on_the_wire(variable: str, name: str) -> None:
    assert snake_case(variable) == name
