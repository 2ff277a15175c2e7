Decl build_result(Service, Number, Outcome) temporal
  descr [doc("Outcome of one CI build"), direction("input"), untimed("now")]
  bound [/string, /number, /string].
Decl release_candidate(Service, Version)
  descr [doc("What may be shipped"), direction("input")]
  bound [/string, /string].
Decl incident_open(Service, Severity)
  descr [doc("An incident that is not over"), direction("both")]
  bound [/string, /number].
