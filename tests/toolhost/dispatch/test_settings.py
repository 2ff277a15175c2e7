"""The environment: a good value is taken, a bad one is named."""

import pytest

from manglecp.toolhost.dispatch.launch import SettingError, default_pool_size, default_timeout


@pytest.mark.req("IPC-35")
@pytest.mark.parametrize(("text", "seconds"), [(None, 30.0), ("", 30.0), ("90", 90.0), ("0.5", 0.5), (" 7 ", 7.0)])
def test_the_timeout(text: str | None, seconds: float) -> None:
    assert default_timeout({} if text is None else {"MACHINA_TOOLHOST_TIMEOUT": text}) == seconds


@pytest.mark.parametrize("text", ["soon", "0", "-1", "nan", "inf", "1e9", "30s"])
def test_a_bad_timeout_is_named(text: str) -> None:
    with pytest.raises(SettingError, match=r"^MACHINA_TOOLHOST_TIMEOUT='.*': seconds are expected"):
        default_timeout({"MACHINA_TOOLHOST_TIMEOUT": text})


def test_the_size_of_a_pool() -> None:
    assert default_pool_size({}) == 2
    assert default_pool_size({"MACHINA_TOOLHOST_POOL_SIZE": "4"}) == 4


@pytest.mark.parametrize("text", ["0", "65", "two", "-1", "²", "1.5", "9" * 5_000])
def test_a_bad_size_is_named(text: str) -> None:
    with pytest.raises(SettingError, match=r"^MACHINA_TOOLHOST_POOL_SIZE='.*': a whole number"):
        default_pool_size({"MACHINA_TOOLHOST_POOL_SIZE": text})
