# fix_error: show the change, then apply it. File and change come from the facts, not from the client's arguments.

fixing("propose_fix"). fixing("apply_fix").
mandatory("propose_fix") :- intent("fix_error"), diagnosed_error(_, _), fix_candidate(_, _).
relevant("apply_fix", 85) :- intent("fix_error"), diagnosed_error(_, _), fix_candidate(_, _).
requires("apply_fix", "propose_fix").

# One change at a time: the first of several.
next_file(File) :- fix_candidate(Any, _) |> do fn:group_by(), let File = fn:pick_any(Any).
next_fix(File, Fix) :-
  next_file(File),
  fix_candidate(File, Any)
  |> do fn:group_by(File), let Fix = fn:pick_any(Any).

macro("propose_fix", "Shows the change as a unified diff, without changing the file.").
macro("apply_fix", "Changes the file in the workspace. The old content is kept, so that it can be restored.").
macro_summary("propose_fix", "Show the change as a diff.").
macro_summary("apply_fix", "Apply the change.").
reversible("apply_fix").

macro_step(Tool, 1, "propose_patch") :- fixing(Tool).
arg_value(Tool, 1, "file", File) :- fixing(Tool), next_file(File).
arg_value(Tool, 1, "fix", Fix) :- fixing(Tool), next_fix(_, Fix).

macro_step("apply_fix", 2, "replace_file").
arg_value("apply_fix", 2, "file", File) :- next_file(File).
arg_step("apply_fix", 2, "text", 1, "/after").
arg_step("apply_fix", 2, "expected", 1, "/digest").
undo_step("apply_fix", 2, "replace_file").
undo_in("apply_fix", 2, "file", "file").
undo_out("apply_fix", 2, "text", "/previous").
undo_out("apply_fix", 2, "expected", "/digest").

# If the file cannot be read after the change, it is restored.
macro_step("apply_fix", 3, "check_routes").
arg_value("apply_fix", 3, "file", File) :- next_file(File).
on_error("apply_fix", 3, "undo").

macro_result(Tool, "diff", 1, "/diff") :- fixing(Tool).
macro_result("apply_fix", "routes", 3, "/routes").

needs_skill(Tool, "small-changes") :- fixing(Tool), intent("fix_error").
instruction(Tool, 1, Text) :- fixing(Tool), diagnosed_error(_, Cause), meaning(Cause, Text).
instruction("apply_fix", 2, "Show the diff of propose_fix to a person first.") :- next_file(_).
needs_resource(Tool, Uri, "the file that would change", 90) :-
  fixing(Tool),
  next_file(File),
  Uri = fn:string:concat("file://", File).

meaning("missing_route", "The backend has no route for the path that the page requests.").
meaning("server_error", "A handler of the backend fails: a route does not fix that.").
meaning("unreachable", "The backend was not reached: check the network first.").
