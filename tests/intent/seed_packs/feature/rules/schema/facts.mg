Decl phase_step(Phase, Layer)
  descr [doc("A step of the plan."), direction("input")]
  bound [/number, /string].
