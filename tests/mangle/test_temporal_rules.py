"""What the analysis asks of time: annotations, operators, recursion (D12-D20)."""

from __future__ import annotations

import pytest

from tests.mangle.loading import complaints, facts, load, placed, refusal

E = "Decl e(X) temporal.\ne(/a)@[2026-01-01, 2026-01-10].\nn(/a). n(/b).\n"


def derived(rules: str) -> list[str]:
    """The facts of p."""
    return [fact for fact in facts(E + rules) if fact.startswith("p(")]


# --- which predicates are temporal -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "temporal"),
    [
        ("Decl p(X) temporal.", True),
        ("Decl p(X).", False),
        ("p(1)@[now].", True),
        ("p(1)@[2026-01-01, _].", True),
        ("p(1)@[_, now].", True),
        ("p(1)@[_, _].", False),  # eternal: says nothing
        ("p(1)@[_].", False),
        ("p(1).", False),
        ("p(X)@[T] :- q(X, T). q(1, fn:time:now()).", True),
    ],
)
def test_a_declaration_or_the_first_clause_decides(text: str, temporal: bool) -> None:
    assert load(text).predicates["p", 1].temporal is temporal


def test_the_first_clause_is_the_first_in_the_order_of_sources() -> None:
    plain, timed = "p(1).", "p(2)@[now]."
    assert complaints(plain, timed) == ["b.mg:1:5 p is not temporal and takes no annotation"]
    assert complaints(timed, plain) == ["b.mg:1:1 p is temporal: say when it holds"]


def test_an_eternal_annotation_is_tolerated_on_a_plain_predicate() -> None:
    assert facts("Decl p(X). p(1)@[_, _]. p(2). q(X)@[_] :- p(X). r(X) :- q(X).") == [
        "p(1)", "p(2)", "q(1)", "q(2)", "r(1)", "r(2)",
    ]  # fmt: skip


def test_a_temporal_fact_that_holds_always_is_printed_so() -> None:
    assert facts("Decl p(X) temporal. p(1)@[_, _].") == ["p(1)@[_, _]"]


# --- annotations where they are needed and where not -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("clause", "found"),
    [
        ("e(/b).", "4:1 e is temporal: say when it holds"),
        ("e(X) :- n(X).", "4:1 e is temporal: say when it holds"),
        ("p(X) :- e(X).", "4:9 e is temporal: say when"),
        ("p(N) :- e(X) |> do fn:group_by(), let N = fn:count().", "4:9 e is temporal: say when"),
        ("n(/c)@[now].", "4:6 n is not temporal and takes no annotation"),
        ("n(X)@[S, E] :- e(X)@[S, E].", "4:5 n is not temporal and takes no annotation"),
        ("p(X) :- n(X)@[now].", "4:9 n is not temporal: it holds always"),
        ("p(X) :- n(X)@[_, _].", "4:9 n is not temporal: it holds always"),
        ("p(X) :- <-[1d] n(X).", "4:9 n is not temporal: it holds always"),
        ("p(X) :- n(X), !n(X)@[now].", "4:15 n is not temporal: it holds always"),
        ("p(X) :- n(X), !<-[1d] n(X).", "4:15 n is not temporal: it holds always"),
        ("p(X) :- n(X), :match_prefix(X, /a)@[now].", "4:15 :match_prefix holds at no particular time"),
        ("p(X) :- <-[1d] nowhere(X).", "4:16 unknown predicate nowhere"),
        ("p(X) :- e(X, X)@[now].", "4:9 e takes 1 argument, not 2"),
    ],
)
def test_time_is_said_where_it_has_to_be(clause: str, found: str) -> None:
    assert complaints(E + clause) == [found]


def test_a_negated_temporal_predicate_needs_no_annotation() -> None:
    assert derived("p(X) :- n(X), !e(X).") == ["p(/b)"]


@pytest.mark.parametrize(
    ("negated", "found"),
    [
        ("!e(X)@[2026-01-05]", ["p(/b)"]),
        ("!e(X)@[2026-01-11]", ["p(/a)", "p(/b)"]),
        ("!e(X)@[now]", ["p(/a)", "p(/b)"]),
        ("!e(X)@[_, _]", ["p(/b)"]),
        ("!<-[7d] e(X)", ["p(/b)"]),
        ("!<-[1d] e(X)", ["p(/a)", "p(/b)"]),
        ("![-[7d, 10d] e(X)", ["p(/b)"]),
        ("!<+[7d] e(X)", ["p(/a)", "p(/b)"]),
    ],
)
def test_negated_annotations_and_operators_are_allowed(negated: str, found: list[str]) -> None:
    assert derived(f"p(X) :- n(X), {negated}.") == found


# --- bounds ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "clause",
    [
        "e(/b)@[7d].",
        "e(/b)@[2026-01-01, 1h].",
        "e(X)@[5m] :- n(X).",
        "p(X) :- e(X)@[5ms].",
        "p(X) :- n(X), !e(X)@[5s, now].",
    ],
)
def test_a_duration_is_no_instant(clause: str) -> None:
    (diagnostic,) = refusal(E + clause)
    assert diagnostic.message.endswith("is a duration, an annotation needs instants")
    assert diagnostic.fix == "durations belong into operators such as <-[5m]"


def test_both_ends_are_looked_at() -> None:
    assert complaints(f"{E}e(/b)@[1d, 2d].") == [
        "4:8 1d is a duration, an annotation needs instants",
        "4:12 2d is a duration, an annotation needs instants",
    ]


@pytest.mark.parametrize(
    ("clause", "found"),
    [
        ("e(/b)@[T].", "4:8 a fact has no variables, found T"),
        ("e(/b)@[S, _].", "4:8 a fact has no variables, found S"),
        ("e(X)@[T] :- n(X).", "4:7 T in the head is bound by no premise"),
        ("e(X)@[now, T] :- n(X).", "4:12 T in the head is bound by no premise"),
        ("p(X) :- <-[D] e(X).", "4:12 D is bound by no premise that could run before <-[D] e(X)"),
        ("p(X) :- <-[0s, D] e(X)@[D, _].", "4:16 D is bound by no premise that could run before <-[0s, D] e(X)@[D, _]"),
        ("p(X) :- <-[0s, _] e(X).", "4:16 <-[0s, _] e(X) needs a value where _ stands"),
        ("p(X) :- n(X), !e(X)@[T].", "4:22 T is bound nowhere outside the negation !e(X)@[T]"),
    ],
)
def test_free_variables_in_bounds(clause: str, found: str) -> None:
    assert complaints(E + clause) == [found]


def test_an_operator_bound_may_come_from_another_premise() -> None:
    text = 'window(fn:duration:parse("168h")). p(X) :- <-[D] e(X), window(D).'
    assert derived(text) == ["p(/a)"]


def test_a_let_variable_may_be_an_end_of_the_head() -> None:
    rules = 'p(X)@[S, T] :- e(X)@[S, _] |> let T = fn:time:add(S, fn:duration:parse("1h")).'
    assert derived(f"Decl p(X) temporal. {rules}") == ["p(/a)@[2026-01-01T00:00:00Z, 2026-01-01T01:00:00Z]"]


def test_a_grouped_variable_may_be_an_end_of_the_head() -> None:
    decl = "Decl p(N) temporal. "
    assert derived(f"{decl}p(N)@[S] :- e(X)@[S, _] |> do fn:group_by(S), let N = fn:count().") == [
        "p(1)@[2026-01-01T00:00:00Z]"
    ]
    assert complaints(f"{E}{decl}p(N)@[S] :- e(X)@[S, _] |> do fn:group_by(), let N = fn:count().") == [
        "4:27 S is neither grouped by nor computed"
    ]


def test_an_inverted_head_is_skipped_and_an_inverted_fact_is_not() -> None:
    assert derived("Decl p(X) temporal. p(X)@[F, S] :- e(X)@[S, F].") == []
    assert complaints("e(/a)@[2026-02-01, 2026-01-01].", stage="eval") == ["1:6 the interval ends before it starts"]


@pytest.mark.parametrize(
    ("rule", "found"),
    [
        ("p(X)@[T] :- n(X), T = 5.", "4:27 T is /number, an interval is between times"),
        ('p(X)@[now, T] :- n(X), T = "s".', "4:32 T is /string, an interval is between times"),
        ("p(X)@[X] :- n(X).", "4:27 X is /name, an interval is between times"),
    ],
)
def test_the_ends_of_a_head_are_times(rule: str, found: str) -> None:
    assert complaints(f"{E}Decl p(X) temporal. {rule}") == [found]


@pytest.mark.parametrize(
    ("rule", "found"),
    [
        ("p(X) :- n(T), e(X)@[T].", "4:21 T is /name, e(X)@[T] wants /time"),
        ("p(X) :- k(T), e(X)@[_, T].", "4:24 T is /number, e(X)@[_, T] wants /time"),
        ("p(X) :- k(D), <-[D] e(X).", "4:18 D is /number, <-[D] e(X) wants /time or /duration"),
        ("p(X) :- k(D), n(X), !e(X)@[D].", "4:28 D is /number, !e(X)@[D] wants /time"),
    ],
)
def test_the_ends_of_a_premise_are_times(rule: str, found: str) -> None:
    assert complaints(f"{E}{rule}\nk(5).") == [found]


# --- recursion -------------------------------------------------------------------------------------------------------


def test_mutual_recursion_through_time_is_refused() -> None:
    text = "Decl r(X) temporal.\nDecl s(X) temporal.\nr(X)@[T] :- s(X)@[T].\ns(X)@[T] :- r(X)@[T].\n"
    (diagnostic,) = refusal(text)
    assert placed(diagnostic) == "3:1 mutual recursion through temporal predicates: r -> s -> r"
    assert diagnostic.fix == "fold the predicates into one, or break the cycle"


@pytest.mark.parametrize(
    "rules",
    [
        "r(X)@[now] :- s(X).\ns(X) :- r(X)@[now].",  # one of them temporal suffices
        "r(X)@[now] :- s(X).\ns(X) :- <-[1d] r(X).",
        "r(X)@[now] :- n(X), !s(X).\ns(X) :- r(X)@[now].",
        "r(X)@[now] :- s(X), r(X)@[now].\ns(X) :- r(X)@[now].",
        "r(X)@[now] :- s(X).\ns(X) :- r(X)@[now] |> let Y = fn:plus(1, 1).",
    ],
)
def test_also_with_plain_predicates_on_the_way(rules: str) -> None:
    assert complaints(f"{E}Decl r(X) temporal.\n{rules}") == [
        "5:1 mutual recursion through temporal predicates: r -> s -> r"
    ]


def test_every_such_component_is_reported() -> None:
    decls = "Decl a(X) temporal. Decl b(X) temporal. Decl c(X) temporal. Decl d(X) temporal.\n"
    rules = "a(X)@[T] :- b(X)@[T].\nb(X)@[T] :- a(X)@[T].\nc(X)@[T] :- d(X)@[T].\nd(X)@[T] :- c(X)@[T]."
    assert complaints(decls + rules) == [
        "2:1 mutual recursion through temporal predicates: a -> b -> a",
        "4:1 mutual recursion through temporal predicates: c -> d -> c",
    ]


def test_self_recursion_is_a_warning() -> None:
    program = load(f"{E}Decl r(X) temporal.\nr(X)@[T] :- e(X)@[T, _].\nr(X)@[T] :- r(X)@[T].")
    (warning,) = program.warnings
    assert warning.severity == "warning"
    assert placed(warning) == "6:1 r is recursive through time; only the limits bound the number of its intervals"
    assert warning.render().startswith("warning[analysis]: a.mg:6:1: ")


def test_plain_recursion_warns_of_nothing() -> None:
    assert load(f"{E}r(X) :- e(X)@[now]. r(X) :- r(X), n(X).").warnings == ()
    assert load(E).warnings == ()


@pytest.mark.parametrize("operator", ["<+[1d]", "[+[0s, 1d]"])
def test_nothing_depends_on_its_own_future(operator: str) -> None:
    (diagnostic,) = refusal(f"{E}Decl r(X) temporal.\nr(X)@[now] :- e(X)@[_, _], {operator} r(X).")
    assert placed(diagnostic) == "5:28 r depends on its own future"
    assert diagnostic.fix == "look back in time instead"


@pytest.mark.parametrize("operator", ["<-[1d]", "[-[0s, 1d]"])
def test_the_own_past_is_only_a_warning(operator: str) -> None:
    assert len(load(f"{E}Decl r(X) temporal.\nr(X)@[now] :- e(X)@[_, _], {operator} r(X).").warnings) == 1


def test_the_future_of_another_predicate_may_be_asked() -> None:
    assert load(f"{E}Decl r(X) temporal.\nr(X)@[now] :- <+[1d] e(X).").warnings == ()


def test_a_negated_future_of_itself() -> None:
    """Both are wrong; the recursion through time is found first."""
    (diagnostic,) = refusal(f"{E}Decl r(X) temporal.\nr(X)@[now] :- n(X), !<+[1d] r(X).")
    assert placed(diagnostic) == "5:21 r depends on its own future"
