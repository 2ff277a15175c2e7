# The predicates of a program that selects the next action of a run (manglecp run --rules).

# --- asserted by the runner, in every step ----------------------------------------------------------------------------

Decl goal(Id) descr [doc("The id of the goal.")] bound [/string].
Decl menu(Sid, Aid, Name)
  descr [doc("An entry of the menu: its selection id, the id and the name of its action.")]
  bound [/string, /string, /string].
Decl menu_tag(Sid, Tag) descr [doc("A tag of the action.")] bound [/string, /string].
Decl menu_input(Sid, Name, Required)
  descr [doc("An input that the schema of the action names; Required is /true or /false.")]
  bound [/string, /string, /name].
Decl input(Name, Value) descr [doc("An input of the run.")] bound [/string, /any].
Decl slot(Number, Type, Provenance, Content)
  descr [doc("An occupied slot of the state, with the members of its artifact.")]
  bound [/number, /string, /string, /string].

# --- derived by the program -------------------------------------------------------------------------------------------

Decl pick(Sid) descr [doc("The entry may be picked, with rank 0.")] bound [/string].
Decl pick(Sid, Rank)
  descr [doc("The entry may be picked. The highest rank wins, then the lowest selection id.")]
  bound [/string, /number].
Decl input_value(Sid, Name, Value)
  descr [doc("The value of an input that the pick of the entry sets.")]
  bound [/string, /string, /any].
Decl ask_supervisor(Reason) descr [doc("Without a pick: end the run with ASK_SUP, not with NOOP.")] bound [/string].
