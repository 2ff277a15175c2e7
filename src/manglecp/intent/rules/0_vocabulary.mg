# The predicates of the kernel: their meaning, the types of their arguments and, by heading, where their facts come from.
# All names of tools, actions, skills, intents and parameters are strings.

# --- asserted by the kernel, for every request -----------------------------------------------------------------------

Decl intent(Intent) descr [doc("The intent of the request.")] bound [/string].
Decl intent_param(Key, Value) descr [doc("A parameter of the intent.")] bound [/string, /any].
Decl client(Identity) descr [doc("The identity of the principal.")] bound [/string].
Decl client_permission(Permission) descr [doc("A permission of the principal.")] bound [/string].
Decl client_trust(Level)
  descr [
    doc("The trust level of the principal: anonymous, local, user, automated, or a level of the server."),
  ]
  bound [/string].

Decl stale_source(Source, Reason)
  descr [doc("The facts of the source are older than stale_after, or have never arrived.")]
  bound [/string, /string].

# --- asserted by the kernel, when a pack is loaded -------------------------------------------------------------------

Decl action(Action) descr [doc("An action of the pack.")] bound [/string].
Decl action_effect(Action, Effect)
  descr [doc("An effect that the action declares.")]
  bound [/string, /string].
Decl action_tier(Action, Tier)
  descr [doc("How dangerous the action is, from 0 (no effects) to 3.")]
  bound [/string, /number].
Decl action_param(Action, Name, Required)
  descr [doc("A parameter of the action; Required is /true or /false.")]
  bound [/string, /string, /name].
Decl skill(Skill) descr [doc("A skill of the pack.")] bound [/string].
Decl setting(Name, Value)
  descr [doc("A parameter of the pack, with the value that the operator has set.")]
  bound [/string, /string].
Decl source_guards(Source, Kind, Name)
  descr [
    doc("Rules about the tool or action read facts of the source, whose on_stale is deny. Kind is tool, action or any."),
  ]
  bound [/string, /string, /string].
Decl permitted_only()
  descr [doc("The pack has a rule for permitted, so all other tools are excluded.")].

# --- defined by policy rules -----------------------------------------------------------------------------------------

Decl prohibited(Tool, Reason) descr [doc("The tool must not be offered.")] bound [/string, /string].
Decl permitted(Tool)
  descr [
    doc("The tool may be offered. If there is a rule for this predicate, all other tools are excluded."),
  ]
  bound [/string].
Decl intent_denied(Reason) descr [doc("The request is refused.")] bound [/string].
Decl fact_denied(ClientPredicate, Reason)
  descr [doc("Facts of this predicate are refused.")]
  bound [/string, /string].
Decl effect_denied(Action, Reason)
  descr [doc("The action must not run; tools with the action in a step are excluded.")]
  bound [/string, /string].
Decl public_reason(Tool, Text)
  descr [
    doc("Sent to the client if a call of the tool is denied or needs an approval. Other reasons are for operators only."),
  ]
  bound [/string, /string].

# --- defined by domain rules: selection of tools ---------------------------------------------------------------------

Decl mandatory(Tool) descr [doc("The intent requires the tool.")] bound [/string].
Decl relevant(Tool, Score)
  descr [doc("The tool is helpful, with a score from 0 to 100.")]
  bound [/string, /number].
Decl conflicts(Tool, Rival)
  descr [
    doc("Only one of the two tools is offered: the one with the higher score, or the first by name."),
  ]
  bound [/string, /string].
Decl requires(Tool, Needed)
  descr [doc("The first tool is offered only together with the second.")]
  bound [/string, /string].

# --- defined by domain rules: definition of tools --------------------------------------------------------------------

Decl macro(Tool, Description) descr [doc("The tool exists.")] bound [/string, /string].
Decl macro_summary(Tool, Line) descr [doc("One line about the tool.")] bound [/string, /string].
Decl macro_param(Tool, Name, Schema)
  descr [doc("A parameter of the tool; Schema is a JSON Schema as a map.")]
  bound [/string, /string, /any].
Decl optional_param(Tool, Name)
  descr [doc("The parameter may be left out.")]
  bound [/string, /string].
Decl macro_step(Tool, N, Action)
  descr [doc("Step N of the chain runs the action.")]
  bound [/string, /number, /string].
Decl arg_value(Tool, N, Param, Value)
  descr [doc("The parameter of step N has this value, which is fixed when the tool is proven.")]
  bound [/string, /number, /string, /any].
Decl arg_from(Tool, N, Param, Name)
  descr [doc("The parameter of step N is the call argument of this name.")]
  bound [/string, /number, /string, /string].
Decl arg_step(Tool, N, Param, M, Pointer)
  descr [doc("The parameter of step N is the value at the JSON Pointer in the result of step M.")]
  bound [/string, /number, /string, /number, /string].
Decl arg_kept(Tool, N, Param, Run, Name)
  descr [
    doc("The parameter of step N is the value that an earlier run of the same principal kept as Name."),
  ]
  bound [/string, /number, /string, /string, /string].
Decl macro_result(Tool, Key, N, Pointer)
  descr [
    doc("A member of the result object; without such facts, the result is that of the last step."),
  ]
  bound [/string, /string, /number, /string].
Decl macro_output(Tool, Schema) descr [doc("The JSON Schema of the result.")] bound [/string, /any].
Decl step_after(Tool, N, M)
  descr [doc("Step N waits for step M. If there is such a fact, unrelated steps run in parallel.")]
  bound [/string, /number, /number].
Decl on_error(Tool, N, What)
  descr [doc("The reaction to a failure of step N: stop, continue or undo.")]
  bound [/string, /number, /string].
Decl undo_step(Tool, N, Action)
  descr [doc("The action that undoes step N.")]
  bound [/string, /number, /string].
Decl undo_value(Tool, N, Param, Value)
  descr [doc("A parameter of the undo action, with a fixed value.")]
  bound [/string, /number, /string, /any].
Decl undo_in(Tool, N, Param, Name)
  descr [doc("A parameter of the undo action, with the value of a parameter of step N.")]
  bound [/string, /number, /string, /string].
Decl undo_out(Tool, N, Param, Pointer)
  descr [doc("A parameter of the undo action, from the result of step N.")]
  bound [/string, /number, /string, /string].

Decl nothing_to_undo(Tool, N)
  descr [doc("Step N needs no undo action, although its action has effects.")]
  bound [/string, /number].

# --- defined by domain rules: context and validity of tools ----------------------------------------------------------

Decl instruction(Tool, N, Text)
  descr [doc("An instruction for the use of the tool, in the order of N.")]
  bound [/string, /number, /string].
Decl needs_skill(Tool, Skill)
  descr [doc("The tool is sent with the skill.")]
  bound [/string, /string].
Decl needs_resource(Tool, Uri, Why, Priority)
  descr [doc("The resource is useful for the tool, with a priority from 0 to 100.")]
  bound [/string, /string, /string, /number].
Decl needs_confirmation(Tool)
  descr [doc("A run of the tool needs an approval, by any approver.")]
  bound [/string].
Decl needs_approval(Tool, Role)
  descr [doc("A run of the tool needs an approval, by an approver with the permission Role.")]
  bound [/string, /string].
Decl four_eyes(Tool)
  descr [doc("A run of the tool needs an approval, by an approver other than the requester.")]
  bound [/string].
Decl reversible(Tool) descr [doc("The effects of the tool can be undone.")] bound [/string].
Decl idempotent(Tool) descr [doc("A second run has no further effect.")] bound [/string].
Decl valid_for(Tool, Span)
  descr [doc("The offer is valid for this duration from the evaluation time.")]
  bound [/string, /duration].
Decl valid_until(Tool, End)
  descr [doc("The offer is valid until this time.")]
  bound [/string, /time].

# --- asserted by the kernel, for a call that is decided, admitted or under way ---------------------------------------

Decl call(Tool) descr [doc("The tool that is called.")] bound [/string].
Decl call_arg(Name, Value) descr [doc("An argument of the call.")] bound [/string, /any].
Decl call_value(Pointer, Value)
  descr [
    doc("A string, number, /true, /false or /null anywhere in the arguments of the call, with its JSON Pointer."),
  ]
  bound [/string, /any].

# --- asserted by the kernel during and after a run -------------------------------------------------------------------

Decl run_id(Run) descr [doc("The id of the run.")] bound [/string].
Decl run_of(Tool) descr [doc("The same as call(Tool).")] bound [/string].
Decl ran(Tool) descr [doc("The tool of the completed run.")] bound [/string].
Decl run_arg(Name, Value) descr [doc("The same as call_arg(Name, Value).")] bound [/string, /any].
Decl step_status(N, Action, Status)
  descr [doc("The outcome of step N: success, failure or skipped.")]
  bound [/number, /string, /string].
Decl step_value(N, Key, Value)
  descr [doc("A value that an extract fact selects from the result of step N.")]
  bound [/number, /string, /any].

# --- defined by domain rules: results of a run -----------------------------------------------------------------------

Decl extract(Action, Key, Pointer)
  descr [
    doc("The value at the JSON Pointer in the result of the action becomes step_value(N, Key, Value). No other fact comes from results."),
  ]
  bound [/string, /string, /string].
Decl keep(Action, Name, Pointer)
  descr [
    doc("The value at the JSON Pointer in the result of an action with effects is stored with the run, for later runs."),
  ]
  bound [/string, /string, /string].
Decl skip_step(N, Why)
  descr [doc("Step N of the current run is skipped.")]
  bound [/number, /string].
Decl asserts(Predicate, Args, Category)
  descr [doc("The delta asserts this fact.")]
  bound [/string, /any, /string].
Decl asserts_during(Predicate, Args, Category, Start, End)
  descr [doc("The delta asserts this fact for an interval.")]
  bound [/string, /any, /string, /time, /time].
Decl retracts(Predicate, Args)
  descr [doc("The delta retracts these facts; /_ stands for any value.")]
  bound [/string, /any].
Decl suggests(Intent, Params, Why)
  descr [doc("A suggested next intent.")]
  bound [/string, /any, /string].
Decl continues_with(Predicate, Args)
  descr [doc("A fact that the next request should contain.")]
  bound [/string, /any].
Decl summary(Text) descr [doc("The effect of the run, in a sentence.")] bound [/string].
Decl bulk_asserted(Predicate, Count)
  descr [doc("The delta asserts more facts of the predicate than it lists."), direction("both")]
  bound [/string, /number].
Decl bulk_retracted(Predicate, Count)
  descr [doc("The delta retracts more facts of the predicate than it lists."), direction("both")]
  bound [/string, /number].

# --- derived by the kernel -------------------------------------------------------------------------------------------

Decl macro_effect(Tool, Effect)
  descr [doc("An effect of an action of the tool.")]
  bound [/string, /string].
Decl candidate(Tool, Score, Phase)
  descr [doc("The tool is mandatory or relevant for the intent.")]
  bound [/string, /number, /string].
Decl excluded(Tool, Phase, Reason)
  descr [doc("The tool was a candidate or a dependency, and is not offered.")]
  bound [/string, /string, /string].
Decl chosen(Tool, Score, Phase)
  descr [doc("The candidate won its conflicts.")]
  bound [/string, /number, /string].
Decl final_selected(Tool, Score, Phase)
  descr [doc("The tool is offered.")]
  bound [/string, /number, /string].
Decl offered(Tool) descr [doc("The tool is offered, with any score.")] bound [/string].

# --- derived by the kernel: intermediate results ---------------------------------------------------------------------

Decl kernel.core(Tool) descr [doc("The tool is mandatory.")] bound [/string].
Decl kernel.named(Tool)
  descr [doc("The tool is a candidate or a dependency of one.")]
  bound [/string].
Decl kernel.barred_by(Tool, Kind, Reason)
  descr [
    doc("The reason why a named tool is not offered; Kind is policy, capability or undefined."),
  ]
  bound [/string, /string, /string].
Decl kernel.outdated(Tool, Reason)
  descr [doc("Rules about the tool read facts of a stale source.")]
  bound [/string, /string].
Decl kernel.barred(Tool) descr [doc("The tool has a kernel.barred_by fact.")] bound [/string].
Decl kernel.broken(Tool)
  descr [doc("The tool requires a barred tool, directly or indirectly.")]
  bound [/string].
Decl kernel.able(Tool) descr [doc("The candidate is neither barred nor broken.")] bound [/string].
Decl kernel.pulled(Tool) descr [doc("An able candidate requires the tool.")] bound [/string].
Decl kernel.weight(Tool, Score)
  descr [doc("A score of a tool in conflicts.")]
  bound [/string, /number].
Decl kernel.strength(Tool, Score)
  descr [doc("The highest weight of a tool with rivals.")]
  bound [/string, /number].
Decl kernel.rivals(Tool, Rival)
  descr [doc("The two tools are in conflict, in either order.")]
  bound [/string, /string].
Decl kernel.loses_to(Tool, Other)
  descr [doc("The other tool wins the conflict.")]
  bound [/string, /string].
Decl kernel.gone(Tool)
  descr [doc("The tool lost a conflict, or requires a tool that lost.")]
  bound [/string].
Decl kernel.may_run(Tool, Action)
  descr [doc("The action is a step of the tool, or undoes one.")]
  bound [/string, /string].
Decl kernel.kept(Tool) descr [doc("The tool is chosen.")] bound [/string].
Decl kernel.needed(Tool) descr [doc("A chosen tool requires the tool.")] bound [/string].
Decl kernel.worth(Tool, Score) descr [doc("A score of an offered tool.")] bound [/string, /number].
Decl kernel.outdone(Tool, Score)
  descr [doc("The tool has a higher worth.")]
  bound [/string, /number].
