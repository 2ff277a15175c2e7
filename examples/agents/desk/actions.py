from typing import Annotated

from manglecp import Limits, action


@action(effects=["filesystem"])
def refund(order: str, amount: Annotated[int, Limits(ge=1)]) -> str:
    """Refund an order, in whole or in part."""
    with open("refunds.txt", "a") as book:
        print(order, amount, file=book)
    return f"refunded {amount} for {order}"
