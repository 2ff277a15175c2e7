from manglecp import action


@action(effects=["none"])
def add(a: int, b: int = 2) -> int:
    """Add two numbers."""
    return a + b
