# The dependency graph. No transitive closure of the whole repository is computed: each request starts at its own files.

# An import executes the __init__.py files of its packages; a test file also depends on its conftest.py files.
rests_on(File, On) :- imports_file(File, On).
rests_on(File, Init) :- imports_file(File, On), in_package(On, Init).
rests_on(File, Init) :- in_package(File, Init).
rests_on(File, Conftest) :- conftest_of(File, Conftest).

fan_in(File, Count) :-
  imports_file(Other, File),
  Other != File
  |> do fn:group_by(File), let Count = fn:count().

# --- files that a change affects: from the changed files to their dependents -------------------------------------------

touched(File) :- intent("change"), to_change(File).
touched(File) :- intent("review"), changed(File, _).
touched(File) :- intent("undo"), applied(_, File).

affected(File) :- touched(File).
affected(File) :- affected(On), rests_on(File, On).

affected_test(File) :- affected(File), test_file(File).
# A change of the pytest configuration affects all tests.
affected_test(File) :-
  touched(Settings),
  config_file(Settings, Tool),
  rules_tests(Tool),
  test_file(File).
rules_tests("pytest"). rules_tests("python project"). rules_tests("tox").

# More than 200 files: run all tests, which is an empty list for pytest.
affected_count(Count) :- affected_test(_) |> do fn:group_by(), let Count = fn:count().
tests_to_run(Files) :-
  affected_count(Count),
  Count <= 200,
  affected_test(File)
  |> do fn:group_by(), let Files = fn:collect(File).
tests_to_run([]) :- affected_count(Count), Count > 200.
has_tests() :- affected_count(_).

# --- possible causes of a failure: from the failing tests to their dependencies, up to five steps ----------------------

failing_file(File) :- failing_test(Id), test(Id, File, _).
failing_file(File) :-
  failing_test(Given),
  test(Id, File, _),
  Case = fn:string:concat(Id, "["),
  :string:starts_with(Given, Case).
failing_file(File) :- failing_test(File), file(File, _, _, _).
failing_file(File) :- failed_at(File, _), test_file(File).

reached(File, 0) :- intent("diagnose_failure"), failing_file(File).
reached(File, Steps) :-
  reached(From, Before),
  Before < 5,
  rests_on(From, File),
  Steps = fn:plus(Before, 1).
distance(File, Steps) :- reached(File, Any) |> do fn:group_by(File), let Steps = fn:min(Any).
