"""Constants that no evaluation could read are errors of the analysis."""

import pytest

from manglecp.mangle import AnalysisError, Program, Source

BAD = "2027-13-04T00:00:00Z"


def errors(text: str) -> list[str]:
    try:
        Program.load([Source("a.mg", text)])
    except AnalysisError as error:
        return [f"{d.span.line}:{d.span.column} {d.message}" for d in error.diagnostics if d.span is not None]
    return []


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (f'p(1) :- fn:time:now() < fn:time:parse_rfc3339("{BAD}").', "1:25"),
        (f'p(1) :- X = "{BAD}", fn:time:now() < fn:time:parse_rfc3339(X).', "1:53"),
        (f'q(1). p(T) :- q(_) |> let T = fn:time:parse_rfc3339("{BAD}").', "1:31"),
        (f'q(1). p(fn:time:parse_rfc3339("{BAD}")) :- q(_).', "1:9"),
        ('q(1). p(T) :- q(_), T = fn:time:parse_civil("2027-02-30T00:00:00", "Europe/Berlin").', "1:25"),
        ('q(1). p(T) :- q(_), T = fn:time:parse_civil("2027-02-20T00:00:00", "Europe/Berln").', "1:25"),
        ('q(1). p(D) :- q(_), D = fn:duration:parse("5 days").', "1:25"),
        ('q("x"). p(X) :- q(X), :string:matches(X, "(a").', "1:23"),
        ('q("x"). p(X) :- q(X), !:string:matches(X, "[").', "1:23"),
        (f'q("{BAD}"). p(T) :- q(X), T = fn:time:parse_rfc3339(X).', "1:1"),
        (f'q(/a, "{BAD}"). p(T) :- q(/a, X), T = fn:time:parse_rfc3339(X).', "1:1"),
        (f'q("{BAD}"). r(1). p(T) :- r(_), q(X), T = fn:time:parse_rfc3339(X), r(_).', "1:1"),
        ('q("2027-13-04"). p(T) :- q(X), T = fn:time:parse_rfc3339(fn:string:concat(X, "T00:00:00Z")).', "1:1"),
    ],
)
def test_what_every_evaluation_would_refuse(text: str, place: str) -> None:
    (found,) = errors(text)
    assert found.startswith(place + " ")
    assert " takes " in found


@pytest.mark.parametrize(
    "text",
    [
        'q("2027-12-04T00:00:00Z"). p(T) :- q(X), T = fn:time:parse_rfc3339(X).',
        f'q(/a, "{BAD}"). p(T) :- q(/b, X), T = fn:time:parse_rfc3339(X).',
        f'q(/a, "{BAD}"). ok(/b). p(T) :- q(K, X), ok(K), T = fn:time:parse_rfc3339(X).',
        f'q("{BAD}"). ok("x"). p(T) :- q(X), ok(X), T = fn:time:parse_rfc3339(X).',
        "q(1). p(T) :- q(X), T = fn:time:parse_rfc3339(X).",
        'q("("). p(X) :- q(X), :string:contains(X, "(a").',
        "q(1). p(X) :- q(X), X = fn:div(1, 0).",
    ],
)
def test_what_may_never_be_read_is_accepted(text: str) -> None:
    assert errors(text) == []
