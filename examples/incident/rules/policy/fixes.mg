# Who may change something, and what never changes. No rule of the domain can weaken this.

protected_path("app/secrets").
protected_path("deploy/").

intent_denied("fixing needs to know who asks") :- intent("fix_error"), client_trust("anonymous").

prohibited("apply_fix", "the permission fix is missing") :-
  intent("fix_error"),
  !client_permission("fix").
prohibited(Tool, "the file is protected") :-
  opens_file(Tool),
  fix_candidate(File, _),
  protected_path(Prefix),
  :string:starts_with(File, Prefix).
opens_file("propose_fix"). opens_file("apply_fix").

# A name goes by its first letters, so there must not be two ways to write it.
fact_denied("fix_candidate", "a file is named from the workspace on, without . and .. and doubled slashes") :-
  fix_candidate(File, _),
  odd_inside(Part),
  :string:contains(File, Part).
fact_denied("fix_candidate", "a file is named from the workspace on, without . and .. and doubled slashes") :-
  fix_candidate(File, _),
  odd_start(Part),
  :string:starts_with(File, Part).
odd_inside(".."). odd_inside("//"). odd_inside("/./"). odd_inside("\\").
odd_start("/"). odd_start("./"). odd_start("~"). odd_start(" ").

# Whoever may fix still asks a person, whatever the actions say about themselves.
needs_confirmation("apply_fix").
