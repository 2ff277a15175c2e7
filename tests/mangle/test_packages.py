"""Packages: who is called what, and who may be asked by whom."""

from __future__ import annotations

import pytest

from tests.mangle.loading import complaints, facts, load, refusal


def test_everything_declared_and_defined_is_prefixed() -> None:
    text = """
        Package zoo.birds!
        Decl bird(B) bound [/name].
        Decl extinct(B) bound [/name].
        bird(/owl).
        flies(X) :- bird(X), !extinct(X).
    """
    assert facts(text) == ["zoo.birds.bird(/owl)", "zoo.birds.flies(/owl)"]


def test_every_kind_of_premise_is_prefixed() -> None:
    text = """
        Package zoo!
        Decl seen(B) temporal.
        seen(/owl)@[2026-01-01, now].
        bird(/owl).
        plain(X) :- bird(X).
        negated(X) :- bird(X), !plain(X).
        annotated(X) :- seen(X)@[now].
        operator(X) :- <-[1d] seen(X).
        negated_operator(X) :- bird(X), !<-[1d] seen(X).
        counted(N) :- bird(X) |> do fn:group_by(), let N = fn:count().
    """
    assert facts(text) == [
        "zoo.annotated(/owl)",
        "zoo.bird(/owl)",
        "zoo.counted(1)",
        "zoo.operator(/owl)",
        "zoo.plain(/owl)",
        "zoo.seen(/owl)@[2026-01-01T00:00:00Z, 2026-01-15T12:00:00Z]",
    ]


def test_built_ins_belong_to_no_package() -> None:
    assert facts("Package zoo!\nn(1).\n:lt(1, 2).\np(X) :- n(X), :lt(X, 2), X < 3.") == [
        ":lt(1,2)",
        "zoo.n(1)",
        "zoo.p(1)",
    ]


def test_units_of_one_package_see_each_other() -> None:
    assert facts("Package zoo!\nbird(/owl).", "Package zoo!\nflies(X) :- bird(X).") == [
        "zoo.bird(/owl)",
        "zoo.flies(/owl)",
    ]


def test_the_order_of_units_does_not_matter() -> None:
    one, two = "Package zoo!\nflies(X) :- bird(X).", "Package zoo!\nbird(/owl)."
    assert facts(one, two) == facts(two, one)


def test_another_package_is_named_in_full_and_used() -> None:
    assert facts("Package zoo!\nUse farm!\nhungry(X) :- farm.cow(X).", "Package farm!\ncow(/bella).") == [
        "farm.cow(/bella)",
        "zoo.hungry(/bella)",
    ]


def test_a_missing_use_is_reported_at_every_mention() -> None:
    text = """\
        Package zoo!
        Decl fed(X) inclusion [farm.cow(X)].
        p(X) :- farm.cow(X).
        q(X) :- p(X), !farm.pig(X).
        r(X) :- <-[1d] farm.seen(X).
    """
    found = complaints(text, "Package farm!\nDecl seen(X) temporal.\ncow(/bella).\npig(/babe).")
    assert found == [
        "2:24 farm.cow belongs to package farm, which is not used here",
        "3:9 farm.cow belongs to package farm, which is not used here",
        "4:16 farm.pig belongs to package farm, which is not used here",
        "5:16 farm.seen belongs to package farm, which is not used here",
    ]


def test_a_missing_use_says_what_to_write() -> None:
    (diagnostic,) = refusal("Package zoo!\np(X) :- farm.cow(X).", "Package farm!\ncow(/bella).")
    assert diagnostic.fix == "write Use farm! behind the Package line"
    assert diagnostic.clause == "p(X) :- farm.cow(X)."


def test_using_a_package_that_is_not_loaded_is_fine_until_it_is_asked() -> None:
    assert facts("Package zoo!\nUse farm [optional()]!\nowl(1).") == ["zoo.owl(1)"]
    assert complaints("Package zoo!\nUse farm!\np(X) :- farm.cow(X).") == ["3:9 unknown predicate farm.cow"]


def test_a_package_does_not_use_itself() -> None:
    (diagnostic,) = refusal("Package zoo!\nUse zoo!\nowl(1).")
    assert (diagnostic.message, diagnostic.fix) == ("package zoo uses itself", "remove the Use line")


def test_a_predicate_of_the_package_may_be_named_in_full() -> None:
    assert facts(
        "Package zoo!\nowl(1).\nnight.owl(2).\np(X) :- zoo.owl(X).\nq(X) :- zoo.night.owl(X), night.owl(X)."
    ) == [
        "zoo.night.owl(2)",
        "zoo.owl(1)",
        "zoo.p(1)",
        "zoo.q(2)",
    ]


def test_a_package_below_another_is_a_package_of_its_own() -> None:
    assert complaints("Package zoo!\np(X) :- zoo.birds.owl(X).", "Package zoo.birds!\nowl(1).") == [
        "2:9 zoo.birds.owl belongs to package zoo.birds, which is not used here"
    ]


def test_an_undotted_foreign_name_is_left_as_it_is() -> None:
    assert facts("Package zoo!\np(X) :- n(X).", "n(1).") == ["n(1)", "zoo.p(1)"]


def test_the_own_predicate_comes_before_a_foreign_one_of_the_same_name() -> None:
    assert facts("Package zoo!\nn(2).\np(X) :- n(X).", "n(1).") == ["n(1)", "zoo.n(2)", "zoo.p(2)"]


def test_name_and_arity_decide_whether_a_predicate_is_the_own_one() -> None:
    assert facts("Package zoo!\nn(2, 2).\np(X) :- n(X).", "n(1).") == ["n(1)", "zoo.n(2,2)", "zoo.p(1)"]


def test_without_package_a_dotted_name_is_just_a_name() -> None:
    assert facts("lib.q(1).\np(X) :- lib.q(X).") == ["lib.q(1)", "p(1)"]
    assert facts("p(X) :- zoo.owl(X).", "Package zoo!\nowl(1).") == ["p(1)", "zoo.owl(1)"]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_the_merge_predicate_is_looked_for_in_the_own_package_first(order: tuple[int, int]) -> None:
    best = 'Decl best(K, V) descr [fundep([K], [V]), merge([V], "pick")] bound [/name, /number].'
    pick = 'Decl pick(A, B, C) descr [mode("+", "+", "-"), deferred()] bound [/number, /number, /number].'
    zoo = f"Package zoo!\n{best}\n{pick}\nbest(/a, 1).\nbest(/a, 2).\npick(A, B, C) :- A < B, C = B."
    other = f"{pick}\npick(A, B, C) :- A < B, C = A."
    texts = [zoo, other]
    assert facts(*(texts[i] for i in order)) == ["zoo.best(/a,2)"]
    without = zoo.replace(pick, "").replace("pick(A, B, C) :- A < B, C = B.", "")
    assert facts(*([without, other][i] for i in order)) == ["zoo.best(/a,1)"]


def test_a_missing_merge_predicate_is_reported() -> None:
    text = 'Package zoo!\nDecl best(K, V) descr [fundep([K], [V]), merge([V], "pick")].\nbest(/a, 1).\npick(1, 2).'
    (diagnostic,) = refusal(text)
    assert diagnostic.message == "merge predicate pick with three arguments does not exist"
    assert diagnostic.fix == "define pick(Old, New, Merged)"
    assert diagnostic.span is not None
    assert diagnostic.span.text == 'merge([V], "pick")'


# --- private ---------------------------------------------------------------------------------------------------------

PRIVATE = "Package zoo!\nDecl secret(X) descr [private()].\nsecret(1).\npublic(X) :- secret(X).\n"


def test_a_private_predicate_is_visible_in_its_package() -> None:
    assert facts(PRIVATE, "Package zoo!\nalso(X) :- secret(X).") == ["zoo.also(1)", "zoo.public(1)", "zoo.secret(1)"]


@pytest.mark.parametrize("premise", ["zoo.secret(X)", "zoo.public(X), !zoo.secret(X)", "zoo.public(X), zoo.secret(_)"])
@pytest.mark.parametrize("package", ["Package farm!\nUse zoo!\n", "", "Package zoo.birds!\nUse zoo!\n"])
def test_a_private_predicate_is_visible_nowhere_else(package: str, premise: str) -> None:
    (diagnostic,) = refusal(PRIVATE, f"{package}p(X) :- {premise}.")
    assert diagnostic.message == "zoo.secret is private to package zoo"


def test_an_annotated_premise_sees_no_private_predicate_either() -> None:
    seen = "Package zoo!\nDecl seen(X) temporal descr [private()].\nseen(1)@[now].\n"
    assert complaints(seen, "p(X) :- zoo.seen(X)@[now].") == ["b.mg:1:9 zoo.seen is private to package zoo"]


def test_private_without_a_package() -> None:
    found = complaints("Decl secret(X) descr [private()].\nsecret(1).", "Package zoo!\np(X) :- secret(X).")
    assert found == ["b.mg:2:9 secret is private to the units without a package"]


# --- what a person sees ----------------------------------------------------------------------------------------------


def test_the_nearest_predicate_is_looked_for_in_the_own_package() -> None:
    (diagnostic,) = refusal("Package zoo.birds!\nbird(1).\np(X) :- brid(X).")
    assert diagnostic.fix == "did you mean bird?"


def test_the_nearest_predicate_of_a_used_package() -> None:
    (diagnostic,) = refusal("Package zoo!\nUse farm!\np(X) :- farm.cwo(X).", "Package farm!\ncow(1).")
    assert diagnostic.fix == "did you mean farm.cow?"


def test_a_wrong_number_of_arguments_is_reported_as_such() -> None:
    assert complaints("Package zoo!\nbird(1).\np(X) :- bird(X, X).") == ["3:9 bird takes 1 argument, not 2"]


def test_inclusions_are_prefixed() -> None:
    program = load("Package zoo!\nDecl flies(X) inclusion [bird(X)].\nbird(1).\nflies(1).")
    (atom,) = program.predicates["zoo.flies", 1].inclusion
    assert atom.predicate == "zoo.bird"
