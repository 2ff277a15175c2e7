"""Façades: what a package's stub lists can be imported from it."""

import importlib
from pathlib import Path

import pytest

import manglecp
from manglecp.base.lazy import exported_names

ROOT = Path(manglecp.__file__).parent
PACKAGES = sorted(".".join(["manglecp", *stub.parent.relative_to(ROOT).parts]) for stub in ROOT.rglob("__init__.pyi"))


@pytest.mark.parametrize("name", PACKAGES)
def test_every_export_is_found(name: str) -> None:
    package = importlib.import_module(name)
    exports = exported_names(str(package.__file__))
    assert exports
    for export, module in exports.items():
        assert getattr(package, export) is getattr(importlib.import_module(module, name), export)


@pytest.mark.parametrize("name", PACKAGES)
def test_dir_lists_the_exports(name: str) -> None:
    package = importlib.import_module(name)
    assert set(exported_names(str(package.__file__))) <= set(dir(package))
    assert "__name__" in dir(package)


@pytest.mark.parametrize("name", PACKAGES)
def test_no_export_has_the_name_of_a_module(name: str) -> None:
    """The import of a submodule would replace it."""
    package = importlib.import_module(name)
    modules = {path.stem for path in Path(str(package.__file__)).parent.iterdir()}
    assert not modules & set(exported_names(str(package.__file__)))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'manglecp' has no attribute 'Prolog'"):
        _ = getattr(manglecp, "Prolog")  # noqa: B009
