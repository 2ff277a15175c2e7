# expect: ok
# Texts, kinds, positions and paths of call arguments, as a policy reads them.
Decl arg(N, V) bound [/string, /any].
arg("segs", [["a" : 1], ["a" : 2]]).
arg("n", 5). arg("f", 1.5). arg("s", "He is ILL, Straße"). arg("z", /null). arg("m", ["k" : ["l", [1, "deep"]]]).
first(X) :- arg("segs", L), :is_list(L), X = fn:list:get(L, 0).
big(N) :- arg(N, V), :is_number(V), V > 3.
notnum(N) :- arg(N, V), !:is_number(V).
null(N) :- arg(N, V), :is_null(V).
pos(I, V) :- arg("segs", L), :list:enumerate(L, I, E), :match_entry(E, "a", V).
idx(V) :- arg("segs", L), :match_index(L, 1, V).
none(V) :- arg("segs", L), :match_index(L, 7, V).
deep(V) :- arg("m", M), :match_path(M, ["k", 1, 1], V).
ill(N) :- arg(N, V), :string:has_word(V, "ill").
re(N) :- arg(N, V), :string:matches(V, "(?i)stra.e$").
up(U, L, N, P) :- arg("s", V), :is_string(V), U = fn:string:upper(V), L = fn:string:lower(V), N = fn:string:len(V), P = fn:string:split(V, ", ").
