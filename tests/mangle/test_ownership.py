"""Who may add to a predicate: less trusted sources never to what a more trusted one owns (OPEN-74)."""

from __future__ import annotations

from itertools import permutations

import pytest

from manglecp.base.source import Source, Trust
from manglecp.mangle import AnalysisError, Program
from tests.mangle.loading import load, placed, refusal

KERNEL, SCHEMA, POLICY, DOMAIN = Trust.KERNEL, Trust.SCHEMA, Trust.POLICY, Trust.DOMAIN


def source(trust: Trust, text: str) -> Source:
    return Source(f"{trust.label}.mg", text, trust)


def test_a_declaration_alone_gives_no_ownership() -> None:
    for declaring in Trust:
        load(source(declaring, "Decl p(X)."), source(DOMAIN, "p(1)."))


def test_the_most_trusted_level_with_a_clause_owns_a_predicate() -> None:
    (diagnostic,) = refusal(source(DOMAIN, "\np(2)."), source(POLICY, "\n\np(1)."))
    assert placed(diagnostic) == (
        "domain.mg:2:1 p belongs to policy (see policy.mg:3), a domain source may not add to it"
    )
    assert diagnostic.fix == "move the clause to that level, or derive another predicate"
    assert diagnostic.clause == "p(2)."


@pytest.mark.parametrize("own", ["p(1).", "p(X) :- q(X)."])
@pytest.mark.parametrize("added", ["p(2).", "p(X) :- q(X).", "p(N) :- q(X) |> do fn:group_by(), let N = fn:count()."])
def test_facts_count_as_clauses(own: str, added: str) -> None:
    facts = source(SCHEMA, "q(1).")
    (diagnostic,) = refusal(facts, source(POLICY, own), source(DOMAIN, added))
    assert diagnostic.message.startswith("p belongs to policy")


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_the_order_of_sources_does_not_matter(order: tuple[int, ...]) -> None:
    texts = [source(DOMAIN, "p(3). p(4)."), source(POLICY, "p(2)."), source(SCHEMA, "p(1).")]
    found = [d.message for d in refusal(*(texts[i] for i in order))]
    assert sorted(found) == [
        "p belongs to schema (see schema.mg:1), a domain source may not add to it",
        "p belongs to schema (see schema.mg:1), a domain source may not add to it",
        "p belongs to schema (see schema.mg:1), a policy source may not add to it",
    ]


def test_one_level_may_define_a_predicate_in_several_files() -> None:
    load(Source("a.mg", "p(1).", POLICY), Source("b.mg", "p(2).", POLICY))


def test_to_read_is_always_allowed() -> None:
    load(source(POLICY, "secret(1)."), source(DOMAIN, "p(X) :- secret(X), !secret(2)."))


# --- the kernel's table ----------------------------------------------------------------------------------------------


def test_the_table_gives_a_predicate_to_a_level_that_has_no_clause_for_it() -> None:
    owners = {"prohibited": POLICY}
    (diagnostic,) = refusal(source(DOMAIN, "prohibited(1)."), owners=owners)
    assert diagnostic.message == "prohibited belongs to policy, a domain source may not add to it"
    load(source(POLICY, "prohibited(1)."), owners=owners)


def test_the_place_of_the_owner_is_named_where_there_is_one() -> None:
    (diagnostic,) = refusal(
        source(DOMAIN, "prohibited(1)."), source(POLICY, "prohibited(2)."), owners={"prohibited": POLICY}
    )
    assert diagnostic.message == "prohibited belongs to policy (see policy.mg:1), a domain source may not add to it"


def test_a_more_trusted_level_may_always_add() -> None:
    owners = {"relevant": DOMAIN}
    load(*(source(level, "relevant(1).") for level in Trust), owners=owners)
    load(source(KERNEL, "prohibited(1)."), source(POLICY, "prohibited(2)."), owners={"prohibited": POLICY})


def test_the_table_wins_over_the_descriptor_and_the_clauses() -> None:
    decl = source(POLICY, 'Decl relevant(X) descr [owner("policy")]. relevant(0).')
    load(decl, source(DOMAIN, "relevant(1)."), owners={"relevant": DOMAIN})
    claim = source(DOMAIN, 'Decl prohibited(X) descr [owner("domain")]. prohibited(1).')
    declared, stated = refusal(claim, owners={"prohibited": POLICY})
    assert declared.message == "prohibited belongs to policy, a domain Decl may not have owner"
    assert stated.message == "prohibited belongs to policy, a domain source may not add to it"


def test_what_the_kernel_derives_is_closed_to_everyone() -> None:
    owners = {"candidate": KERNEL}
    for level in (SCHEMA, POLICY, DOMAIN):
        (diagnostic,) = refusal(source(level, "candidate(1)."), owners=owners)
        assert diagnostic.message == f"candidate belongs to kernel, a {level.label} source may not add to it"
    load(source(KERNEL, "candidate(1)."), owners=owners)


def test_the_table_holds_for_every_arity() -> None:
    found = refusal(source(DOMAIN, "Decl p(X). Decl p(X, Y). p(1). p(1, 2)."), owners={"p": POLICY})
    assert len(found) == 2


# --- the descriptor --------------------------------------------------------------------------------------------------


def test_a_descriptor_gives_a_predicate_away() -> None:
    decl = 'Decl p(X) descr [owner("policy")].'
    (diagnostic,) = refusal(source(SCHEMA, f"\n{decl}"), source(DOMAIN, "p(1)."))
    assert diagnostic.message == "p belongs to policy (see schema.mg:2), a domain source may not add to it"
    load(source(SCHEMA, decl), source(POLICY, "p(1)."))


def test_a_descriptor_opens_a_predicate_to_a_less_trusted_level() -> None:
    load(source(POLICY, 'Decl p(X) descr [owner("domain")]. p(1).'), source(DOMAIN, "p(2)."))


def test_a_descriptor_binds_its_own_source_too() -> None:
    (diagnostic,) = refusal(source(DOMAIN, 'Decl p(X) descr [owner("policy")].\np(1).'))
    assert (
        placed(diagnostic) == "domain.mg:2:1 p belongs to policy (see domain.mg:1), a domain source may not add to it"
    )


@pytest.mark.parametrize("level", list(Trust))
def test_every_level_has_a_name(level: Trust) -> None:
    decl = source(KERNEL, f'Decl p(X) descr [owner("{level.label}")].')
    for adding in Trust:
        if adding <= level:
            load(decl, source(adding, "p(1)."))
        else:
            assert len(refusal(decl, source(adding, "p(1)."))) == 1


# --- together with packages and other errors -------------------------------------------------------------------------


def test_ownership_goes_by_the_full_name() -> None:
    load(source(POLICY, "Package law!\np(1)."), source(DOMAIN, "Package shop!\np(1)."))
    (diagnostic,) = refusal(source(POLICY, "Package law!\np(1)."), source(DOMAIN, "Package law!\np(2)."))
    assert diagnostic.message == "law.p belongs to policy (see policy.mg:2), a domain source may not add to it"
    (diagnostic,) = refusal(source(DOMAIN, "law.p(2)."), source(POLICY, "Package law!\np(1)."))
    assert diagnostic.message.startswith("law.p belongs to policy")


def test_the_merge_predicate_of_a_policy_is_protected_like_any_other() -> None:
    policy = """
        Decl best(K, V) descr [fundep([K], [V]), merge([V], "pick")].
        Decl pick(A, B, C) descr [mode("+", "+", "-"), deferred()].
        pick(A, B, C) :- A < B, C = B.
    """
    (diagnostic,) = refusal(source(POLICY, policy), source(DOMAIN, "pick(A, B, C) :- C = 0, A != B."))
    assert diagnostic.message.startswith("pick belongs to policy")


def test_other_errors_are_reported_beside_it() -> None:
    found = [placed(d) for d in refusal(source(POLICY, "p(1)."), source(DOMAIN, "p(X) :- q(X).\nr(X).\np(2)."))]
    assert found == [
        "domain.mg:1:1 p belongs to policy (see policy.mg:1), a domain source may not add to it",
        "domain.mg:1:9 unknown predicate q",
        "domain.mg:2:3 a fact has no variables, found X",
        "domain.mg:3:1 p belongs to policy (see policy.mg:1), a domain source may not add to it",
    ]


@pytest.mark.parametrize("descriptor", ['owner("domain")', "reflects(/a)", 'deferred(), mode("+")', "extensional()"])
def test_a_less_trusted_declaration_cannot_change_what_a_clause_means(descriptor: str) -> None:
    policy = Source("policy.mg", "blocked(/a).", Trust.POLICY)
    domain = Source("domain.mg", f"Decl blocked(X) descr [{descriptor}].", Trust.DOMAIN)
    with pytest.raises(AnalysisError, match="belongs to policy, a domain Decl may not have"):
        Program.load([policy, domain])


def test_a_less_trusted_declaration_may_describe() -> None:
    policy = Source("policy.mg", "blocked(/a).", Trust.POLICY)
    domain = Source("domain.mg", 'Decl blocked(X) descr [doc("who may not")] bound [/name].', Trust.DOMAIN)
    Program.load([policy, domain])
