Decl undiagnosed_error(ErrorId)
  descr [doc("An error whose cause is not known."), direction("both")]
  bound [/string].
Decl diagnosed_error(ErrorId, Cause)
  descr [doc("An error and its cause."), direction("both")]
  bound [/string, /string].
Decl fix_candidate(File, Fix)
  descr [doc("A change that would mend it."), direction("both")]
  bound [/string, /string].
