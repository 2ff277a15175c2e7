# The state of the repository, as facts.py reads it from GitHub. No client can assert any of it.

Decl issue(Number, Title) descr [doc("An open issue.")] bound [/number, /string].
Decl issue_label(Number, Label) descr [doc("A label of an open issue.")] bound [/number, /string].
Decl pull_request(Number, Title) descr [doc("An open pull request.")] bound [/number, /string].
Decl closes(Pull, Issue)
  descr [doc("An open pull request that will close the issue.")]
  bound [/number, /number].
Decl repository_label(Label) descr [doc("A label that the repository has.")] bound [/string].
