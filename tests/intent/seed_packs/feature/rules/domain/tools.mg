tool("implement_api_endpoints").

has_backend_step(Phase) :- phase_step(Phase, "backend").
needs_file(File, Why, Priority) :- has_backend_step(_), spec_file(File, Why, Priority).

spec_file("docs/specs/feature-001/04-api-contracts.md", "Contains the endpoint specifications and request/response schemas", 100).
spec_file("src/routes/router.go", "Existing router pattern to follow for new endpoint registration", 90).
spec_file("src/services/user_service.go", "Existing service that handles UserProfile CRUD; new endpoints will delegate to this", 80).
spec_file("docs/specs/feature-001/02-cross-system-map.md", "Shows how UserProfile flows from API to SDK to frontend components", 50).
mandatory_for_intent(Tool) :-
  intent("implement"),
  tool(Tool),
  has_backend_step(_),
  needs_file(_, _, _).
mandatory(Tool) :- mandatory_for_intent(Tool).

macro(Tool, "Implement the REST API endpoints defined in the spec's API contracts section. Creates route handlers, request validation, and database queries for the UserProfile CRUD operations.") :-
  tool(Tool).
macro_step(Tool, 1, "implement") :- tool(Tool).
macro_param(Tool, "phase_id", Schema) :-
  tool(Tool),
  Schema = ["type" : "integer", "description" : "The implementation phase number"].
macro_param(Tool, "dry_run", Schema) :-
  tool(Tool),
  Schema = {/type : "boolean", /default : /false, /description : "If true, validate the implementation plan without writing files"}.
macro_output(Tool, Schema) :-
  tool(Tool),
  Texts = {/type : "array", /items : {/type : "string"}},
  Schema = {/type : "object", /properties : {/files_created : Texts, /tests_generated : Texts, /status : {/type : "string"}}}.

instruction(Tool, Phase, Text) :-
  tool(Tool),
  has_backend_step(Phase),
  Text = fn:string:concat("Implement Phase ", Phase, " backend endpoints. The UserProfile entity is served by the /api/v1/users endpoint. The existing SDK service UserService already handles authentication. Wire the new endpoints through the existing router pattern in src/routes/.").
needs_skill(Tool, "api-contract-validation") :- tool(Tool), has_backend_step(_).
needs_resource(Tool, Uri, Why, Priority) :-
  tool(Tool),
  needs_file(File, Why, Priority),
  Uri = fn:string:concat("file://", File).

needs_confirmation(Tool) :- tool(Tool).
reversible(Tool) :- tool(Tool).
valid_for(Tool, Span) :- tool(Tool), Span = fn:duration:parse("1h").
