mandatory(Tool) :- intent("conformance"), macro(Tool, _).
needs_skill("test_simple_text", "texts") :- intent("conformance").
