# prohibited(Tool, Text) denies a call. The text is public: the model that made the call can act on it.
# Each head names its tool. So stale facts deny the tools that change something, and reading still works.

public_reason(Tool, Text) :- prohibited(Tool, Text).

permitted("list_issues").
permitted("read_issue").
permitted("comment") :- client_permission("maintain").
permitted("label_issue") :- client_permission("maintain").
permitted("close_issue") :- client_permission("maintain").

# The public reads a comment, and misses a closed issue. Labels can be set back.
needs_confirmation("comment").
needs_confirmation("close_issue").

prohibited("comment", Text) :- not_for_agents(Text).
prohibited("label_issue", Text) :- not_for_agents(Text).
prohibited("close_issue", Text) :- not_for_agents(Text).

not_for_agents(Text) :-
  call(_),
  call_arg("number", Number),
  !issue(Number, _),
  Text = fn:string:concat("there is no open issue ", Number).
not_for_agents(Text) :-
  call(_),
  call_arg("number", Number),
  issue_label(Number, "security"),
  Text = fn:string:concat("issue ", Number, " has the label security: leave it to a person").

prohibited("label_issue", Text) :-
  call("label_issue"),
  call_arg("labels", Labels),
  :list:member(Label, Labels),
  !repository_label(Label),
  Text = fn:string:concat("the repository has no label ", Label).

prohibited("close_issue", Text) :-
  call("close_issue"),
  call_arg("number", Number),
  closes(Pull, Number),
  pull_request(Pull, Title),
  Text = fn:string:concat("pull request ", Pull, " (", Title, ") will close issue ", Number, ": wait until it is merged").
