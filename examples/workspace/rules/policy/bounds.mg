# What nobody may do here. No rule of the domain can weaken this; the actions and their sandbox hold most of it once more.

# --- nothing outside the root, and no second way to write a path --------------------------------------------------------

named_path("to_change", File) :- to_change(File).
named_path("applied", File) :- applied(_, File).
named_path("failed_at", File) :- failed_at(File, _).
named_path("raised_at", File) :- raised_at(File, _).

odd_inside("..").
odd_inside("//").
odd_inside("/./").
odd_inside("\\").
odd_start("/").
odd_start("./").
odd_start("~").
odd_start(" ").
odd_start("-").
odd_end("/").
odd_end(" ").

fact_denied(Predicate, "a path goes from the root down, without . and .. and doubled slashes") :-
  named_path(Predicate, File),
  odd_inside(Part),
  :string:contains(File, Part).
fact_denied(Predicate, "a path goes from the root down, without . and .. and doubled slashes") :-
  named_path(Predicate, File),
  odd_start(Part),
  :string:starts_with(File, Part).
fact_denied(Predicate, "a path names a file") :-
  named_path(Predicate, File),
  odd_end(Part),
  :string:ends_with(File, Part).

# --- no edits to protected paths, nor through links ---------------------------------------------------------------------

guarded(File) :- to_change(File), protected_path(File).
guarded(File) :- to_change(File), protected_start(Start), :string:starts_with(File, Start).
guarded(File) :- to_change(File), protected_end(End), :string:ends_with(File, End).
guarded(File) :- to_change(File), link(File, _).
guarded(File) :- to_change(File), lock_file(File, _).

writes("safe_change").
writes("propose_change").
prohibited(Tool, "a protected path is among the files") :- writes(Tool), guarded(_).
prohibited(Tool, "a file with secrets is for a person to change") :-
  writes(Tool),
  to_change(File),
  secret_in(File, _, _).

# --- no commit on the default branch, and none in the middle of something ------------------------------------------------

prohibited("commit_changes", "nothing is committed to the default branch") :-
  commit_to(Branch),
  default_branch(Branch).
prohibited("commit_changes", "the name of the branch could be taken for another one") :-
  commit_to(Branch),
  odd_branch(Start),
  :string:starts_with(Branch, Start).
odd_branch("refs/").
odd_branch("heads/").
odd_branch("tags/").
odd_branch("remotes/").
odd_branch("origin/").
odd_branch("-").
prohibited("commit_changes", "a merge or rebase is not finished") :- commit_to(_), under_way(_).
prohibited("commit_changes", "a file with secrets has changed") :-
  changed(File, _),
  secret_in(File, _, _).
prohibited("commit_changes", "who commits has to say who they are") :- client_trust("anonymous").
prohibited("commit_changes", "a conflict is not resolved") :- changed(_, "conflicted").

# --- network never, and nobody without a name changes anything -----------------------------------------------------------

prohibited(Tool, "nothing here uses the network") :- macro_effect(Tool, "network").
effect_denied(Action, "nothing here uses the network") :- action_effect(Action, "network").
intent_denied("who changes something has to say who they are") :-
  changing(Intent),
  intent(Intent),
  client_trust("anonymous").
changing("change").
changing("undo").

# --- what a person has to agree to ---------------------------------------------------------------------------------------

needs_confirmation("safe_change") :- to_change(File), !in_area(File).
needs_confirmation("safe_change") :- to_change(File), risky(File).
needs_confirmation("safe_change") :- to_change(File), generated(File, _).
needs_confirmation("commit_changes").
