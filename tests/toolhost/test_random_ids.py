"""Random ids: no two are the same, in whichever thread or process they are drawn."""

import os
import re
from concurrent.futures import ThreadPoolExecutor

from manglecp.toolhost.random_ids import random_id


def test_each_is_a_new_number_of_128_bits() -> None:
    drawn = [random_id() for _ in range(1_000)]
    assert len(set(drawn)) == len(drawn)
    assert all(re.fullmatch("[0-9a-f]{32}", each) for each in drawn)
    assert len({each[:4] for each in drawn}) > 900


def test_threads_share_none() -> None:
    with ThreadPoolExecutor(8) as pool:
        drawn = [each for some in pool.map(lambda _: [random_id() for _ in range(500)], range(32)) for each in some]
    assert len(set(drawn)) == 32 * 500


def test_a_forked_process_shares_none_with_its_parent() -> None:
    random_id()  # there are some left now that were drawn with it
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(theirs, " ".join(random_id() for _ in range(100)).encode())
        os._exit(0)
    os.close(theirs)
    os.waitpid(child, 0)
    with os.fdopen(ours, "rb") as stream:
        drawn = stream.read().decode().split()
    assert len(drawn) == 100
    assert not set(drawn) & {random_id() for _ in range(100)}
