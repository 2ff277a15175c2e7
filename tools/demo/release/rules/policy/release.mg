Decl frozen() temporal.
frozen()@[2026-01-01T00:00:00Z, 2100-01-01T00:00:00Z].
prohibited("deploy_release", "releases are frozen") :- frozen()@[now].
needs_confirmation("publish_notes").
