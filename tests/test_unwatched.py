"""A test that coverage leaves alone is left alone in its threads and processes, too. It shows under `--cov` only."""

import subprocess
import sys
import threading

import pytest
from hypothesis import given, strategies as st


@pytest.mark.no_cover
def test_nothing_watches_a_marked_test() -> None:
    watching = [sys.gettrace()]
    thread = threading.Thread(target=lambda: watching.append(sys.gettrace()))
    thread.start()
    thread.join()
    assert watching == [None, None]


@pytest.mark.no_cover
def test_nothing_watches_the_processes_of_a_marked_test() -> None:
    program = "import sys; print('coverage' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout == "False\n"


@given(st.none())
def test_nothing_watches_a_property(nothing: None) -> None:
    assert sys.gettrace() is nothing
