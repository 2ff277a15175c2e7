# Read-only tools. The first tool of an intent is sent with the files that are useful to read.

guide("find_text") :- intent("explore").
guide("run_failing_tests") :- intent("diagnose_failure"), can_run().
guide("read_traceback") :- intent("diagnose_failure"), traceback(_).
guide("read_lines") :- intent("diagnose_failure"), failed_at(_, _), !can_run().
guide("safe_change") :- intent("change").
guide("show_changes") :- intent("review").
can_run() :- failing_test(_), failing_file(_).

# --- read_lines, outline_file, find_text -------------------------------------------------------------------------------

macro("read_lines", "Reads lines of a file. Secrets in them are replaced by a mark.").
macro_summary("read_lines", "Read lines of a file.").
macro_step("read_lines", 1, "read_range").
arg_value("read_lines", 1, "refuse", /false).
idempotent("read_lines").
mandatory("read_lines") :- intent("explore").
relevant("read_lines", 75) :- intent("diagnose_failure").
relevant("read_lines", 60) :- intent("change").
relevant("read_lines", 60) :- intent("review").

macro("outline_file", "Lists what a Python file defines and imports, with line numbers.").
macro_summary("outline_file", "List what a Python file defines.").
macro_step("outline_file", 1, "outline").
arg_value("outline_file", 1, "refuse", /false).
idempotent("outline_file").
relevant("outline_file", 60) :- intent("explore").
relevant("outline_file", 30) :- intent("diagnose_failure").
relevant("outline_file", 30) :- intent("change").

macro("find_text", "Finds lines that contain a text or match a regular expression, in files that git does not ignore.").
macro_summary("find_text", "Find lines that contain a text.").
macro_step("find_text", 1, "search_text") :- !many().
macro_step("find_text", 1, "search") :- many().
nothing_to_undo("find_text", 1) :- many().
many() :- many_files(_).
arg_value("find_text", 1, "refuse", /false).
idempotent("find_text").
mandatory("find_text") :- intent("explore").
relevant("find_text", 45) :- intent("diagnose_failure").
relevant("find_text", 45) :- intent("change").
instruction("find_text", 1, Text) :-
  wanted(Word),
  !named_somewhere(Word),
  Text = fn:string:concat("No name or path has ", Word, " in it: look for it in the texts.").
named_somewhere(Word) :- wanted(Word), name_like(_, Word, _).
named_somewhere(Word) :- wanted(Word), file(File, _, _, _), :string:contains(File, Word).
named_somewhere(Word) :- wanted(Word), small_name(_, Small, _), :string:contains(Small, Word).

# --- diagnose_failure --------------------------------------------------------------------------------------------------

macro("read_traceback", "Finds tests, files and lines in the traceback that was given.").
macro_summary("read_traceback", "Find tests, files and lines in the traceback.").
macro_step("read_traceback", 1, "parse_failures").
arg_value("read_traceback", 1, "text", Text) :- traceback(Text).
idempotent("read_traceback").
mandatory("read_traceback") :- intent("diagnose_failure"), traceback(_).

macro("run_failing_tests", "Runs the failing tests in a sandbox without network, and reports the result of each test.").
macro_summary("run_failing_tests", "Run the failing tests.").
macro_step("run_failing_tests", 1, "run_tests").
arg_value("run_failing_tests", 1, "tests", Tests) :-
  failing_test(Test)
  |> do fn:group_by(), let Tests = fn:collect(Test).
arg_value("run_failing_tests", 1, "memory_mb", Most) :- limit_of_tests("memory", Most).
arg_value("run_failing_tests", 1, "refuse", /false).
nothing_to_undo("run_failing_tests", 1).
mandatory("run_failing_tests") :- intent("diagnose_failure"), can_run().
needs_skill("run_failing_tests", "finding-causes") :- failing_test(_).
needs_skill("read_traceback", "finding-causes") :- intent("diagnose_failure").

instruction("run_failing_tests", 1, Text) :-
  edited(File),
  !hushed(File),
  Text = fn:string:concat(File, " has uncommitted changes.").

# --- uncommitted changes -----------------------------------------------------------------------------------------------

macro("show_changes", "Shows the differences from the last commit, as a diff without secrets.").
macro_summary("show_changes", "Show uncommitted changes.").
macro_step("show_changes", 1, "git_diff").
arg_value("show_changes", 1, "staged", /false).
arg_value("show_changes", 1, "refuse", /false).
idempotent("show_changes").
mandatory("show_changes") :- intent("review").
relevant("show_changes", 55) :- intent("diagnose_failure"), changed(_, _).

macro("run_affected_tests", "Runs the tests that depend on the changed files, and reports the result of each test.").
macro_summary("run_affected_tests", "Run the tests that depend on the changed files.").
macro_step("run_affected_tests", 1, "run_tests").
arg_value("run_affected_tests", 1, "tests", Files) :- tests_to_run(Files).
arg_value("run_affected_tests", 1, "memory_mb", Most) :- limit_of_tests("memory", Most).
arg_value("run_affected_tests", 1, "refuse", /false).
nothing_to_undo("run_affected_tests", 1).
relevant("run_affected_tests", 85) :- intent("review"), has_tests().
relevant("run_affected_tests", 50) :- intent("change"), has_tests().
needs_skill("show_changes", "reviewing") :- intent("review").

review_note(Text) :-
  reviewer(File, Owner),
  Text = fn:string:concat(File, " belongs to ", Owner, ", who has to review the change.").
review_note(Text) :-
  touched(File),
  risky(File),
  churn(File, Commits),
  fan_in(File, Count),
  Text = fn:string:concat(File, " was changed in ", Commits, " commits, and ", Count, " files import it.").
review_note(Text) :-
  touched(File),
  generated(File, _),
  Text = fn:string:concat(File, " is a generated file: change its source instead.").
review_note(Text) :-
  touched(File),
  syntax_error(File, Line),
  Text = fn:string:concat(File, " cannot be parsed, see line ", Line, ".").
instruction("show_changes", 2, Text) :- review_note(Text).
instruction("show_changes", 3, "No test depends on these changes.") :-
  intent("review"),
  touched(_),
  !has_tests().
