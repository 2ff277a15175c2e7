"""Tools with the names that the conformance suite calls, as far as a pack can offer them."""

from manglecp import ActionError, Context, action


@action(effects=[], deterministic=True)
def test_simple_text() -> str:
    """Return a text."""
    return "This is a simple text response for testing."


@action(effects=[])
def test_error_handling() -> str:
    """Fail."""
    raise ActionError("It fails on purpose")


@action(effects=[])
def test_tool_with_progress(context: Context) -> str:
    """Report progress."""
    for done in (0, 50, 100):
        context.progress(done, 100)
    return "done"


@action(effects=[])
def test_logging_tool(context: Context) -> str:
    """Write a line into the log of the server."""
    context.log("called")
    return "logged"


@action(effects=["payments"])
def test_streaming_elicitation() -> str:
    """Return a text after an approval."""
    return "approved"


@action(effects=["payments"])
def test_elicitation(message: str) -> str:
    """Return a text after an approval."""
    return message


@action(effects=["payments"])
def test_input_required_result_elicitation() -> str:
    """Return a text after an approval."""
    return "approved"


@action(effects=["payments"])
def test_input_required_result_request_state() -> str:
    """Return a text after an approval."""
    return "approved"


@action(effects=["payments"])
def test_input_required_result_tampered_state() -> str:
    """Return a text after an approval."""
    return "approved"


@action(effects=["payments"])
def test_input_required_result_capabilities() -> str:
    """Return a text after an approval."""
    return "approved"
