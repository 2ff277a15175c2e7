"""Times that travel: in which formats they come in, and that what went out with an interval comes back with it."""

from __future__ import annotations

from typing import Any, Final

import pytest
from hypothesis import example, given, strategies as st

from manglecp.intent import Domain, manifest
from manglecp.mangle import INT_MAX, INT_MIN, Fact, Program, Source, is_nonempty_interval
from manglecp.wire.errors import WireError
from manglecp.wire.message_reader import receive, receive_from_server
from manglecp.wire.messages import (
    Intent,
    IntentPayload,
    IntentRequest,
    InvokeResponse,
    InvokeResult,
    StateDelta,
    encode,
)
from manglecp.wire.profile import Profile
from tests.intent.packs import pack

NOW: Final = 1_772_442_840 * 10**9
PROFILE: Final = Profile.of(
    Program.load(
        [
            Source(
                "s.mg",
                """
                Decl up(Service) temporal descr [direction("both")] bound [/string].
                Decl owner(Service, Who) descr [direction("both")] bound [/string, /string].
                """,
            )
        ]
    ).predicates
)


@pytest.mark.req("DATA-36")
@given(
    st.lists(
        st.one_of(
            st.none(),
            st.integers(INT_MIN, INT_MAX).map(lambda at: (at, at)),
            st.tuples(st.integers(INT_MIN, INT_MAX), st.integers(INT_MIN, INT_MAX)).map(lambda i: (min(i), max(i))),
            st.integers(INT_MIN + 1, INT_MAX).map(lambda start: (start, INT_MAX)),
            st.integers(INT_MIN, INT_MAX - 1).map(lambda end: (INT_MIN, end)),
        ),
        min_size=1,
        max_size=4,
    ),
    st.integers(0, NOW),
)
@example([(NOW, NOW), (NOW, NOW + 1), (NOW, INT_MAX), (INT_MIN, NOW), None], 0)
def test_facts_of_a_state_delta_keep_their_intervals_when_they_are_sent_back(intervals: list[Any], later: int) -> None:
    """From the server's bytes to the client, and from the client's bytes to the facts of a later request."""
    facts = [
        Fact("up", (f"s{n}",), None if interval == (INT_MIN, INT_MAX) else interval)
        for n, interval in enumerate(intervals)
        if interval is None or is_nonempty_interval(*interval)
    ]
    written = tuple(PROFILE.write(fact, category="derived", source={"source_type": "server"}) for fact in facts)
    sent = encode(InvokeResponse(id="1", payload=InvokeResult(result={}, state_delta=StateDelta(asserts=written))))
    delta: Any = receive_from_server(sent, 1 << 20)
    back = list(delta.payload.state_delta.asserts)
    request = encode(IntentRequest(id="2", payload=IntentPayload(intent=Intent(name="a"), facts=back)))
    received: Any = receive(request, 1 << 20)
    assert PROFILE.read(received.payload.facts, NOW + later) == facts


@pytest.mark.req("DATA-36")
def test_a_word_for_now_never_goes_out() -> None:
    """Else the fact would mean another time when it is sent back."""
    (fact,) = PROFILE.read([{"pred": "up", "args": ["a"], "t": {"start": "now", "end": "_"}}], NOW)
    assert PROFILE.write(fact)["t"] == {"start": "2026-03-02T09:14:00Z", "end": "_"}


@pytest.mark.req("DATA-29", "DATA-30")
def test_milliseconds_are_advertised_and_taken_wherever_a_time_is() -> None:
    formats = manifest(Domain.load(pack())).payload.facts_profile.time_formats
    assert formats == ("rfc3339", "epoch_ms")
    ms, text = NOW // 10**6, "2026-03-02T09:14:00Z"
    for milliseconds, said in (
        ({"at": ms}, {"at": text}),
        ({"start": ms, "end": ms + 1}, {"start": text, "end": "2026-03-02T09:14:00.001Z"}),
        ({"start": ms, "end": "_"}, {"start": text, "end": "_"}),
        ({"start": "_", "end": ms}, {"start": "_", "end": text}),
        ({"at": -1}, {"at": "1969-12-31T23:59:59.999Z"}),
    ):
        one, other = ([{"pred": "up", "args": ["a"], "t": t}] for t in (milliseconds, said))
        assert PROFILE.read(one, 0) == PROFILE.read(other, 0)
    source = {"source_type": "scan", "asserted_at": ms}
    assert PROFILE.read([{"pred": "owner", "args": ["a", "b"], "source": source}], 0)


@pytest.mark.req("DATA-29")
@pytest.mark.parametrize(
    "time",
    [{"_type": "int64", "value": str(NOW)}, NOW, 1.5, "1772442840", "2026-03-02", True],
    ids=["nanoseconds", "nanoseconds as milliseconds", "a fraction", "seconds as text", "a day", "true"],
)
def test_a_format_that_is_not_advertised_is_refused(time: Any) -> None:
    """``epoch_ns`` among them: a bare number is always milliseconds, and these are out of range (OPEN-11)."""
    for t in ({"at": time}, {"start": time, "end": "_"}, {"start": "_", "end": time}):
        with pytest.raises(WireError) as error:
            PROFILE.read([{"pred": "up", "args": ["a"], "t": t}], 0)
        assert error.value.code == "invalid_facts"
        assert error.value.details is not None
        assert error.value.details["violations"][0]["path"] == f"$.t.{next(k for k, v in t.items() if v is time)}"
