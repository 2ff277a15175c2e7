# Permissions and protected paths. No rule of the domain can weaken them.

# Clients get the reasons for refused intents and facts; those for excluded tools are for operators.
public_reason(Tool, Text) :- intent_denied(Text), macro(Tool, _).
public_reason(Tool, Text) :- fact_denied(_, Text), macro(Tool, _).

protected_path("app/secrets").
protected_path("deploy/").

intent_denied("anonymous clients cannot fix errors") :-
  intent("fix_error"),
  client_trust("anonymous").

prohibited("apply_fix", "the permission fix is missing") :-
  intent("fix_error"),
  !client_permission("fix").
prohibited(Tool, "the file is protected") :-
  opens_file(Tool),
  fix_candidate(File, _),
  protected_path(Prefix),
  :string:starts_with(File, Prefix).
opens_file("propose_fix"). opens_file("apply_fix").

# Protected paths are compared by prefix, so each path must have one spelling.
fact_denied("fix_candidate", "a path is relative to the workspace, without . and .. and doubled slashes") :-
  fix_candidate(File, _),
  odd_inside(Part),
  :string:contains(File, Part).
fact_denied("fix_candidate", "a path is relative to the workspace, without . and .. and doubled slashes") :-
  fix_candidate(File, _),
  odd_start(Part),
  :string:starts_with(File, Part).
odd_inside(".."). odd_inside("//"). odd_inside("/./"). odd_inside("\\").
odd_start("/"). odd_start("./"). odd_start("~"). odd_start(" ").

# An approval is required even with the permission, and whatever the actions declare.
needs_confirmation("apply_fix").
