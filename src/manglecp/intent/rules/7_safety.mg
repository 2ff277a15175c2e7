# What is dangerous about a tool follows from its actions, and no rule of a pack can take it back. Undoing a step is part
# of what a tool may do.

may_run(Tool, Action) :- macro_step(Tool, _, Action).
may_run(Tool, Action) :- undo_step(Tool, _, Action).

macro_effect(Tool, Effect) :- may_run(Tool, Action), action_effect(Action, Effect).

needs_confirmation(Tool) :- macro_effect(Tool, "payments").
needs_confirmation(Tool) :- macro_effect(Tool, "destructive").
needs_confirmation(Tool) :- macro_effect(Tool, "authentication").
needs_confirmation(Tool) :- may_run(Tool, Action), action_tier(Action, 3).
