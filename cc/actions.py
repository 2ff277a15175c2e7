from manglecp import action


@action(effects=["none"])
def add(a: int) -> int:
    """Add."""
    return a
