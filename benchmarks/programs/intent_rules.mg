Decl utterance(U) bound [/name].
Decl token(U, I, W) bound [/name, /number, /string].
Decl ctx_file(F, Path, Size, Churn) bound [/name, /string, /number, /number].
Decl lang_of(F, L) bound [/name, /name].
Decl test_result(T, F, S) bound [/name, /name, /name].
Decl config(K, V) bound [/string, /number].
Decl user_role(U, R) bound [/name, /name].
Decl permission(R, P) bound [/name, /name].
Decl recent_action(A, N) bound [/name, /number].
Decl symbol(S, F, K, L) bound [/name, /name, /name, /number].
Decl calls(A, B) bound [/name, /name].
Decl filemeta(F, Path, Size) bound [/name, /string, /number].
lex(I, /fix, 5) :- token(_, I, W), W = "fix".
lex(I, /fix, 4) :- token(_, I, W), W = "repair".
lex(I, /fix, 3) :- token(_, I, W), W = "bug".
lex(I, /fix, 5) :- token(_, I, W), W = "failing".
lex(I, /test, 5) :- token(_, I, W), W = "test".
lex(I, /test, 4) :- token(_, I, W), W = "tests".
lex(I, /test, 3) :- token(_, I, W), W = "verify".
lex(I, /refactor, 5) :- token(_, I, W), W = "refactor".
lex(I, /refactor, 4) :- token(_, I, W), W = "rename".
lex(I, /explain, 5) :- token(_, I, W), W = "explain".
lex(I, /explain, 4) :- token(_, I, W), W = "why".
lex(I, /explain, 3) :- token(_, I, W), W = "how".
lex(I, /create, 5) :- token(_, I, W), W = "add".
lex(I, /create, 4) :- token(_, I, W), W = "create".
lex(I, /urgent, 5) :- token(_, I, W), W = "quickly".
lex(I, /file_ref, 4) :- token(_, I, W), :string:ends_with(W, ".go").
lex(I, /file_ref, 4) :- token(_, I, W), :string:ends_with(W, ".py").
lex(I, /file_ref, 4) :- token(_, I, W), :string:ends_with(W, ".ts").
mentions_area(I, /auth) :- token(_, I, W), :string:contains(W, "auth").
mentions_area(I, /db) :- token(_, I, W), :string:contains(W, "db").
mentions_area(I, /ui) :- token(_, I, W), :string:contains(W, "ui").
mentions_area(I, /net) :- token(_, I, W), :string:contains(W, "net").
mentions_area(I, /core) :- token(_, I, W), :string:contains(W, "core").
mentions_area(I, /cli) :- token(_, I, W), :string:contains(W, "cli").
area_of(F, /auth) :- ctx_file(F, P, _, _), :string:contains(P, "/auth/").
area_of(F, /db) :- ctx_file(F, P, _, _), :string:contains(P, "/db/").
area_of(F, /ui) :- ctx_file(F, P, _, _), :string:contains(P, "/ui/").
area_of(F, /net) :- ctx_file(F, P, _, _), :string:contains(P, "/net/").
area_of(F, /core) :- ctx_file(F, P, _, _), :string:contains(P, "/core/").
area_of(F, /cli) :- ctx_file(F, P, _, _), :string:contains(P, "/cli/").
size_class(F, /small) :- ctx_file(F, _, S, _), S < 1000.
size_class(F, /medium) :- ctx_file(F, _, S, _), S >= 1000, S < 5000.
size_class(F, /large) :- ctx_file(F, _, S, _), S >= 5000.
churn_class(F, /cold) :- ctx_file(F, _, _, C), C <= 3.
churn_class(F, /warm) :- ctx_file(F, _, _, C), C > 3, C <= 10.
churn_class(F, /hot) :- ctx_file(F, _, _, C), config("hot_churn", H), C > H.
near(I, J) :- token(U, I, _), token(U, J, _), I < J, D = fn:minus(J, I), D < 3.
has_test(F) :- test_result(_, F, _).
failing(F) :- test_result(_, F, /fail).
granted(U, P) :- user_role(U, R), permission(R, P).
big_filemeta(F) :- filemeta(F, _, S), S > 99900.
known_token(I) :- lex(I, _, _).
known_token(I) :- mentions_area(I, _).
unknown_token(U, I) :- token(U, I, _), !known_token(I).
signal(/bugfix, I, W) :- lex(I, /fix, W).
signal(/bugfix, I, W) :- lex(I, /fix, W1), lex(J, /test, W2), near(I, J), W = fn:plus(W1, W2).
signal(/testing, I, W) :- lex(I, /test, W).
signal(/testing, I, W) :- lex(I, /test, W1), lex(J, /file_ref, W2), near(I, J), W = fn:plus(W1, W2).
signal(/refactoring, I, W) :- lex(I, /refactor, W).
signal(/refactoring, I, W) :- lex(I, /refactor, W1), lex(J, /file_ref, W2), near(I, J), W = fn:plus(W1, W2).
signal(/question, I, W) :- lex(I, /explain, W).
signal(/question, I, W) :- lex(I, /explain, W1), lex(J, /test, W2), near(I, J), W = fn:plus(W1, W2).
signal(/feature, I, W) :- lex(I, /create, W).
signal(/feature, I, W) :- lex(I, /create, W1), lex(J, /file_ref, W2), near(I, J), W = fn:plus(W1, W2).
signal(/bugfix, I, 1) :- mentions_area(I, _), lex(J, /fix, _), near(J, I).
signal(/testing, I, 1) :- mentions_area(I, _), lex(J, /test, _), near(J, I).
signal(/refactoring, I, 1) :- mentions_area(I, _), lex(J, /refactor, _), near(J, I).
untested(F) :- lang_of(F, _), !has_test(F).
risky(F) :- size_class(F, /large), churn_class(F, /hot).
risky(F) :- churn_class(F, C), C != /cold, failing(F).
safe(F) :- lang_of(F, _), !risky(F), !failing(F).
test_cmd(F, "go test") :- lang_of(F, /go), has_test(F).
test_cmd(F, "pytest") :- lang_of(F, /py), has_test(F).
test_cmd(F, "jest") :- lang_of(F, /ts), has_test(F).
same_area(F, G) :- area_of(F, A), area_of(G, A), F != G.
intent_score(It, S) :- signal(It, _, W) |> do fn:group_by(It), let S = fn:sum(W).
intent_hits(It, N) :- signal(It, _, _) |> do fn:group_by(It), let N = fn:count().
area_files(A, N) :- area_of(F, A) |> do fn:group_by(A), let N = fn:count().
area_size(A, S) :- area_of(F, A), ctx_file(F, _, Z, _) |> do fn:group_by(A), let S = fn:sum(Z).
fail_count(N) :- failing(F) |> do fn:group_by(), let N = fn:count().
unknown_count(U, N) :- unknown_token(U, I) |> do fn:group_by(U), let N = fn:count().
max_score(M) :- intent_score(_, S) |> do fn:group_by(), let M = fn:max(S).
candidate(It) :- intent_score(It, S), config("min_score", T), S >= T.
beaten(It) :- intent_score(It, S), max_score(M), S < M.
top_intent(It) :- candidate(It), !beaten(It).
secondary_intent(It) :- candidate(It), beaten(It).
focus_area(A) :- mentions_area(_, A).
focus_area(A) :- failing(F), area_of(F, A), area_files(A, N), N > 1.
target_file(F) :- token(_, _, W), ctx_file(F, P, _, _), lex(I, /file_ref, _), token(_, I, W2), W = W2, :string:contains(P, W).
target_file(F) :- focus_area(A), area_of(F, A), !safe(F).
related_file(G) :- target_file(F), same_area(F, G), !untested(G).
confident() :- max_score(M), M > 8.
ambiguous() :- unknown_count(_, N), N > 6.
file_symbol(F, S) :- target_file(F), symbol(S, F, _, _).
impacted(S) :- file_symbol(_, S0), calls(S, S0).
impacted2(S) :- impacted(S0), calls(S, S0).
plan(/read_file, F, 0) :- top_intent(/bugfix), target_file(F).
plan(/run_tests, F, 1) :- top_intent(/bugfix), target_file(F).
plan(/edit_file, F, 2) :- top_intent(/bugfix), target_file(F).
plan(/verify, F, 3) :- top_intent(/bugfix), target_file(F).
plan(/run_tests, F, 0) :- top_intent(/testing), target_file(F).
plan(/report, F, 1) :- top_intent(/testing), target_file(F).
plan(/read_file, F, 0) :- top_intent(/refactoring), target_file(F).
plan(/edit_file, F, 1) :- top_intent(/refactoring), target_file(F).
plan(/verify, F, 2) :- top_intent(/refactoring), target_file(F).
plan(/read_file, F, 0) :- top_intent(/question), target_file(F).
plan(/explain, F, 1) :- top_intent(/question), target_file(F).
plan(/edit_file, F, 0) :- top_intent(/feature), target_file(F).
plan(/write_test, F, 1) :- top_intent(/feature), target_file(F).
plan(/read_file, F, 9) :- secondary_intent(_), related_file(F).
needs(/read_file, /read) :- utterance(_).
needs(/run_tests, /run) :- utterance(_).
needs(/edit_file, /edit) :- utterance(_).
needs(/verify, /run) :- utterance(_).
needs(/report, /read) :- utterance(_).
needs(/explain, /read) :- utterance(_).
needs(/write_test, /edit) :- utterance(_).
needs(/deploy, /admin) :- utterance(_).
permitted(A) :- needs(A, P), granted(_, P).
cooling(A) :- recent_action(A, N), config("cooldown", C), N < C.
denied(A) :- needs(A, _), !permitted(A).
step(A, F, K) :- plan(A, F, K), permitted(A), !cooling(A).
skipped(A, F) :- plan(A, F, _), cooling(A).
skipped(A, F) :- plan(A, F, _), denied(A).
warn(F, "risky") :- step(/edit_file, F, _), risky(F).
warn(F, "untested") :- step(/edit_file, F, _), untested(F).
warn(F, "large") :- step(/edit_file, F, _), size_class(F, /large).
files_touched(N) :- first_step(F, _) |> do fn:group_by(), let N = fn:count().
steps_per_file(F, N) :- step(A, F, K) |> do fn:group_by(F), let N = fn:count().
first_step(F, K) :- step(_, F, N) |> do fn:group_by(F), let K = fn:min(N).
next(A, F) :- step(A, F, K), first_step(F, K).
has_next() :- next(_, _).
ask_user("no action") :- utterance(_), !has_next().
ask_user("ambiguous") :- ambiguous(), !confident().
ask_user("too many files") :- files_touched(N), config("max_files", M), N > M.
proceed(U) :- utterance(U), has_next(), !asked().
asked() :- ask_user(_).
