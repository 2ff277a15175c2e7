# Who may change something, and what never changes. No rule of the domain can weaken this.

protected_path("app/secrets").
protected_path("deploy/").

intent_denied("fixing needs to know who asks") :- intent("fix_error"), client_trust("anonymous").

prohibited("apply_fix", "the permission fix is missing") :-
  intent("fix_error"),
  !client_permission("fix").
prohibited("apply_fix", "the file is protected") :-
  fix_candidate(File, _),
  protected_path(Prefix),
  :string:starts_with(File, Prefix).

# Whoever may fix still asks a person, whatever the actions say about themselves.
needs_confirmation("apply_fix").
