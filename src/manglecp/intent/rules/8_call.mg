# Other names of the facts about a call, for rules about a run.

run_of(Tool) :- call(Tool).
run_arg(Name, Value) :- call_arg(Name, Value).
