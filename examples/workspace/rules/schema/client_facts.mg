# Facts that clients assert, and facts in the deltas of runs.

Decl topic(Word)
  descr [doc("A word of the question that may occur in a name or path."), direction("input")]
  bound [/string].
Decl failing_test(TestId)
  descr [doc("The pytest id or the file of a failing test."), direction("both")]
  bound [/string].
Decl traceback(Text)
  descr [doc("A traceback, or the output of pytest."), direction("input")]
  bound [/string].
Decl failed_at(Path, Line)
  descr [doc("A line of the repository in a traceback."), direction("both")]
  bound [/string, /number].
Decl raised_at(Path, Line)
  descr [doc("The line of the repository at which an error was raised."), direction("both")]
  bound [/string, /number].
Decl to_change(Path)
  descr [
    doc("A file to change, create or delete, relative to the root. Other files cannot be changed."),
    direction("input"),
  ]
  bound [/string].
Decl commit_to(Branch)
  descr [doc("The branch to which changes are committed."), direction("input")]
  bound [/string].
Decl to_commit(Path)
  descr [
    doc("A file to commit. Without such facts, all changed files are committed."),
    direction("input"),
  ]
  bound [/string].
Decl applied(Run, Path)
  descr [doc("The run has changed the file, and the change can be undone."), direction("both")]
  bound [/string, /string].
