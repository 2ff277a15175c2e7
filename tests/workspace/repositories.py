"""Two repositories with a real history, made anew wherever a test wants one.

``layered`` is a small library that is kept well: layers that import downwards, tests that pass, several authors,
owners. ``messy`` (in a module of its own) has what scanners stumble over. Commits have the same names everywhere.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.workspace.messy import make_messy, messy
from tests.workspace.repository import ADA, BEN, CHI, Repository, copy, new

__all__ = ["Repository", "break_tax", "layered", "make_layered", "make_messy", "messy"]

# Its tests run dozens of times, in an environment with plugins that they do not need and that double their time.
_LEAN: Final = "-p no:hypothesispytest -p no:xdist -p no:pytest_cov -p no:anyio"

_MONEY: Final = '''"""Amounts in cents."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Money:
    cents: int
    currency: str = "EUR"

    def plus(self, other: Money) -> Money:
        same_currency(self, other)
        return Money(self.cents + other.cents, self.currency)

    def share(self, percent: int) -> Money:
        """So many hundredths of it; half a cent goes up."""
        return Money((self.cents * percent + 50) // 100, self.currency)


def same_currency(one: Money, other: Money) -> None:
    if one.currency != other.currency:
        raise ValueError(f"{one.currency} and {other.currency} do not add up")
'''

_TAX: Final = '''"""What the state takes, by kind of goods."""

from pricing.money import Money

RATES = {"food": 7, "books": 7, "other": 19}


def rate(kind: str) -> int:
    return RATES.get(kind, RATES["other"])


def tax(net: Money, kind: str) -> Money:
    return net.share(rate(kind))
'''

_BASKET: Final = '''"""Goods that somebody wants to buy."""

from __future__ import annotations

from . import tax as taxes
from .money import Money


class Basket:
    def __init__(self) -> None:
        self.items: list[tuple[str, Money]] = []

    def add(self, kind: str, price: Money) -> None:
        self.items.append((kind, price))

    def total(self) -> Money:
        total = Money(0)
        for kind, price in self.items:
            total = total.plus(price).plus(taxes.tax(price, kind))
        return total
'''

_API: Final = '''"""What other programs call."""

import json

from pricing import Basket, Money


def quote(order: str) -> str:
    basket = Basket()
    for kind, cents in json.loads(order):
        basket.add(kind, Money(cents))
    return json.dumps({"total": basket.total().cents})
'''

_LAYERED_TESTS: Final = {
    "tests/conftest.py": """import pytest

from pricing.basket import Basket


@pytest.fixture
def basket() -> Basket:
    return Basket()
""",
    "tests/test_money.py": """import pytest

from pricing.money import Money, same_currency


def test_amounts_add_up() -> None:
    assert Money(100).plus(Money(20)) == Money(120)


def test_half_a_cent_goes_up() -> None:
    assert Money(50).share(7) == Money(4)


def test_currencies_do_not_mix() -> None:
    with pytest.raises(ValueError, match="EUR and USD"):
        same_currency(Money(1), Money(1, "USD"))
""",
    "tests/test_tax.py": """from pricing import tax
from pricing.money import Money


def test_food_is_taxed_less() -> None:
    assert tax.tax(Money(1000), "food") == Money(70)


def test_what_is_not_known_is_other() -> None:
    assert tax.rate("boats") == 19
""",
    "tests/test_basket.py": """from pricing.basket import Basket
from pricing.money import Money


class TestBasket:
    def test_is_empty_at_first(self, basket: Basket) -> None:
        assert basket.total() == Money(0)

    def test_total_has_the_tax(self, basket: Basket) -> None:
        basket.add("books", Money(1000))
        basket.add("boats", Money(100))
        assert basket.total() == Money(1189)
""",
    "tests/test_api.py": """import json
import unittest

from pricing.api import quote


class Quotes(unittest.TestCase):
    def test_quote(self) -> None:
        self.assertEqual(json.loads(quote('[["food", 200]]')), {"total": 214})
""",
}

_OWNERS: Final = """# The last line that matches counts.
*                 @shop/core
*.md              docs@example.org
/pricing/tax.py   @ben @shop/legal
/migrations/      @chi
/pricing/legacy.py
"""


def layered(folder: Path) -> Repository:
    """A library ``pricing`` in ``folder``: money, tax, basket, api, each on top of the ones before it."""
    return copy(make_layered, folder)


def make_layered(folder: Path) -> Repository:
    """The same, from nothing."""
    repository = new(folder)
    repository.commit(
        "Count money in cents",
        ADA,
        {
            "pyproject.toml": '[project]\nname = "pricing"\nversion = "1.0"\n\n'
            f'[tool.pytest.ini_options]\npythonpath = ["."]\ntestpaths = ["tests"]\naddopts = "{_LEAN}"\n',
            ".gitignore": "__pycache__/\n.pytest_cache/\n*.log\n",
            "README.md": "# pricing\n\nWhat a basket costs.\n",
            "pricing/__init__.py": '"""What a basket costs."""\n',
            "pricing/money.py": _MONEY.replace("+ 50) // 100", ") // 100"),
            "tests/test_money.py": _LAYERED_TESTS["tests/test_money.py"].replace("Money(4)", "Money(3)"),
        },
    )
    repository.commit(
        "Add taxes", BEN, {"pricing/tax.py": _TAX, "tests/test_tax.py": _LAYERED_TESTS["tests/test_tax.py"]}
    )
    repository.commit(
        "Round half a cent up",
        CHI,
        {"pricing/money.py": _MONEY, "tests/test_money.py": _LAYERED_TESTS["tests/test_money.py"]},
    )
    repository.git("checkout", "--quiet", "-b", "basket")
    repository.commit(
        "Add up a basket",
        BEN,
        {
            "pricing/basket.py": _BASKET,
            "pricing/__init__.py": '"""What a basket costs."""\n\nfrom pricing.basket import Basket\n'
            'from pricing.money import Money\n\n__all__ = ["Basket", "Money"]\n',
            "tests/conftest.py": _LAYERED_TESTS["tests/conftest.py"],
            "tests/test_basket.py": _LAYERED_TESTS["tests/test_basket.py"],
        },
    )
    repository.git("checkout", "--quiet", "main")
    repository.commit(
        "Say who looks after what",
        CHI,
        {
            ".github/CODEOWNERS": _OWNERS,
            "migrations/0001_orders.py": '"""Make orders."""\n\nrevision = "0001"\ndown_revision = None\n\n\n'
            'def upgrade() -> str:\n    return "CREATE TABLE orders (id INTEGER)"\n',
            "uv.lock": 'version = 1\nrequires-python = ">=3.11"\n',
        },
    )
    repository.merge("basket", "Merge the basket", ADA)
    repository.git("branch", "--quiet", "--delete", "basket")
    repository.commit(
        "Answer quotes",
        ADA,
        {
            "pricing/api.py": _API,
            "pricing/old.py": "def total(prices):\n    return sum(prices)\n",
            "tests/test_api.py": _LAYERED_TESTS["tests/test_api.py"],
        },
    )
    repository.git("mv", "pricing/old.py", "pricing/legacy.py")
    repository.commit_staged("Say that it is old", ADA)
    return repository


def break_tax(repository: Repository) -> str:
    """A commit by Ben that taxes books as boats: ``pricing/tax.py`` is to blame, and a test of the basket fails."""
    wrong = _TAX.replace('"books": 7', '"book": 7')
    return repository.commit("Name goods in the singular", BEN, {"pricing/tax.py": wrong})
