# The intents change, commit and undo. Files and tests are fixed when a tool is proven; the client cannot add any.

to_change_list(Files) :- to_change(File) |> do fn:group_by(), let Files = fn:collect(File).

macro("propose_change", "Creates a diff from edits and reports whether it applies. No file is changed.").
macro_summary("propose_change", "Create a diff without changing files.").
macro_step("propose_change", 1, "make_patch").
arg_value("propose_change", 1, "only", Files) :- to_change_list(Files).
arg_value("propose_change", 1, "refuse", /false).
idempotent("propose_change").
relevant("propose_change", 70) :- intent("change").

macro("try_patch", "Reports what a unified diff would change, and whether it applies. No file is changed.").
macro_summary("try_patch", "Check whether a diff applies.").
macro_step("try_patch", 1, "check_patch").
idempotent("try_patch").
relevant("try_patch", 35) :- intent("change").
relevant("try_patch", 35) :- intent("review").

# --- safe_change: create the patch, test, apply, test, and revert if tests got worse -----------------------------------

macro("safe_change", "Changes files: checks the edits, runs the affected tests before and after, and reverts the change if tests got worse.").
macro_summary("safe_change", "Change files, and revert the change if tests get worse.").
mandatory("safe_change") :- intent("change").

macro_step("safe_change", 1, "make_patch").
arg_value("safe_change", 1, "only", Files) :- to_change_list(Files).
arg_value("safe_change", 1, "refuse", /false).
skip_step(N, "The edits cannot be applied: see problems.") :- cannot_be_made(), after_first(N).
cannot_be_made() :- run_of("safe_change"), step_value(1, "applies", /false).
after_first(2). after_first(3). after_first(4). after_first(5). after_first(6).
skip_step(N, Why) :- no_tests_here(Why), after_first(N), N > 2.
no_tests_here(Why) :- run_of("safe_change"), step_value(2, "problem", Why), Why != "".

macro_step("safe_change", 2, "run_tests") :- has_tests().
macro_step("safe_change", 4, "run_tests") :- has_tests().
arg_value("safe_change", 2, "tests", Files) :- tests_to_run(Files).
arg_value("safe_change", 4, "tests", Files) :- tests_to_run(Files).
arg_value("safe_change", N, "stop_at_first", /false) :- test_step(N), has_tests().
arg_value("safe_change", N, "memory_mb", Most) :-
  test_step(N),
  has_tests(),
  limit_of_tests("memory", Most).
arg_value("safe_change", N, "refuse", /false) :- test_step(N), has_tests().
arg_value("safe_change", N, "seconds", Most) :-
  test_step(N),
  has_tests(),
  limit_of_tests("seconds", Most).
test_step(2). test_step(4).

macro_step("safe_change", 3, "apply_patch").
arg_step("safe_change", 3, "patch", 1, "/patch").
arg_step("safe_change", 3, "expected", 1, "/expected").
arg_value("safe_change", 3, "refuse", /false).
skip_step(N, "The patch could not be applied.") :- not_applied(_), after_first(N), N > 3.
not_applied(Why) :-
  run_of("safe_change"),
  step_value(3, "problems", Problems),
  :list:member(One, Problems),
  :match_entry(One, "problem", Why).
undo_step("safe_change", 3, "revert_patch").
undo_out("safe_change", 3, "backup", "/backup").

macro_step("safe_change", 5, "compare_runs") :- has_tests().
arg_step("safe_change", 5, "before", 2, "") :- has_tests().
arg_step("safe_change", 5, "after", 4, "") :- has_tests().

macro_step("safe_change", 6, "revert_patch") :- has_tests().
arg_step("safe_change", 6, "backup", 3, "/backup") :- has_tests().
arg_value("safe_change", 6, "force", /false) :- has_tests().
arg_value("safe_change", 6, "refuse", /true) :- has_tests().
arg_value("safe_change", 6, "label", "") :- has_tests().
skip_step(6, "The tests did not get worse.") :-
  run_of("safe_change"),
  step_value(5, "worse", /false).

on_error("safe_change", 4, "undo") :- has_tests().
on_error("safe_change", 5, "undo") :- has_tests().
# The repository is read-only for tests, so they have no effect to undo.
nothing_to_undo("safe_change", N) :- test_step(N), has_tests().
reversible("safe_change").

macro_result("safe_change", "patch", 1, "/patch").
macro_result("safe_change", "problems", 1, "/problems").
macro_result("safe_change", "files", 3, "/files").
macro_result("safe_change", "tests", 5, "") :- has_tests().

needs_skill("safe_change", "small-changes") :- intent("change").
needs_skill("safe_change", "testing-style") :- to_change(File), test_file(File).
needs_skill("safe_change", "migration-care") :- migration(_).

instruction("safe_change", 1, Text) :-
  affected_count(Count),
  intent("change"),
  Text = fn:string:concat("Test files that will run before and after: ", Count, ".").
instruction("safe_change", 1, "No test depends on these files: no test will run, so review the change carefully.") :-
  intent("change"),
  to_change(_),
  !has_tests().
instruction("safe_change", 2, Text) :- intent("change"), review_note(Text).

# --- commit ------------------------------------------------------------------------------------------------------------

macro("commit_changes", "Commits the current content of files to the named branch. The checked-out branch does not change.").
macro_summary("commit_changes", "Commit files to a branch.").
macro_step("commit_changes", 1, "commit").
arg_value("commit_changes", 1, "branch", Branch) :- branch_to_use(Branch).
arg_value("commit_changes", 1, "dry_run", /false).
arg_value("commit_changes", 1, "refuse", /false).
arg_value("commit_changes", 1, "paths", Files) :-
  to_be_committed(File)
  |> do fn:group_by(), let Files = fn:collect(File).
instruction("commit_changes", 1, "Files with special characters in their names are not committed.") :-
  intent("review"),
  changed(File, _),
  oddly_named(File).
branch_to_use(Branch) :- commit_to(Any) |> do fn:group_by(), let Branch = fn:pick_any(Any).
relevant("commit_changes", 65) :- intent("review"), commit_to(_), to_be_committed(_).

# --- undo --------------------------------------------------------------------------------------------------------------

# One run at a time: the run of the parameter, or any one of several. The facts do not contain which run was the last.
run_named(Run) :- intent("undo"), intent_param("run", Run), applied(Run, _).
any_named() :- run_named(_).
run_to_undo(Run) :- run_named(Run).
run_to_undo(Run) :- applied(Any, _), !any_named() |> do fn:group_by(), let Run = fn:pick_any(Any).
run_that_changed(Run) :- intent("undo"), applied(Run, _).
runs_that_changed(Count) :- run_that_changed(_) |> do fn:group_by(), let Count = fn:count().
instruction("undo_change", 1, "Several runs can be undone, the last one first: name it with the parameter run of the intent.") :-
  runs_that_changed(Count),
  Count > 1,
  !any_named().

macro("undo_change", "Reverts the change of an earlier run. It is refused if the files have changed since.").
macro_summary("undo_change", "Revert the change of an earlier run.").
macro_step("undo_change", 1, "revert_patch").
arg_kept("undo_change", 1, "backup", Run, "backup") :- run_to_undo(Run).
arg_value("undo_change", 1, "force", /false).
arg_value("undo_change", 1, "refuse", /false).
arg_value("undo_change", 1, "label", Run) :- run_to_undo(Run).
mandatory("undo_change") :- intent("undo"), applied(_, _).
macro_result("undo_change", "files", 1, "/files").
macro_result("undo_change", "problems", 1, "/problems").
