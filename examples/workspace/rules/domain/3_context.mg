# The files that are useful to read, each with a reason and a score. Files with secrets are never among them.

# --- explore: names and paths that contain a word of the question ------------------------------------------------------

matches(File, 90, Why) :-
  intent("explore"),
  topic(Word),
  symbol(File, Word, Kind, _, _),
  Why = fn:string:concat("defines the ", Kind, " ", Word).
matches(File, 75, Why) :-
  intent("explore"),
  topic(Word),
  file(File, Language, _, _),
  Language != "binary",
  :string:contains(File, Word),
  Why = fn:string:concat("has ", Word, " in its name").
matches(File, 85, Why) :-
  intent("explore"),
  topic(Word),
  End = fn:string:concat("/", Word, ".py"),
  file(File, "python", _, _),
  :string:ends_with(File, End),
  Why = fn:string:concat("is called ", Word).
matches(File, 60, Why) :-
  name_like(File, Word, Name),
  symbol(File, Name, Kind, _, _),
  Why = fn:string:concat("defines the ", Kind, " ", Name).
matches(File, 88, Why) :-
  wanted(Word),
  small_name(File, Word, Name),
  symbol(File, Name, Kind, _, _),
  Why = fn:string:concat("defines the ", Kind, " ", Name).
matches(File, 75, Why) :-
  wanted(Word),
  small_name(File, Small, File),
  :string:contains(Small, Word),
  Why = fn:string:concat("has ", Word, " in its name").
wanted(Small) :- intent("explore"), topic(Word), in_small_letters(Word, Small).
# One matching name per file is enough: a short word occurs in many names.
name_like(File, Word, Name) :-
  intent("explore"),
  topic(Word),
  symbol(File, Any, _, _, _),
  :string:contains(Any, Word)
  |> do fn:group_by(File, Word), let Name = fn:pick_any(Any).
name_like(File, Word, Name) :-
  wanted(Word),
  small_name(File, Small, Any),
  Any != File,
  :string:contains(Small, Word)
  |> do fn:group_by(File, Word), let Name = fn:pick_any(Any).
matches(File, 50, Why) :-
  intent("explore"),
  topic(Word),
  tests_symbol(Id, _, Word),
  test(Id, File, _),
  Why = fn:string:concat("tests ", Word).

# --- diagnose_failure: distance to the test, age of the last change, and the traceback ---------------------------------

clue(File, 50, Why) :-
  intent("diagnose_failure"),
  raised_at(File, Line),
  !test_file(File),
  Why = fn:string:concat("the error was raised in line ", Line).
clue(File, 20, Why) :-
  last_frame(File, Line),
  Why = fn:string:concat("the traceback goes through line ", Line).
last_frame(File, Line) :-
  intent("diagnose_failure"),
  failed_at(File, Any),
  !test_file(File)
  |> do fn:group_by(File), let Line = fn:max(Any).
clue(File, 60, Why) :-
  distance(File, _),
  syntax_error(File, Line),
  Why = fn:string:concat("cannot be parsed, see line ", Line).
clue(File, 70, "it has changed since the last commit") :- edited(File).
fresh_edit() :- edited(_).
edited(File) :- distance(File, _), changed(File, _), !test_file(File).

# A failure may be older than the last commit; the score decreases with each earlier commit.
clue(File, 35, "of what the test rests on it changed last") :-
  committed_at(File, Time),
  newest(Time),
  !fresh_edit().
clue(File, 31, "of what the test rests on it changed lately") :-
  committed_at(File, Time),
  second(Time),
  !fresh_edit().
clue(File, 28, "of what the test rests on it changed lately") :-
  committed_at(File, Time),
  third(Time),
  !fresh_edit().
clue(File, 26, "of what the test rests on it changed lately") :-
  committed_at(File, Time),
  fourth(Time),
  !fresh_edit().
committed_at(File, Time) :-
  distance(File, _),
  last_change(File, Time, _),
  !test_file(File),
  !always_empty(File).
always_empty(File) :- distance(File, _), file(File, _, 0, _), churn(File, 1).
newest(Time) :- committed_at(_, Any) |> do fn:group_by(), let Time = fn:time:max(Any).
second(Time) :-
  newest(Later),
  committed_at(_, Any),
  :time:lt(Any, Later)
  |> do fn:group_by(), let Time = fn:time:max(Any).
third(Time) :-
  second(Later),
  committed_at(_, Any),
  :time:lt(Any, Later)
  |> do fn:group_by(), let Time = fn:time:max(Any).
fourth(Time) :-
  third(Later),
  committed_at(_, Any),
  :time:lt(Any, Later)
  |> do fn:group_by(), let Time = fn:time:max(Any).
clue(File, 25, Why) :-
  failing_test(Given),
  tests_symbol(Id, File, Name),
  same_test(Given, Id),
  Why = fn:string:concat("the test uses ", Name).
same_test(Id, Id) :- failing_test(Id).
same_test(Given, Id) :-
  failing_test(Given),
  test(Id, _, _),
  Case = fn:string:concat(Id, "["),
  :string:starts_with(Given, Case).
clue(File, 15, "the test is called after it") :-
  failing_file(Test),
  subject(Test, Name),
  base_name(File, Name),
  distance(File, _).
clue(File, 20, "the test imports it") :-
  failing_file(Test),
  imports_file(Test, File),
  distance(File, _).
clue(File, 8, "the test rests on it") :-
  distance(File, Steps),
  Steps > 0,
  Steps <= 2,
  !test_file(File),
  !always_empty(File).
clue(File, 4, "the test rests on it from afar") :-
  distance(File, Steps),
  Steps > 2,
  !test_file(File),
  !always_empty(File).
clue(File, 4, "it changes often") :- distance(File, _), worn(File).
clue(File, 30, "it fails") :- distance(File, 0).

suspicion(File, Points) :- clue(File, Any, _) |> do fn:group_by(File), let Points = fn:sum(Any).
best_clue(File, Most) :- clue(File, Any, _) |> do fn:group_by(File), let Most = fn:max(Any).
matches(File, Sum, Why) :-
  suspicion(File, Sum),
  Sum <= 60,
  best_clue(File, Most),
  clue(File, Most, Why).
# Sums above 60 count for a quarter, so that files with many clues keep their order below the maximum.
matches(File, Points, Why) :-
  suspicion(File, Sum),
  Sum > 60,
  best_clue(File, Most),
  clue(File, Most, Why),
  Over = fn:minus(Sum, 60),
  More = fn:div(Over, 4),
  Points = fn:plus(60, More).

# --- change and review: the files, their tests, and their dependents ---------------------------------------------------

matches(File, 95, "it is to be changed") :- intent("change"), to_change(File), file(File, _, _, _).
matches(File, 90, How) :-
  intent("review"),
  changed(File, Kind),
  file(File, _, _, _),
  How = fn:string:concat("it is ", Kind).
matches(File, 70, Why) :-
  touched(Changed),
  tests_symbol(Id, Changed, Name),
  test(Id, File, _),
  Why = fn:string:concat("tests ", Name, " of ", Changed).
matches(File, 50, Why) :-
  touched(Changed),
  imports_file(File, Changed),
  Why = fn:string:concat("imports ", Changed).

# --- limit the number of files -----------------------------------------------------------------------------------------

hushed(File) :- secret_in(File, _, _).
hushed(File) :- odd_name(File).
hushed(File) :- matches(File, _, _), :string:contains(File, ":").  # it could pass for another address

# Of files with equal scores, those that match more words or have more importers come first.
best(File, Points) :-
  matches(File, Any, _),
  !hushed(File)
  |> do fn:group_by(File), let Points = fn:max(Any).
fits(File, Word) :- intent("explore"), topic(Word), best(File, _), :string:contains(File, Word).
fits(File, Word) :- name_like(File, Word, _).
extra(File, "words", Points) :- fits(File, Word) |> do fn:group_by(File), let Points = fn:count().
extra(File, "imported", 3) :- best(File, _), central(File).
extra(File, "worn", 1) :- best(File, _), worn(File).
extra(File, "", 0) :- best(File, _).
extras(File, Points) :- extra(File, _, Any) |> do fn:group_by(File), let Points = fn:sum(Any).
merit(File, Points) :- best(File, Most), extras(File, More), Points = fn:plus(Most, More).
as_good(Points, Count) :- merit(_, Points) |> do fn:group_by(Points), let Count = fn:count().
as_good_or_better(Points, Count) :-
  as_good(Points, _),
  as_good(Other, Any),
  Other >= Points
  |> do fn:group_by(Points), let Count = fn:sum(Any).
shown(File, Points) :- merit(File, Points), as_good_or_better(Points, Count), Count <= 25.
any_shown() :- shown(_, _).
crowded() :- merit(_, _), !any_shown().

needs_resource(Tool, File, Why, Points) :-
  guide(Tool),
  shown(File, Points),
  best(File, Most),
  matches(File, Most, Why).
instruction(Tool, 90, "More files match than are listed: use more specific words, or search.") :-
  guide(Tool),
  crowded().
