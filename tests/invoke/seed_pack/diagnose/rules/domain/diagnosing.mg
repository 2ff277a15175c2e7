# The invocation cycle of the specification: four reads in a row, and what follows from them.

mandatory("causal_chain") :- intent("diagnose_error"), undiagnosed_error(_).
macro("causal_chain", "Trace a console error to its cause.").
macro_step("causal_chain", 1, "query_console_errors").
macro_step("causal_chain", 2, "correlate_network").
macro_step("causal_chain", 3, "trace_dom_impact").
macro_step("causal_chain", 4, "derive_root_cause").
arg_step("causal_chain", 2, "error", 1, "").
arg_step("causal_chain", 3, "error", 1, "").
arg_step("causal_chain", 3, "request", 2, "").
arg_step("causal_chain", 4, "request", 2, "").
arg_step("causal_chain", 4, "impact", 3, "").
arg_step("causal_chain", 4, "error", 1, "").
macro_output("causal_chain", [
  "type": "object",
  "required": ["causal_chain", "root_cause", "confidence"],
  "properties": ["confidence": ["type": "number"]]]).
macro_result("causal_chain", Key, 4, Pointer) :- member(Key, Pointer).
member("causal_chain", "/causal_chain").
member("root_cause", "/root_cause").
member("confidence", "/confidence").

extract("derive_root_cause", "cause", "/cause").
extract("derive_root_cause", "steps", "/steps").
found(Error, Cause) :- run_arg("error_id", Error), step_value(4, "cause", Cause).
mends("missing_route", "src/routes/router.go", "add_user_route").
meaning("missing_route", "missing route handler").
mended(File, Fix) :- found(_, Cause), mends(Cause, File, Fix).

asserts("diagnosed_error", [Error, Cause], "server") :- found(Error, Cause).
asserts("fix_candidate", [File, Fix], "derived") :- mended(File, Fix).
retracts("undiagnosed_error", [Error]) :- found(Error, _).
continues_with("diagnosed_error", [Error, Cause]) :- found(Error, Cause).
continues_with("fix_candidate", [File, Fix]) :- mended(File, Fix).
suggests("fix_error", ["file": File, "fix_type": Fix], Why) :-
  mended(File, Fix), Why = "The diagnosed root cause has a straightforward fix: add the missing route handler.".
suggests("observe", ["focus": "network"], "Check if other API endpoints are also missing.") :- mended(_, _).
summary(Text) :-
  found(_, Cause), meaning(Cause, Words), step_value(4, "steps", Steps),
  Text = fn:string:concat(
    "Traced causal chain from API 404 to console TypeError through ", Steps, " steps. Root cause: ", Words, ".").

mandatory("see_again") :- intent("fix_error"), intent_param("file", File), diagnosed_error(_, _), fix_candidate(File, _).
macro("see_again", "Look at the error once more.").
macro_step("see_again", 1, "query_console_errors").
