failed_lately(Service) :- <-[0s, 600s] build_result(Service, _, "failed").

mandatory("explain_build_failure") :- intent("investigate_build"), failed_lately(_).
macro("explain_build_failure", "Collects the failing step, its log excerpt and the last green build, and names the likely cause.").
macro_step("explain_build_failure", 1, "explain").

relevant("rerun_build", 50) :-
  intent("investigate_build"),
  failed_lately(Service),
  incident_open(Service, _).
macro("rerun_build", "Starts the build again with the same inputs.").
macro_step("rerun_build", 1, "rerun").
