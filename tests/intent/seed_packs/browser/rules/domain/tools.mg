tool("diagnose_causal_chain").

has_console_errors() :- <-[0s, 600s] console_event(_, "error", _, _).
has_failed_request() :- <-[0s, 600s] net_request(_, _, _, _, _).
causal_chain_candidate(Tool) :- tool(Tool), has_console_errors(), has_failed_request().
mandatory_for_intent(Tool) :- intent("diagnose_error"), current_url(_), causal_chain_candidate(Tool).
mandatory(Tool) :- mandatory_for_intent(Tool).

macro(Tool, "Analyze the causal chain from the failed API request to the console TypeError, including network timing and DOM impact.") :-
  tool(Tool).
macro_step(Tool, 1, "query_console_errors") :- tool(Tool).
macro_step(Tool, 2, "correlate_network") :- tool(Tool).
macro_step(Tool, 3, "trace_dom_impact") :- tool(Tool).
macro_step(Tool, 4, "derive_root_cause") :- tool(Tool).
macro_param(Tool, "error_id", Schema) :- tool(Tool), Schema = {/type : "string"}.
macro_param(Tool, "include_network", Schema) :- tool(Tool), Schema = {/type : "boolean", /default : /true}.
instruction(Tool, 1, "Correlate the GET /users 404 response with the subsequent TypeError. Check if the component rendering depends on the API response data.") :-
  tool(Tool).
valid_for(Tool, Span) :- tool(Tool), Span = fn:duration:parse("5m").

asserts("diagnosed_error", [Error, "missing_route"], "server") :- ran(_), run_arg("error_id", Error).
asserts("fix_candidate", ["src/routes/router.go", "add_user_route"], "derived") :- ran(_).
retracts("undiagnosed_error", [Error]) :- ran(_), run_arg("error_id", Error).
summary("Traced causal chain from API 404 to console TypeError through 3 steps. Root cause: missing route handler.") :- ran(_).
suggests("fix_error", Params, "The diagnosed root cause has a straightforward fix: add the missing route handler.") :-
  ran(_),
  Params = {/file : "src/routes/router.go", /fix_type : "add_user_route"}.
suggests("observe", Params, "Check if other API endpoints are also missing.") :-
  ran(_),
  Params = {/focus : "network"}.
continues_with("diagnosed_error", [Error, "missing_route"]) :- ran(_), run_arg("error_id", Error).
continues_with("fix_candidate", ["src/routes/router.go", "add_user_route"]) :- ran(_).
