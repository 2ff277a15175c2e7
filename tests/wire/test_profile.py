"""What clients may say, what is told about what is wrong, and what the manifest says of both."""

from __future__ import annotations

import json
from typing import Any, Final

import msgspec
import pytest

from manglecp.mangle import FALSE, INT_MAX, INT_MIN, TRUE, Fact, Float, List, Map, Name, Program, Source, Time
from manglecp.wire.errors import WireError
from manglecp.wire.messages import TIME_FORMATS
from manglecp.wire.predicates import direction_problems
from manglecp.wire.profile import Profile

PROGRAM: Final = Program.load(
    [
        Source(
            "schema.mg",
            """
            Decl current_url(Url) descr [direction("input")] bound [/string].
            Decl console_event(SessionId, Level, Message, Timestamp) temporal
                descr [doc("A line of the console."), direction("input")]
                bound [/string, /string, /string, /number].
            Decl root_cause(Service, Why) descr [direction("output")] bound [/string, /string].
            Decl suspect(Service, Score) descr [direction("both")] bound [/string, /float64].
            Decl reading(Sensor, Value, On, Kind, At, Rest) descr [direction("input")]
                bound [
                    /string,
                    fn:Union(/number, /float64),
                    fn:Union(fn:Singleton(/true), fn:Singleton(/false)),
                    /name,
                    /time,
                    /any
                ].
            Decl ready() descr [direction("input")].
            Decl unnamed(X, _) descr [direction("input")] bound [/string, /string].
            Decl pair_of(A, B) descr [direction("input")] bound [/string, /string] bound [/number, /number].
            Decl sized(A) descr [direction("input")] bound [/string].
            Decl sized(A, B) descr [direction("input")] bound [/string, /string].
            Decl verdict(A) descr [direction("input")] bound [/string].
            Decl verdict(A, Why) descr [direction("output")] bound [/string, /string].
            Decl tri(X) descr [direction("input")]
                bound [fn:Union(fn:Singleton(/true), fn:Singleton(/false), fn:Singleton(/unknown))].
            Decl internal_score(Tool, Score) bound [/string, /number].
            Decl permitted(Tool) descr [direction("input")] bound [/string].
            seen("x").
            """,
        )
    ]
)
PROFILE: Final = Profile.of(PROGRAM.predicates, kernel={"permitted", "intent"})
NOW: Final = 1_772_442_840 * 10**9
T: Final = "2026-03-02T09:14:00Z"


def event(*args: Any, **members: Any) -> dict[str, Any]:
    return {"pred": "console_event", "args": list(args) or ["s1", "error", "TypeError", 5], **members}


def refused(*facts: Any, **options: Any) -> WireError:
    with pytest.raises(WireError) as caught:
        PROFILE.read(list(facts), NOW, **options)
    return caught.value


def violation(fact: Any) -> dict[str, Any]:
    """The one thing that is wrong with a fact."""
    details = refused(fact).details
    assert details is not None
    (found,) = details["violations"]
    assert found.pop("fact_index") == 0
    return dict(found)


# --- the worked case -------------------------------------------------------------------------------------------------


@pytest.mark.req("DATA-04", "ERR-34", "ERR-38")
def test_the_example_of_the_specification() -> None:
    error = refused(
        {"pred": "current_url", "args": ["https://example.com"]},
        {"pred": "console_event", "args": ["s1", "error", "TypeError"]},
        {"pred": "_manglecp_internal", "args": ["hack"]},
    )
    message = "Predicate 'console_event' expects 4 arguments (session_id, level, message, timestamp), got 3"
    assert msgspec.to_builtins(error.payload()) == {
        "code": "invalid_facts",
        "message": "2 fact validation errors",
        "details": {
            "violations": [
                {
                    "fact_index": 1,
                    "predicate": "console_event",
                    "issue": "arity_mismatch",
                    "expected_arity": 4,
                    "actual_arity": 3,
                    "message": message,
                },
                {
                    "fact_index": 2,
                    "predicate": "_manglecp_internal",
                    "issue": "reserved_predicate",
                    "message": "Predicates starting with '_manglecp_' are reserved for protocol use",
                },
            ]
        },
        "recoverable": True,
        "retry_after_ms": None,
    }


def test_violations_of_one_kind_name_the_code() -> None:
    reserved = {"pred": "_manglecp_x", "args": []}
    assert (refused(reserved).code, refused(reserved).row.recoverable) == ("reserved_predicate", False)
    assert refused({"pred": "ready", "args": [1]}).code == "arity_mismatch"
    assert refused({"pred": "nothing_like_it", "args": [1]}).code == "unknown_predicate"
    assert refused(event(1, "a", "b", 5)).code == "type_mismatch"
    assert refused({"pred": "root_cause", "args": ["a", "b"]}).code == "invalid_facts"
    assert refused(reserved, {"pred": "ready", "args": [1]}).code == "invalid_facts"


def test_everything_is_told_at_once() -> None:
    bad = event(1, None, "m", 1.5, t={"at": "soon"}, source={}, category="forever")
    details = refused(event(), bad, "x", {"args": []}).details
    assert details is not None
    told = [(v["fact_index"], v["issue"], v.get("argument_index"), v.get("path")) for v in details["violations"]]
    assert told == [
        (1, "invalid_time", None, "$.t.at"),
        (1, "type_mismatch", 0, "$.args[0]"),
        (1, "type_mismatch", 1, "$.args[1]"),
        (1, "type_mismatch", 3, "$.args[3]"),
        (1, "invalid_source", None, "$.source.source_type"),
        (1, "invalid_category", None, "$.category"),
        (2, "invalid_fact", None, None),
        (3, "invalid_fact", None, "$.pred"),
    ]


def test_there_is_an_end_to_what_is_told() -> None:
    """All of a thousand; of ten thousand no more than that, so that the answer does not outgrow its request."""
    most = refused(*[{"pred": "ready", "args": [n]} for n in range(999)])
    assert most.message == "999 fact validation errors"
    endless = refused(*[event(1, 2, 3, "x") for _ in range(10_000)])
    assert endless.details is not None
    assert len(endless.details["violations"]) == 1_000
    assert endless.message == "at least 1000 fact validation errors"
    found = violation({"pred": "current_url", "named_args": {f"key{n}": n for n in range(1_000)}})
    assert found["message"].endswith("'key4' and 995 more unknown")


# --- predicates ------------------------------------------------------------------------------------------------------


@pytest.mark.req("DATA-01", "DATA-03")
@pytest.mark.parametrize("name", ["Event", "1st", "a.b", "a-b", "é", "", "_x", "naïve", "a b", "a\n", "٣"])
def test_names_that_are_none(name: str) -> None:
    assert violation({"pred": name, "args": []})["issue"] == "invalid_predicate_name"


@pytest.mark.req("DATA-01")
@pytest.mark.parametrize("fact", [{"args": []}, {"pred": None, "args": []}, {"pred": ["ready"], "args": []}])
def test_the_predicate_is_required(fact: Any) -> None:
    assert violation(fact) == {
        "predicate": "",
        "issue": "invalid_fact",
        "message": "'pred' is missing, or is not a string",
        "path": "$.pred",
        "suggestion": 'Write {"pred": "…", "args": […]}',
    }


@pytest.mark.req("DATA-02")
def test_names_are_at_most_128_characters_long() -> None:
    longest = "a" * 128
    program = Program.load([Source("a.mg", f'Decl {longest}() descr [direction("input")].')])
    profile = Profile.of(program.predicates)
    assert profile.read([{"pred": longest, "args": []}], 0) == [Fact(longest, ())]
    found = violation({"pred": longest + "a", "args": []})
    assert found["issue"] == "invalid_predicate_name"
    assert len(found["predicate"]) < 135


@pytest.mark.req("DATA-04")
def test_the_reserved_prefix_is_seen_before_the_pattern() -> None:
    assert violation({"pred": "_manglecp_A-B", "args": 1})["issue"] == "reserved_predicate"


def test_a_similar_name_is_suggested() -> None:
    assert violation({"pred": "console_events", "args": []}) == {
        "predicate": "console_events",
        "issue": "unknown_predicate",
        "message": "Predicate 'console_events' is not declared in the server's facts profile",
        "suggestion": "Did you mean 'console_event'?",
    }


@pytest.mark.parametrize(
    "name", ["internal_scores", "internal_score", "permitte", "permitted", "intent", "seen", "root_caus"]
)
def test_what_is_not_published_looks_like_nothing(name: str) -> None:
    """Neither internal predicates, nor the kernel's, nor what clients cannot say are suggested."""
    found = violation({"pred": name, "args": ["a"]})
    assert found["issue"] == "unknown_predicate"
    assert "suggestion" not in found


def test_only_so_many_suggestions_are_looked_for() -> None:
    details = refused(*[{"pred": f"console_event{n}", "args": []} for n in range(100)]).details
    assert details is not None
    assert len(details["violations"]) == 100
    assert sum("suggestion" in violation for violation in details["violations"]) == 20


@pytest.mark.req("DATA-53")
def test_what_the_server_derives_is_not_the_clients_to_say() -> None:
    found = violation({"pred": "root_cause", "args": ["api", "because"]})
    assert found["issue"] == "direction_violation"
    assert violation({"pred": "root_cause", "args": []})["issue"] == "direction_violation"
    assert PROFILE.read([{"pred": "suspect", "args": ["api", 1]}], NOW) == [Fact("suspect", ("api", Float(1.0)))]
    assert PROFILE.direction("root_cause") == "output"
    assert PROFILE.direction("suspect") == "both"
    assert PROFILE.direction("ready") == "input"
    assert PROFILE.direction("internal_score") is None
    assert PROFILE.direction("permitted") is None
    assert {"ready", "suspect", "disclosure_upgrade"} < PROFILE.assertable
    assert PROFILE.assertable.isdisjoint({"root_cause", "internal_score", "permitted", "seen"})


def test_a_name_that_goes_both_ways() -> None:
    assert PROFILE.read([{"pred": "verdict", "args": ["a"]}], NOW) == [Fact("verdict", ("a",))]
    assert violation({"pred": "verdict", "args": ["a", "b"]})["issue"] == "direction_violation"
    assert violation({"pred": "verdict", "named_args": {"a": "a", "why": "b"}})["issue"] == "invalid_named_args"
    assert PROFILE.direction("verdict") == "both"
    assert "verdict" in PROFILE.assertable


def test_what_is_right_is_told_apart_from_what_is_wrong() -> None:
    right, wrong = event("right", "b", "c", 1), event("wrong", "b", "c", 1, source={})
    facts, violations = PROFILE.check([wrong, right], NOW)
    assert ([fact.args[0] for fact in facts], [v.fact_index for v in violations]) == (["right"], [0])
    _, violations = PROFILE.check([event("a", t={"at": "x"})], NOW)
    assert [v.issue for v in violations] == ["arity_mismatch", "invalid_time"]


def test_a_disclosure_upgrade_needs_no_declaration() -> None:
    upgrade = {"pred": "disclosure_upgrade", "args": ["m-1"]}
    assert PROFILE.read([upgrade], NOW) == [Fact("disclosure_upgrade", ("m-1",))]
    assert PROFILE.write(Fact("disclosure_upgrade", ("m-1",))) == upgrade
    assert violation({"pred": "disclosure_upgrade", "args": []})["expected_arity"] == 1
    assert violation({"pred": "disclosure_upgrade", "args": [7]})["issue"] == "type_mismatch"
    assert "disclosure_upgrade" not in {schema.predicate for schema in PROFILE.schemas()}


# --- arguments -------------------------------------------------------------------------------------------------------


@pytest.mark.req("DATA-05")
def test_arguments_stand_in_an_array() -> None:
    assert PROFILE.read([{"pred": "ready", "args": []}], NOW) == [Fact("ready", ())]
    assert PROFILE.read([event("a", "b", "c", 1)], NOW) == [Fact("console_event", ("a", "b", "c", 1))]
    assert violation({"pred": "ready", "args": {}})["issue"] == "invalid_fact"


@pytest.mark.req("DATA-06")
@pytest.mark.parametrize(
    "members", [{}, {"args": [], "named_args": {}}, {"args": None}, {"args": None, "named_args": None}]
)
def test_arguments_are_given_once(members: dict[str, Any]) -> None:
    assert violation({"pred": "ready", **members})["issue"] == "invalid_fact"


@pytest.mark.req("DATA-07", "DATA-08")
def test_arguments_may_be_named() -> None:
    named = {"timestamp": 5, "message": "TypeError", "level": "error", "session_id": "s1"}
    assert PROFILE.read([{"pred": "console_event", "named_args": named}], NOW) == PROFILE.read([event()], NOW)
    (schema,) = [s for s in PROFILE.schemas() if s.predicate == "console_event"]
    assert set(named) == set(schema.arg_names or ())


@pytest.mark.req("DATA-09", "DATA-10")
@pytest.mark.parametrize(
    ("predicate", "named", "message"),
    [
        ("unnamed", {"x": "a"}, "does not name its arguments"),
        ("current_url", {"uri": "a"}, "takes the arguments (url): 'url' missing; 'uri' unknown"),
        ("current_url", {"url": "a", "more": 1}, "'more' unknown"),
        ("current_url", {}, "'url' missing"),
        ("current_url", ["a"], "'named_args' is an object"),
    ],
)
def test_names_of_arguments_are_those_of_the_declaration(predicate: str, named: Any, message: str) -> None:
    found = violation({"pred": predicate, "named_args": named})
    assert found["issue"] == "invalid_named_args"
    assert message in found["message"]
    assert refused({"pred": predicate, "named_args": named}).code == "invalid_facts"


def test_a_number_of_arguments_that_several_predicates_do_not_have() -> None:
    assert PROFILE.read([{"pred": "sized", "args": ["a"]}, {"pred": "sized", "args": ["a", "b"]}], NOW) == [
        Fact("sized", ("a",)),
        Fact("sized", ("a", "b")),
    ]
    found = violation({"pred": "sized", "args": []})
    assert found["message"] == "Predicate 'sized' expects 1 or 2 arguments, got 0"
    assert "expected_arity" not in found


@pytest.mark.req("DATA-12", "DATA-13", "DATA-14", "DATA-15", "DATA-16", "DATA-21", "DATA-54")
def test_every_kind_of_value() -> None:
    def values(number: Any, rest: Any) -> tuple[Any, ...]:
        facts = PROFILE.read([{"pred": "reading", "args": ["s", number, True, "/a", T, rest]}], NOW)
        assert facts[0].args[:1] + facts[0].args[2:5] == ("s", TRUE, Name("/a"), Time(NOW))
        return facts[0].args[1], facts[0].args[5]

    assert values(1, "x") == (1, "x")
    assert values(1.5, 2) == (Float(1.5), 2)
    assert values({"_type": "int64", "value": "9007199254740993"}, False) == (9007199254740993, FALSE)
    assert values(4.2e1, [1, "a", [True]]) == (Float(42.0), List((1, "a", List((TRUE,)))))
    assert values(0, {"a": {"b": 1}}) == (0, Map((("a", Map((("b", 1),))),)))


@pytest.mark.req("DATA-18", "DATA-19", "DATA-20", "ERR-36")
@pytest.mark.parametrize("number", [42.0, 1.5, 2**53, -(2**53), True, "5", None, [5], {"_type": "int64", "value": 5}])
def test_numbers_that_are_not_whole_and_exact(number: Any) -> None:
    found = violation(event("a", "b", "c", number))
    assert (found["issue"], found["argument_index"]) == ("type_mismatch", 3)
    assert found["message"].startswith("Argument 4 (timestamp) of predicate 'console_event' expects ")


@pytest.mark.parametrize(
    ("argument", "expected", "actual", "message"),
    [
        (7, "string", "number", "expects string, got the number '7'"),
        (None, "string", "any", "expects string: null stands for any value, and a fact states a particular one"),
        (True, "string", "boolean", "expects string, got the name '/true'"),
        ({"_var": "X"}, "string", "any", "expects string: a variable cannot stand in a fact"),
        ({"_type": "name", "value": "x"}, "string", "any", "expects string: 'x' is not a name"),
    ],
)
def test_what_was_expected_and_what_was_found(argument: Any, expected: str, actual: str, message: str) -> None:
    found = violation(event(argument, "b", "c", 1))
    assert found["message"] == f"Argument 1 (session_id) of predicate 'console_event' {message}"
    assert (found["expected_type"], found["actual_type"]) == (expected, actual)


def test_the_bound_is_told_where_the_type_says_too_little() -> None:
    found = violation({"pred": "reading", "args": ["s", 1, True, "a", T, 1]})
    assert "expects /name: " in found["message"]
    assert found["suggestion"] == "write '/a'"


@pytest.mark.req("ERR-36")
@pytest.mark.parametrize(
    ("position", "argument", "types"),
    [
        (0, [1], ("string", "any")),
        (1, "1", ("number", "string")),
        (2, "true", ("boolean", "string")),
        (3, "a", ("string", "string")),
        (5, None, ("any", "any")),
    ],
)
def test_types_are_told_in_the_words_of_the_manifest(position: int, argument: Any, types: tuple[str, str]) -> None:
    args: list[Any] = ["s", 1, True, "/a", T, 1]
    args[position] = argument
    found = violation({"pred": "reading", "args": args})
    assert (found["expected_type"], found["actual_type"]) == types


@pytest.mark.req("DATA-17", "DATA-22", "DATA-23")
@pytest.mark.parametrize("nested", [None, {"_var": "X"}, [{"_var": "x"}]])
def test_wildcards_and_variables_are_not_values(nested: Any) -> None:
    """Not even where any value may stand."""
    assert violation({"pred": "reading", "args": ["s", 1, True, "/a", T, nested]})["argument_index"] == 5


@pytest.mark.req("DATA-17")
def test_null_inside_of_a_value_is_a_name() -> None:
    (fact,) = PROFILE.read([{"pred": "reading", "args": ["s", 1, True, "/a", T, {"a": [1, None]}]}], NOW)
    assert fact.args[5] == Map((("a", List((1, Name("/null")))),))
    found = violation({"pred": "reading", "args": ["s", 1, True, "/a", T, None]})
    assert '{"_type": "name", "value": "/null"}' in found["suggestion"]


def test_a_value_deep_inside_is_found() -> None:
    found = violation({"pred": "reading", "args": ["s", 1, True, "/a", T, {"a": [1, {"_type": "time", "value": "x"}]}]})
    assert found["path"] == "$.args[5].a[1].value"


def test_arguments_that_do_not_fit_together() -> None:
    assert len(PROFILE.read([{"pred": "pair_of", "args": ["a", "b"]}, {"pred": "pair_of", "args": [1, 2]}], NOW)) == 2
    assert violation({"pred": "pair_of", "args": ["a", 1]})["message"].endswith("but not together")


# --- time ------------------------------------------------------------------------------------------------------------


@pytest.mark.req("DATA-24", "DATA-25", "DATA-26", "DATA-27", "DATA-28", "DATA-29", "DATA-30")
@pytest.mark.parametrize(
    ("t", "interval"),
    [
        (None, None),
        ({"at": T}, (NOW, NOW)),
        ({"at": "2026-03-02t10:14:00.000+01:00"}, (NOW, NOW)),
        ({"at": NOW // 10**6}, (NOW, NOW)),
        ({"at": "now"}, (NOW, NOW)),
        ({"start": T, "end": "2026-03-02T09:14:00.000000001Z"}, (NOW, NOW + 1)),
        ({"start": T, "end": "_"}, (NOW, INT_MAX)),
        ({"start": "_", "end": "now"}, (INT_MIN, NOW)),
        ({"start": "_", "end": "_"}, None),
    ],
)
def test_times(t: Any, interval: Any) -> None:
    assert TIME_FORMATS == ("rfc3339", "epoch_ms")
    assert PROFILE.read([event(t=t)], NOW)[0].interval == interval


@pytest.mark.req("DATA-27", "DATA-35")
@pytest.mark.parametrize(
    ("t", "path"),
    [
        ({"at": "_"}, "$.t.at"),
        ({"at": "2026-03-02"}, "$.t.at"),
        ({"at": "2026-03-02T09:14:00"}, "$.t.at"),
        ({"at": 1.5}, "$.t.at"),
        ({"at": None}, "$.t"),
        ({"at": None, "start": T}, "$.t.end"),
        ({"start": None, "end": T}, "$.t.start"),
        ({"at": {"_type": "int64", "value": "1"}}, "$.t.at"),
        ({"start": T, "end": "yesterday"}, "$.t.end"),
        ({"start": T, "end": 0}, "$.t"),
        ({"start": T}, "$.t.end"),
        ({"at": T, "end": T}, "$.t"),
        ({"<-": "5m"}, "$.t"),
        ({}, "$.t"),
        (T, "$.t"),
    ],
)
def test_what_is_no_time(t: Any, path: str) -> None:
    found = violation(event(t=t))
    assert (found["issue"], found["path"]) == ("invalid_time", path)
    assert refused(event(t=t)).code == "invalid_facts"


def test_only_temporal_predicates_have_a_time() -> None:
    fact = {"pred": "current_url", "args": ["a"]}
    assert violation({**fact, "t": {"at": T}})["issue"] == "invalid_time"
    assert PROFILE.read([{**fact, "t": {"start": "_", "end": "_"}}], NOW) == PROFILE.read([fact], NOW)


# --- provenance ------------------------------------------------------------------------------------------------------


@pytest.mark.req("DATA-37", "DATA-38", "DATA-39", "DATA-40", "DATA-42", "DATA-43", "DATA-44")
def test_claims_change_nothing() -> None:
    sources: list[Any] = [{"source_type": kind} for kind in ("server", "scan", "external", "client", "derived")]
    sources += [{"source_type": "x-arango_live", "source_id": "a", "asserted_at": T}]
    sources += [{"source_type": "client", "source_id": None, "asserted_at": None}]
    sources += [{"source_type": "client", "asserted_at": "now"}, {"source_type": "client", "asserted_at": 5}, None]
    claims = [event(source=source) for source in sources]
    claims += [event(category=category) for category in ("server", "session", "derived", None)]
    claims += [event(source={"source_type": "server"}, category="server", t=None, extra=[]), event()]
    assert PROFILE.read(claims, NOW) == [Fact("console_event", ("s1", "error", "TypeError", 5))]


@pytest.mark.req("DATA-37", "DATA-39")
@pytest.mark.parametrize(
    ("source", "path"),
    [
        ("server", "$.source"),
        ({}, "$.source.source_type"),
        ({"source_type": None}, "$.source.source_type"),
        ({"source_type": "human"}, "$.source.source_type"),
        ({"source_type": "x-"}, "$.source.source_type"),
        ({"source_type": "client", "source_id": 7}, "$.source.source_id"),
        ({"source_type": "client", "asserted_at": "_"}, "$.source.asserted_at"),
        ({"source_type": "client", "asserted_at": "soon"}, "$.source.asserted_at"),
    ],
)
def test_what_is_no_source(source: Any, path: str) -> None:
    found = violation(event(source=source))
    assert (found["issue"], found["path"]) == ("invalid_source", path)


@pytest.mark.req("DATA-43")
@pytest.mark.parametrize("category", ["permanent", "", 1, ["server"]])
def test_what_is_no_category(category: Any) -> None:
    assert violation(event(category=category))["issue"] == "invalid_category"


@pytest.mark.req("DATA-42")
def test_equal_facts_are_one() -> None:
    later = event(t={"at": T})
    same = event(t={"start": T, "end": T})
    found = PROFILE.read([later, event(), same, later, event(source={"source_type": "scan"})], NOW)
    args = ("s1", "error", "TypeError", 5)
    assert found == [Fact("console_event", args, (NOW, NOW)), Fact("console_event", args)]


# --- a request -------------------------------------------------------------------------------------------------------


def test_so_many_facts_and_no_more() -> None:
    assert len(PROFILE.read([event("a", "b", "c", n) for n in range(3)], NOW, limit=3)) == 3
    error = refused(event(), event(), event(), event(), limit=3)
    assert (error.code, error.details) == ("too_many_facts", {"limit": 3, "actual": 4})


def test_required_facts_are_missed_along_with_what_is_wrong() -> None:
    assert PROFILE.read([event()], NOW, required=["console_event"])
    error = refused(event(1), "x", required=["ready", "console_event", "current_url"])
    assert error.code == "invalid_facts"
    assert error.details is not None
    assert error.details["missing_facts"] == ["ready", "current_url"]
    assert len(error.details["violations"]) == 2


def test_no_facts() -> None:
    assert PROFILE.read([], NOW) == []


# --- out -------------------------------------------------------------------------------------------------------------


@pytest.mark.req("DATA-36")
def test_what_goes_out_can_be_sent_back() -> None:
    facts = [
        Fact("console_event", ("a", "b", "c", 1), (NOW, NOW + 5)),
        Fact("console_event", ("a", "b", "c", 2), (NOW, INT_MAX)),
        Fact("suspect", ("api", Float(1.0))),
        Fact("reading", ("s", 2**53, TRUE, Name("/x"), Time(5), Map(((1, "a"),)))),
        Fact("disclosure_upgrade", ("m",)),
    ]
    source = {"source_type": "derived", "source_id": "rules"}
    written = [PROFILE.write(fact, category="derived", source=source) for fact in facts]
    assert all(w["category"] == "derived" and w["source"] == source for w in written)
    assert PROFILE.read(json.loads(json.dumps(written)), NOW + 1) == facts
    assert PROFILE.write(facts[0]) == {
        "pred": "console_event",
        "args": ["a", "b", "c", 1],
        "t": {"start": T, "end": "2026-03-02T09:14:00.000000005Z"},
    }


# --- the manifest ----------------------------------------------------------------------------------------------------


@pytest.mark.req("DATA-50", "DATA-51", "DATA-52", "MANI-16")
def test_the_schemas_of_the_manifest() -> None:
    schemas = {schema["predicate"]: schema for schema in msgspec.json.decode(msgspec.json.encode(PROFILE.schemas()))}
    assert schemas["console_event"] == {
        "predicate": "console_event",
        "arity": 4,
        "arg_types": ["string", "string", "string", "number"],
        "arg_names": ["session_id", "level", "message", "timestamp"],
        "temporal": True,
        "description": "A line of the console.",
        "direction": "input",
        "x-integers": [3],
    }
    assert schemas["reading"]["arg_types"] == ["string", "number", "boolean", "string", "string", "any"]
    assert schemas["tri"]["arg_types"] == ["any"]
    assert schemas["pair_of"]["arg_types"] == ["any", "any"]
    assert schemas["ready"] == {
        "predicate": "ready",
        "arity": 0,
        "arg_types": [],
        "temporal": False,
        "direction": "input",
    }
    assert "arg_names" not in schemas["unnamed"]
    assert set(schemas).isdisjoint({"internal_score", "permitted", "seen"})
    assert [s.predicate for s in PROFILE.schemas()] == sorted(s.predicate for s in PROFILE.schemas())


@pytest.mark.req("DATA-53")
def test_declarations_that_cannot_be_kept() -> None:
    text = """
    Decl a(X) descr [direction("in")].
    Decl b(X) descr [direction("input"), direction("both")].
    Decl c(X) descr [direction("input")].
    Decl camelCase(X) descr [direction("input")].
    Decl disclosure_upgrade(X) descr [direction("input")].
    Decl permitted(X) descr [direction("output")].
    Decl fine(X) descr [direction("both")].
    Decl inner(X).
    c(X) :- fine(X).
    fine(X) :- inner(X).
    """
    program = Program.load([Source("a.mg", text)])
    found = direction_problems(program.predicates, {"permitted"}, derived={("c", 1), ("fine", 1)})
    assert [(p.message, p.fix) for p in found] == [
        ("a: direction takes one string, once", 'one of "input", "output", "both"'),
        ("b: direction takes one string, once", 'one of "input", "output", "both"'),
        ("c: clients supply it, so that no rule can derive it", 'write direction("both")'),
        (
            "camelCase: a published name has lower-case letters, digits and underscores, at most 128",
            "give it another name",
        ),
        ("disclosure_upgrade: this predicate belongs to the protocol", "give yours another name"),
        ("permitted: a predicate of the kernel cannot be published", "leave its direction out"),
    ]
    assert all(p.span is not None for p in found)
    assert not direction_problems(PROGRAM.predicates, {"intent"})
    assert {s.predicate for s in Profile.of(program.predicates, {"permitted"}).schemas()} == {"b", "c", "fine"}
