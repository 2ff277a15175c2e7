# What a client says, and what runs tell it.

Decl topic(Word)
  descr [doc("A word of the question, as it may stand in a name or path."), direction("input")]
  bound [/string].
Decl failing_test(TestId)
  descr [doc("A test that fails, as pytest names it; or its file."), direction("both")]
  bound [/string].
Decl traceback(Text)
  descr [doc("A traceback, or what pytest printed."), direction("input")]
  bound [/string].
Decl failed_at(Path, Line)
  descr [doc("A line of the repository that a traceback goes through."), direction("both")]
  bound [/string, /number].
Decl raised_at(Path, Line)
  descr [doc("The line of the repository that an error was raised in."), direction("both")]
  bound [/string, /number].
Decl to_change(Path)
  descr [
    doc("A file that is to be changed, made or deleted; relative to the root. Nothing else can be."),
    direction("input"),
  ]
  bound [/string].
Decl commit_to(Branch)
  descr [doc("The branch that changes are to be committed to."), direction("input")]
  bound [/string].
Decl to_commit(Path)
  descr [
    doc("A file that is to be committed. If none is named, all that have changed are."),
    direction("input"),
  ]
  bound [/string].
Decl applied(Run, Path)
  descr [doc("The run has changed the file, and that can be taken back."), direction("both")]
  bound [/string, /string].
