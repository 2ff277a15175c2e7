# After a run: the delta, the summary and the suggested intents. Facts come from results only through these pointers.

extract("name_cause", "error", "/error").
extract("name_cause", "cause", "/cause").
extract("name_cause", "file", "/file").
extract("name_cause", "fix", "/fix").
extract("replace_file", "changed", "/file").

found(Error, Cause) :- step_value(N, "error", Error), step_value(N, "cause", Cause).
mend(File, Fix) :- step_value(N, "file", File), step_value(N, "fix", Fix), Fix != "".

asserts("diagnosed_error", Args, "server") :- found(Error, Cause) |> let Args = [Error, Cause].
asserts("fix_candidate", Args, "derived") :- mend(File, Fix) |> let Args = [File, Fix].
retracts("undiagnosed_error", Args) :- found(Error, _) |> let Args = [Error].
continues_with("diagnosed_error", Args) :- found(Error, Cause) |> let Args = [Error, Cause].
continues_with("fix_candidate", Args) :- mend(File, Fix) |> let Args = [File, Fix].
suggests("fix_error", Params, "The cause has a straightforward fix.") :-
  mend(File, Fix)
  |> let Params = ["file" : File, "fix" : Fix].

retracts("fix_candidate", Args) :- step_value(_, "changed", File) |> let Args = [File, /_].
suggests("observe", Params, "See whether the failure is gone.") :-
  step_value(_, "changed", _)
  |> let Params = ["focus" : "network"].

summary(Text) :-
  found(Error, Cause)
  |> let Text = fn:string:concat("Traced '", Error, "' to its cause: ", Cause, ".").
summary(Text) :-
  step_value(_, "changed", File)
  |> let Text = fn:string:concat("Changed ", File, ".").
