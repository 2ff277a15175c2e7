# The limits for all clients. No rule of the domain can weaken them; actions and sandbox enforce most of them again.

# --- only paths below the root, in one spelling -------------------------------------------------------------------------

named_path("to_change", File) :- to_change(File).
named_path("to_commit", File) :- to_commit(File).
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

fact_denied(Predicate, "a path is relative to the root, without . and .. and doubled slashes") :-
  named_path(Predicate, File),
  odd_inside(Part),
  :string:contains(File, Part).
fact_denied(Predicate, "a path is relative to the root, without . and .. and doubled slashes") :-
  named_path(Predicate, File),
  odd_start(Part),
  :string:starts_with(File, Part).
fact_denied(Predicate, "a path names a file") :-
  named_path(Predicate, File),
  odd_end(Part),
  :string:ends_with(File, Part).

# --- no edits of protected paths or through links -----------------------------------------------------------------------

guarded(File) :- in_small_letters(File, Path), protected_path(Path).
guarded(File) :-
  in_small_letters(File, Path),
  protected_start(Start),
  :string:starts_with(Path, Start).
guarded(File) :- in_small_letters(File, Path), protected_end(End), :string:ends_with(Path, End).
guarded(File) :- to_change(File), link(File, _).
guarded(File) :- to_change(File), unreadable(File, "link out of the root").
guarded(File) :- to_change(File), lock_file(File, _).

# On a case-insensitive file system, names that differ in case are one file.
in_small_letters(File, Path) :- smaller(File, 26, Path).
smaller(File, 0, File) :- to_change(File).
smaller(Word, 0, Word) :- topic(Word).
smaller(File, Next, Path) :-
  smaller(File, Number, Before),
  letter(Number, Capital, Small),
  Next = fn:plus(Number, 1),
  Path = fn:string:replace(Before, Capital, Small, -1).
letter(0, "A", "a"). letter(1, "B", "b"). letter(2, "C", "c"). letter(3, "D", "d").
letter(4, "E", "e"). letter(5, "F", "f"). letter(6, "G", "g"). letter(7, "H", "h").
letter(8, "I", "i"). letter(9, "J", "j"). letter(10, "K", "k"). letter(11, "L", "l").
letter(12, "M", "m"). letter(13, "N", "n"). letter(14, "O", "o"). letter(15, "P", "p").
letter(16, "Q", "q"). letter(17, "R", "r"). letter(18, "S", "s"). letter(19, "T", "t").
letter(20, "U", "u"). letter(21, "V", "v"). letter(22, "W", "w"). letter(23, "X", "x").
letter(24, "Y", "y"). letter(25, "Z", "z").

writes("safe_change").
writes("propose_change").
prohibited(Tool, "a protected path is among the files") :- writes(Tool), guarded(_).
prohibited(Tool, "a file belongs to a nested repository") :-
  writes(Tool),
  to_change(File),
  unreadable(Folder, Why),
  other_repository(Why),
  Start = fn:string:concat(Folder, "/"),
  :string:starts_with(File, Start).
other_repository("submodule"). other_repository("nested repository").
prohibited(Tool, "a person has to change a file with secrets") :-
  writes(Tool),
  to_change(File),
  secret_in(File, _, _).

# --- no commit to the default branch or during a merge -------------------------------------------------------------------

prohibited("commit_changes", "the default branch is protected") :-
  commit_to(Branch),
  default_branch(Branch).
prohibited("commit_changes", "the name of the branch is ambiguous") :-
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
prohibited("commit_changes", "a file with secrets is among the files") :-
  to_be_committed(File),
  secret_in(File, _, _).
prohibited("commit_changes", "anonymous clients cannot commit") :- client_trust("anonymous").
prohibited("commit_changes", "a conflict is not resolved") :- changed(_, "conflicted").

# The changed files that the client names; without names, all changed files without special characters in their names.
to_be_committed(File) :- to_commit(File), changed(File, _).
to_be_committed(File) :- changed(File, _), !some_named(), !oddly_named(File).
some_named() :- to_commit(_).
oddly_named(File) :- odd_name(File).
oddly_named(File) :- changed(File, _), :string:contains(File, "\\").

# --- no network, and no changes by anonymous clients ---------------------------------------------------------------------

prohibited(Tool, "nothing here uses the network") :- macro_effect(Tool, "network").
effect_denied(Action, "nothing here uses the network") :- action_effect(Action, "network").
intent_denied("anonymous clients cannot change files") :-
  changing(Intent),
  intent(Intent),
  client_trust("anonymous").
changing("change").
changing("undo").

# --- changes that need an approval ---------------------------------------------------------------------------------------

needs_confirmation("safe_change") :- to_change(File), !in_area(File).
needs_confirmation("safe_change") :- to_change(File), risky(File).
needs_confirmation("safe_change") :- to_change(File), generated(File, _).
needs_confirmation("commit_changes").

# Clients get the reasons for refused intents and facts; those for excluded tools are for operators.
public_reason(Tool, Text) :- intent_denied(Text), macro(Tool, _).
public_reason(Tool, Text) :- fact_denied(_, Text), macro(Tool, _).
