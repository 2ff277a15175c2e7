# After a run: the delta, the summary and the suggested intents.

extract("make_patch", "applies", "/applies").
extract("make_patch", "problems", "/problems").
extract("apply_patch", "files", "/files").
extract("apply_patch", "problems", "/problems").
extract("revert_patch", "files", "/files").
extract("revert_patch", "problems", "/problems").
extract("revert_patch", "label", "/label").
extract("compare_runs", "worse", "/worse").
extract("compare_runs", "broken", "/broken").
extract("run_tests", "failed", "/failed").
extract("run_tests", "outcome", "/outcome").
extract("run_tests", "missing", "/missing").
extract("run_tests", "failures", "/failures").
extract("run_tests", "problem", "/problem").
extract("parse_failures", "tests", "/tests").
extract("parse_failures", "failures", "/failures").
extract("commit", "commit", "/commit").
extract("commit", "problem", "/problem").
extract("compare_runs", "outcome", "/outcome").

# The backup of a change is stored with the run. The backup of a revert is not: it could restore a change that tests or a
# person have rejected, without a new check.
keep("apply_patch", "backup", "/backup").

changed_file(N, File) :-
  step_value(N, "files", Files),
  :list:member(One, Files),
  :match_entry(One, "path", File).

# Error texts of actions are not sent to clients, because they are untrusted. Results contain what an agent needs.
problem(Text) :-
  step_value(1, "problems", Problems),
  :list:member(One, Problems),
  :match_entry(One, "problem", Text).
summary(Text) :-
  ran("safe_change"),
  problem(Why),
  Text = fn:string:concat("Nothing was changed: ", Why, ".").
summary(Text) :-
  ran("safe_change"),
  not_applied(Why),
  Text = fn:string:concat("Nothing was changed: ", Why, ".").
summary(Text) :-
  ran("undo_change"),
  problem(Why),
  Text = fn:string:concat("Nothing was put back: ", Why, ".").

summary(Text) :-
  ran("safe_change"),
  step_value(2, "problem", Why),
  Why != "",
  Text = fn:string:concat("Nothing was changed: ", Why, ".").
summary(Text) :-
  runs_tests(Tool),
  ran(Tool),
  step_value(1, "problem", Why),
  Why != "",
  Text = fn:string:concat("No test was run: ", Why, ".").

# --- safe_change ---------------------------------------------------------------------------------------------------------

taken_back() :- ran("safe_change"), step_status(6, _, "success").
made(Run, File) :- ran("safe_change"), run_id(Run), changed_file(3, File), !taken_back().

asserts("applied", [Run, File], "server") :- made(Run, File).
continues_with("applied", [Run, File]) :- made(Run, File).
retracts("to_change", [/_]) :- made(_, _).
suggests("review", Params, "See what the change affects, and commit it.") :-
  made(Run, _)
  |> let Params = ["run" : Run].
summary(Text) :- made(_, File), Text = fn:string:concat("Changed ", File, ".").

summary("The test run did not complete, neither before nor after: see tests.") :-
  made(_, _),
  step_value(5, "outcome", Outcome),
  stopped(Outcome).
stopped("timeout"). stopped("unusable"). stopped("interrupted").
summary("The operator can increase the time limit: --set test_seconds=N.") :-
  made(_, _),
  step_value(5, "outcome", "timeout").

broken_test(Test) :- ran("safe_change"), step_value(5, "broken", Tests), :list:member(Test, Tests).
asserts("failing_test", [Test], "derived") :- taken_back(), broken_test(Test).
continues_with("failing_test", [Test]) :- taken_back(), broken_test(Test).
suggests("diagnose_failure", Params, "The change was taken back: tests got worse.") :-
  taken_back(),
  broken_test(Test)
  |> let Params = ["test" : Test].
summary("The change was taken back, because tests got worse.") :- taken_back().

# --- undo ----------------------------------------------------------------------------------------------------------------

undone(File) :- ran("undo_change"), changed_file(1, File).
retracts("applied", [Run, File]) :- undone(File), step_value(1, "label", Run).
summary(Text) :- undone(File), Text = fn:string:concat("Put ", File, " back.").
suggests("review", Params, "See what is left.") :- undone(_) |> let Params = ["after" : "undo"].

# --- tests and tracebacks ------------------------------------------------------------------------------------------------

failed_now(Test) :-
  runs_tests(Tool),
  ran(Tool),
  step_value(1, "failed", Tests),
  :list:member(Test, Tests).
runs_tests("run_failing_tests"). runs_tests("run_affected_tests").
asserts("failing_test", [Test], "server") :- failed_now(Test).
continues_with("failing_test", [Test]) :- failed_now(Test).
retracts("failing_test", [/_]) :-
  ran("run_failing_tests"),
  step_value(1, "outcome", "passed"),
  step_value(1, "missing", []).

# The frames in the repository. Installed packages and the standard library have absolute paths.
passed_through(File, Line) :-
  runs_tests(Tool),
  ran(Tool),
  step_value(1, "failures", Failures),
  :list:member(One, Failures),
  :match_entry(One, "frames", Frames),
  :list:member(Frame, Frames),
  :match_entry(Frame, "file", File),
  :match_entry(Frame, "line", Line),
  !:string:starts_with(File, "/").
raised_in(Tool, File, Line) :-
  tells_failures(Tool),
  ran(Tool),
  step_value(1, "failures", Failures),
  :list:member(One, Failures),
  :match_entry(One, "file", File),
  :match_entry(One, "line", Line),
  Line > 0.
tells_failures("read_traceback").
tells_failures(Tool) :- runs_tests(Tool).
raised(File, Line) :-
  runs_tests(Tool),
  raised_in(Tool, File, Line),
  !:string:starts_with(File, "/").
raised(Known, Line) :- raised_in("read_traceback", File, Line), known_as(File, Known).
asserts("raised_at", [File, Line], "derived") :- raised(File, Line).
continues_with("raised_at", [File, Line]) :- raised(File, Line).
asserts("failed_at", [File, Line], "derived") :- passed_through(File, Line).
continues_with("failed_at", [File, Line]) :- passed_through(File, Line).
suggests("diagnose_failure", Params, "Tests fail.") :-
  ran("run_affected_tests"),
  failed_now(Test)
  |> let Params = ["test" : Test].

named_test(Test) :- ran("read_traceback"), step_value(1, "tests", Tests), :list:member(Test, Tests).
told_frame(File, Line) :-
  ran("read_traceback"),
  step_value(1, "failures", Failures),
  :list:member(One, Failures),
  :match_entry(One, "frames", Frames),
  :list:member(Frame, Frames),
  :match_entry(Frame, "file", File),
  :match_entry(Frame, "line", Line).
frame(Known, Line) :- told_frame(File, Line), Line > 0, known_as(File, Known).

# Paths in a traceback from another machine have another prefix; paths from a run in a subfolder lack a prefix.
known_as(File, File) :- told_frame(File, _), file(File, _, _, _).
known_as(File, Known) :-
  told_frame(File, _),
  :string:starts_with(File, "/"),
  !:string:contains(File, "site-packages/"),
  file(Known, "python", _, _),
  :string:contains(Known, "/"),
  End = fn:string:concat("/", Known),
  :string:ends_with(File, End).
known_as(File, Known) :-
  told_frame(File, _),
  !:string:starts_with(File, "/"),
  !known_file(File),
  End = fn:string:concat("/", File),
  file(Known, "python", _, _),
  :string:ends_with(Known, End).
known_file(File) :- told_frame(File, _), file(File, _, _, _).

asserts("failing_test", [Test], "derived") :- named_test(Test).
asserts("failed_at", [File, Line], "derived") :- frame(File, Line).
continues_with("failing_test", [Test]) :- named_test(Test).
continues_with("failed_at", [File, Line]) :- frame(File, Line).
retracts("traceback", [/_]) :- frame(_, _).
suggests("diagnose_failure", Params, "The traceback names files of this repository.") :-
  frame(File, _)
  |> let Params = ["file" : File].

# --- commit ----------------------------------------------------------------------------------------------------------------

committed(Commit) :- ran("commit_changes"), step_value(1, "commit", Commit), Commit != "".
summary(Text) :-
  ran("commit_changes"),
  step_value(1, "problem", Why),
  Why != "",
  Text = fn:string:concat("Nothing was committed: ", Why, ".").
summary(Text) :- committed(Commit), Text = fn:string:concat("Committed as ", Commit, ".").
retracts("applied", [/_, /_]) :- committed(_).
