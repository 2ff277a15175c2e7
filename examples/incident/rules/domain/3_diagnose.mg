# diagnose_error: one tool traces an error to its cause. Its chain depends on the available facts.

relevant("frontend_diagnosis", 80) :-
  intent("diagnose_error"),
  recent_error(_),
  has_failed_request().
relevant("full_stack_diagnosis", 95) :-
  intent("diagnose_error"),
  recent_error(_),
  has_failed_request(),
  has_backend_log().
conflicts("frontend_diagnosis", "full_stack_diagnosis").

diagnosis("frontend_diagnosis", 3).
diagnosis("full_stack_diagnosis", 4).

macro("frontend_diagnosis", "Traces console errors to the failed requests before them and names the likely cause.").
macro("full_stack_diagnosis", "Traces console errors through failed requests to the errors in the backend log and names the cause.").
macro_summary(Tool, "Trace console errors to their cause.") :- diagnosis(Tool, _).
idempotent(Tool) :- diagnosis(Tool, _).

# The chain: failed requests and, if there is a log, its errors in parallel; then their correlation; then the cause.
macro_step(Tool, 1, "failed_requests") :- diagnosis(Tool, _).
macro_step(Tool, 2, "correlate") :- diagnosis(Tool, _).
macro_step("full_stack_diagnosis", 3, "read_log").
macro_step(Tool, Last, "name_cause") :- diagnosis(Tool, Last).

step_after(Tool, 2, 1) :- diagnosis(Tool, _).
step_after(Tool, Last, 2) :- diagnosis(Tool, Last).
step_after("full_stack_diagnosis", 4, 3).

arg_value(Tool, 1, "har", File) :- diagnosis(Tool, _), setting("recording", File).
arg_step(Tool, 2, "requests", 1, "/requests") :- diagnosis(Tool, _).
arg_value(Tool, 2, "errors", Errors) :- diagnosis(Tool, _), seen_errors(Errors).
arg_value("full_stack_diagnosis", 3, "file", File) :- failing_service(_, File).
arg_step(Tool, Last, "chain", 2, "/chain") :- diagnosis(Tool, Last).
arg_value("frontend_diagnosis", 3, "log", []).
arg_step("full_stack_diagnosis", 4, "log", 3, "/lines").

# The errors that the client asserted become a fixed argument when the tool is proven.
seen_error(Error) :-
  recent_error(Message),
  console_event(_, "error", Message, At),
  Text = fn:time:format(At, /second),
  Error = ["message" : Message, "at" : Text].
seen_errors(Errors) :- seen_error(Error) |> do fn:group_by(), let Errors = fn:collect(Error).

# Instructions for the model. They contain no text of the web page, which could be a prompt injection.
instruction(Tool, 1, Text) :-
  diagnosis(Tool, _),
  failed_request(_, _, Status)
  |> let Text = fn:string:concat("A recent request failed with status ", Status, ".").
instruction("full_stack_diagnosis", 2, Text) :-
  failing_service(Service, _)
  |> let Text = fn:string:concat("The service ", Service, " logged errors at the same time.").
instruction("frontend_diagnosis", 2, "There is no backend log: the cause is likely, not proven.") :-
  !has_backend_log().

needs_skill(Tool, "failed-requests") :- diagnosis(Tool, _), has_failed_request().
needs_skill("full_stack_diagnosis", "backend-logs") :- has_backend_log().

needs_resource(Tool, Uri, "the recorded requests", 60) :-
  diagnosis(Tool, _),
  setting("recording", File),
  Uri = fn:string:concat("file://", File).
needs_resource("full_stack_diagnosis", Uri, Why, 90) :-
  failing_service(Service, File),
  Uri = fn:string:concat("file://", File),
  Why = fn:string:concat("the log of ", Service).
