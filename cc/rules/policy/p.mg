call_arg("a", 5) :- call("add").
