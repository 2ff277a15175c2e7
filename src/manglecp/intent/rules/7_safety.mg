# The effects of a tool and its need for approval follow from its actions, and no rule of a pack can remove them. Undo
# actions count as well.

kernel.may_run(Tool, Action) :- macro_step(Tool, _, Action).
kernel.may_run(Tool, Action) :- undo_step(Tool, _, Action).

macro_effect(Tool, Effect) :- kernel.may_run(Tool, Action), action_effect(Action, Effect).

needs_confirmation(Tool) :- needs_approval(Tool, _).
needs_confirmation(Tool) :- four_eyes(Tool).
needs_confirmation(Tool) :- macro_effect(Tool, "payments").
needs_confirmation(Tool) :- macro_effect(Tool, "destructive").
needs_confirmation(Tool) :- macro_effect(Tool, "authentication").
needs_confirmation(Tool) :- kernel.may_run(Tool, Action), action_tier(Action, 3).
