# It is noon, and the shop fails. Which tools may the agent see right now, and why?

# Facts. Temporal facts hold in closed intervals in UTC; _ is an open end.

Decl alert(Service, Kind) temporal bound [/name, /name].
Decl deployed(Service, Version) temporal bound [/name, /number].
Decl on_call(Person, Team) temporal bound [/name, /name].
Decl frozen(Service) temporal descr [doc("Changes of the service are forbidden.")] bound [/name].

service(/app, /web). service(/shop, /web). service(/payments, /core). service(/ledger, /data).
depends(/app, /shop). depends(/shop, /payments). depends(/payments, /ledger).

alert(/shop, /errors)@[2026-01-15T11:44:00Z, _].
alert(/payments, /latency)@[2026-01-15T11:41:00Z, _].
alert(/ledger, /disk)@[2026-01-15T09:10:00Z, 2026-01-15T09:25:00Z].  # long over

deployed(/payments, 118)@[2026-01-15T11:38:00Z].
deployed(/shop, 42)@[2026-01-14T16:00:00Z].
on_call(/noor, /core)@[2026-01-12, 2026-01-19].
on_call(/kim, /data)@[2026-01-08, 2026-01-15].  # ended at midnight, without a successor
frozen(/ledger)@[2026-01-15T08:00:00Z, 2026-01-15T18:00:00Z].

tool(/read_logs). tool(/restart). tool(/rollback). tool(/failover). tool(/page). tool(/drop_table).
changes(/restart). changes(/rollback). changes(/failover). changes(/drop_table).

# Derived facts. A root is a failing service of which no dependency fails.

needs(A, B) :- depends(A, B).
needs(A, C) :- depends(A, B), needs(B, C).

firing(S) :- alert(S, _)@[now].
explained(S) :- firing(S), needs(S, D), firing(D).
root(S) :- firing(S), !explained(S).
blamed(S, Version) :- root(S), <-[30m] deployed(S, Version).
impact(S, Count) :- root(S), needs(A, S) |> do fn:group_by(S), let Count = fn:count().
attended(S) :- service(S, Team), on_call(_, Team)@[now].

# The helpful tools, by service.

relevant(/read_logs, S, "it has an alert") :- firing(S).
relevant(/restart, S, "it is the root of the trouble") :- root(S).
relevant(/rollback, S, Reason) :-
  blamed(S, Version),
  Reason = fn:string:concat("version ", Version, " is less than half an hour old").
relevant(/failover, D, Reason) :- root(S), depends(S, D), Reason = fn:string:concat(S, " needs it").
relevant(/page, S, Reason) :-
  impact(S, Count),
  Count > 1,
  Reason = fn:string:concat(Count, " services need it").

# The tools that must not be used.

prohibited(T, S, "it is frozen") :- relevant(T, S, _), changes(T), frozen(S)@[now].
prohibited(T, S, "no engineer is on call") :- relevant(T, S, _), changes(T), !attended(S).
prohibited(/restart, S, "it would hide what a rollback cures") :-
  relevant(/restart, S, _),
  blamed(S, _).

# The offered tools, and the explanations.

offered(T, S) :- relevant(T, S, _), !prohibited(T, S, _).
hidden(T) :- tool(T), !offered(T, _).
why(T, S, Reason) :- offered(T, S), relevant(T, S, Reason).
why_not(T, S, Reason) :- prohibited(T, S, Reason).
