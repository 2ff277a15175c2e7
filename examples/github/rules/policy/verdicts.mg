# prohibited(Tool, Text) denies a call. The text is public, so that the model can act on it.

public_reason(Tool, Text) :- prohibited(Tool, Text).

permitted("read_issue").
permitted("comment") :- client_permission("maintain").
permitted("label_issue") :- client_permission("maintain").
permitted("close_issue") :- client_permission("maintain").

# Everybody can read a comment and a closed issue, so a person approves both.
needs_confirmation("comment").
needs_confirmation("close_issue").

about(Number) :- call_arg("number", Number).
changes("comment"). changes("label_issue"). changes("close_issue").

prohibited(Tool, "only open issues are changed, and this number is none") :-
  call(Tool),
  changes(Tool),
  about(Number),
  !issue(Number, _, _).

prohibited("close_issue", "an issue with the label security is closed by a person, on GitHub") :-
  about(Number),
  issue_label(Number, "security").

prohibited("close_issue", Text) :-
  about(Number),
  closes(Pull, Number),
  Text = fn:string:concat("pull request ", fn:number:to_string(Pull), " is open for this issue: wait until it is merged").

prohibited("label_issue", Text) :-
  call_arg("labels", Labels),
  :list:member(Label, Labels),
  !repository_label(Label),
  Text = fn:string:concat("the repository has no label ", Label).
