# The words that rules speak. Whoever writes a pack finds here what each of them means, who says it, and of which types
# its arguments are. All names of tools, actions, skills, intents and parameters are strings.

# --- asserted by the kernel, for every request -----------------------------------------------------------------------

Decl intent(Name) descr [doc("The intent of the request.")] bound [/string].
Decl intent_param(Key, Value) descr [doc("A parameter of the intent.")] bound [/string, /any].
Decl client(Identity) descr [doc("Who asks, as the server found out.")] bound [/string].
Decl client_permission(Permission) descr [doc("What whoever asks may do.")] bound [/string].
Decl client_trust(Level)
  descr [
    doc("How far whoever asks is trusted: anonymous, local, user, automated, or what the server says."),
  ]
  bound [/string].

# --- asserted by the kernel, when a pack is loaded -------------------------------------------------------------------

Decl action(Action) descr [doc("An action of the pack.")] bound [/string].
Decl action_effect(Action, Effect)
  descr [doc("What running the action touches.")]
  bound [/string, /string].
Decl action_tier(Action, Tier)
  descr [doc("The lease that the action needs, 0 to 3.")]
  bound [/string, /number].
Decl action_param(Action, Name, Required)
  descr [doc("A parameter of the action; Required is /true or /false.")]
  bound [/string, /string, /name].
Decl skill(Skill) descr [doc("A skill of the pack.")] bound [/string].
Decl setting(Name, Value)
  descr [doc("A parameter of the pack, as whoever runs it has set it.")]
  bound [/string, /string].
Decl permitted_only()
  descr [doc("The pack has a rule for permitted, so that everything else is excluded.")].

# --- written by policy -----------------------------------------------------------------------------------------------

Decl prohibited(Tool, Reason) descr [doc("The tool must not be offered.")] bound [/string, /string].
Decl permitted(Tool)
  descr [doc("The tool may be offered. With any rule for this, what is not permitted is excluded.")]
  bound [/string].
Decl intent_denied(Reason) descr [doc("The request is refused.")] bound [/string].
Decl fact_denied(Predicate, Reason)
  descr [doc("Facts of this predicate are refused.")]
  bound [/string, /string].
Decl effect_denied(Action, Reason)
  descr [doc("The action must not run; tools that need it are excluded.")]
  bound [/string, /string].

# --- written by the domain: which tools ------------------------------------------------------------------------------

Decl mandatory(Tool) descr [doc("The intent cannot do without the tool.")] bound [/string].
Decl relevant(Tool, Score)
  descr [doc("The tool would help, by a score from 0 to 100.")]
  bound [/string, /number].
Decl conflicts(A, B)
  descr [doc("Only one of the two is offered: the better one, by name between equals.")]
  bound [/string, /string].
Decl requires(Tool, Needed)
  descr [doc("The first tool is offered only together with the second.")]
  bound [/string, /string].

# --- written by the domain: what they are ----------------------------------------------------------------------------

Decl macro(Tool, Description) descr [doc("The tool exists.")] bound [/string, /string].
Decl macro_summary(Tool, Line) descr [doc("One line about the tool.")] bound [/string, /string].
Decl macro_param(Tool, Name, Schema)
  descr [doc("A parameter of the tool; the schema is a map that is JSON Schema.")]
  bound [/string, /string, /any].
Decl optional_param(Tool, Name)
  descr [doc("The parameter may be left out.")]
  bound [/string, /string].
Decl macro_step(Tool, N, Action)
  descr [doc("Step N of the chain runs the action.")]
  bound [/string, /number, /string].
Decl arg_value(Tool, N, Param, Value)
  descr [doc("The parameter of step N has this value, fixed when the tool is proven.")]
  bound [/string, /number, /string, /any].
Decl arg_from(Tool, N, Param, Name)
  descr [doc("The parameter of step N is the call argument of this name.")]
  bound [/string, /number, /string, /string].
Decl arg_step(Tool, N, Param, M, Pointer)
  descr [doc("The parameter of step N is what the JSON Pointer finds in the result of step M.")]
  bound [/string, /number, /string, /number, /string].
Decl arg_kept(Tool, N, Param, Run, Name)
  descr [
    doc("The parameter of step N is what an earlier run of the same client kept under this name."),
  ]
  bound [/string, /number, /string, /string, /string].
Decl macro_result(Tool, Key, N, Pointer)
  descr [doc("A member of the result object; without any, the result is that of the last step.")]
  bound [/string, /string, /number, /string].
Decl macro_output(Tool, Schema) descr [doc("The JSON Schema of the result.")] bound [/string, /any].
Decl step_after(Tool, N, M)
  descr [
    doc("Step N waits for step M. With any such fact, steps that nothing relates run in parallel."),
  ]
  bound [/string, /number, /number].
Decl on_error(Tool, N, What)
  descr [doc("What happens when step N fails: stop, continue or undo.")]
  bound [/string, /number, /string].
Decl undo_step(Tool, N, Action)
  descr [doc("The action that takes step N back.")]
  bound [/string, /number, /string].
Decl undo_value(Tool, N, Param, Value)
  descr [doc("A parameter of the undoing action, fixed.")]
  bound [/string, /number, /string, /any].
Decl undo_in(Tool, N, Param, Name)
  descr [doc("A parameter of the undoing action, as step N had it.")]
  bound [/string, /number, /string, /string].
Decl undo_out(Tool, N, Param, Pointer)
  descr [doc("A parameter of the undoing action, from the result of step N.")]
  bound [/string, /number, /string, /string].

Decl nothing_to_undo(Tool, N)
  descr [doc("Step N leaves nothing behind, although its action has effects.")]
  bound [/string, /number].

# --- written by the domain: what comes with them ---------------------------------------------------------------------

Decl instruction(Tool, N, Text)
  descr [doc("What to mind when using the tool now, in the order of N.")]
  bound [/string, /number, /string].
Decl needs_skill(Tool, Skill)
  descr [doc("The skill is needed for the tool.")]
  bound [/string, /string].
Decl needs_resource(Tool, Uri, Why, Priority)
  descr [doc("The resource is worth reading, by a priority from 0 to 100.")]
  bound [/string, /string, /string, /number].
Decl needs_confirmation(Tool) descr [doc("A person has to agree first.")] bound [/string].
Decl reversible(Tool) descr [doc("What the tool does can be undone.")] bound [/string].
Decl idempotent(Tool) descr [doc("Twice is the same as once.")] bound [/string].
Decl valid_for(Tool, Span)
  descr [doc("The tool is valid for so long from now.")]
  bound [/string, /duration].
Decl valid_until(Tool, End) descr [doc("The tool is valid until then.")] bound [/string, /time].

# --- asserted by the kernel during and after a run -------------------------------------------------------------------

Decl run_id(Run) descr [doc("The run.")] bound [/string].
Decl run_of(Tool) descr [doc("The tool that runs, or ran.")] bound [/string].
Decl ran(Tool) descr [doc("The tool ran.")] bound [/string].
Decl run_arg(Name, Value) descr [doc("A call argument of the run.")] bound [/string, /any].
Decl step_status(N, Action, Status)
  descr [doc("How step N ended: success, failure or skipped.")]
  bound [/number, /string, /string].
Decl step_value(N, Key, Value)
  descr [doc("What an extractor found in the result of step N.")]
  bound [/number, /string, /any].

# --- written by the domain: what a run means -------------------------------------------------------------------------

Decl extract(Action, Key, Pointer)
  descr [doc("The only way from the result of an action to a fact: step_value(N, Key, …).")]
  bound [/string, /string, /string].
Decl keep(Action, Name, Pointer)
  descr [
    doc("This part of the result of an action with effects is kept under the run, for a later one."),
  ]
  bound [/string, /string, /string].
Decl skip_step(N, Why)
  descr [doc("Step N of the running tool is left out.")]
  bound [/number, /string].
Decl asserts(Predicate, Args, Category)
  descr [doc("The state delta states this fact.")]
  bound [/string, /any, /string].
Decl asserts_during(Predicate, Args, Category, Start, End)
  descr [doc("The same for a time.")]
  bound [/string, /any, /string, /time, /time].
Decl retracts(Predicate, Args)
  descr [doc("The state delta takes these facts back; /_ stands for any value.")]
  bound [/string, /any].
Decl suggests(Intent, Params, Why)
  descr [doc("An intent that would be good to declare next.")]
  bound [/string, /any, /string].
Decl continues_with(Predicate, Args)
  descr [doc("A fact that the next request should bring.")]
  bound [/string, /any].
Decl summary(Text) descr [doc("What the run did, in a sentence.")] bound [/string].
Decl bulk_asserted(Predicate, Count)
  descr [doc("More facts of the predicate became true than are listed."), direction("both")]
  bound [/string, /number].
Decl bulk_retracted(Predicate, Count)
  descr [doc("More facts of the predicate ceased to be true than are listed."), direction("both")]
  bound [/string, /number].

# --- derived by the kernel -------------------------------------------------------------------------------------------

Decl macro_effect(Tool, Effect)
  descr [doc("What running the tool touches: the effects of its actions.")]
  bound [/string, /string].
Decl candidate(Tool, Score, Phase)
  descr [doc("The tool speaks to the intent.")]
  bound [/string, /number, /string].
Decl excluded(Tool, Phase, Reason)
  descr [doc("The tool spoke to the intent, or was needed, and is not offered.")]
  bound [/string, /string, /string].
Decl chosen(Tool, Score, Phase)
  descr [doc("The candidate has survived its rivals.")]
  bound [/string, /number, /string].
Decl final_selected(Tool, Score, Phase)
  descr [doc("The tool is offered.")]
  bound [/string, /number, /string].
Decl offered(Tool) descr [doc("The same, whatever its score.")] bound [/string].

# --- the kernel's own steps from one phase to the next, declared so that nobody else can ------------------------------

Decl core(Tool) descr [doc("The tool is mandatory.")] bound [/string].
Decl named(Tool)
  descr [doc("The tool is a candidate, or a candidate cannot do without it.")]
  bound [/string].
Decl barred_by(Tool, Kind, Reason)
  descr [doc("What keeps a named tool out: policy, capability or undefined.")]
  bound [/string, /string, /string].
Decl barred(Tool) descr [doc("Something does.")] bound [/string].
Decl broken(Tool) descr [doc("The tool needs a barred one.")] bound [/string].
Decl able(Tool) descr [doc("The candidate can stand.")] bound [/string].
Decl pulled(Tool) descr [doc("A candidate that can stand needs the tool.")] bound [/string].
Decl weight(Tool, Score) descr [doc("A score of a tool among rivals.")] bound [/string, /number].
Decl strength(Tool, Score) descr [doc("The best of them.")] bound [/string, /number].
Decl rivals(A, B) descr [doc("The two are in conflict, in either order.")] bound [/string, /string].
Decl loses_to(Tool, Other) descr [doc("The other rival is better.")] bound [/string, /string].
Decl gone(Tool) descr [doc("The tool lost, or needs a loser.")] bound [/string].
Decl may_run(Tool, Action)
  descr [doc("The action is a step of the tool, or takes one back.")]
  bound [/string, /string].
Decl kept(Tool) descr [doc("The tool is chosen.")] bound [/string].
Decl needed(Tool) descr [doc("A chosen tool needs it.")] bound [/string].
Decl worth(Tool, Score) descr [doc("A score of an offered tool.")] bound [/string, /number].
Decl worth_most(Tool, Score) descr [doc("The best of them.")] bound [/string, /number].
