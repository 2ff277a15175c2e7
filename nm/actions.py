from manglecp import action


@action(effects=["none"])
def größe(a: int) -> int:
    """Add."""
    return a
