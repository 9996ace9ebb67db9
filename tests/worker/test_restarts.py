import signal

from hypothesis import given
from hypothesis import strategies as st

from strata.worker.causes import explain, memory_kills
from strata.worker.errors import Kind
from strata.worker.restarts import Restarts
from strata.worker.silence import Silence


def test_useless_starts_wait_longer_each_time_and_end() -> None:
    restarts = Restarts(limit=5, first=0.5)
    pauses = [restarts.died(answered=False, ready_for=1.0) for _ in range(5)]
    assert pauses == [0.5, 1.0, 2.0, 4.0, None]


def test_a_useful_life_is_followed_by_a_start_at_once() -> None:
    restarts = Restarts(limit=3)
    assert restarts.died(answered=False, ready_for=0) is not None
    assert restarts.died(answered=False, ready_for=0) is not None
    assert restarts.died(answered=True, ready_for=0) == 0.0
    assert restarts.died(answered=False, ready_for=61) == 0.0
    assert restarts.died(answered=False, ready_for=0) == restarts.first


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 100)), max_size=40))
def test_it_gives_up_exactly_after_so_many_useless_starts_in_a_row(lives) -> None:
    restarts, row = Restarts(limit=4, most=3.0), 0
    for answered, ready_for in lives:
        row = 0 if answered or ready_for >= restarts.lasting else row + 1
        pause = restarts.died(answered=answered, ready_for=ready_for)
        assert (pause is None) == (row >= 4)
        assert pause is None or 0 <= pause <= 3.0


def test_causes_are_told_apart() -> None:
    assert (explain(-9).kind, explain(-9, memory_kills=1).kind) == (Kind.ENGINE_DIED, Kind.OUT_OF_MEMORY)
    assert "signal 9" in explain(-9).text
    assert "out-of-memory" in explain(-9, memory_kills=1).text
    assert "SIGSEGV" in explain(-signal.SIGSEGV).text
    assert "signal 99" in explain(-99).text
    assert "SIGTERM" in explain(143).text
    assert "exit code 3" in explain(3, memory_kills=1).text


def test_the_kernels_count_of_kills_is_read(tmp_path) -> None:
    file = tmp_path / "vmstat"
    file.write_text("oom_killer 3\noom_kill 7\n", encoding="ascii")
    before = memory_kills(tmp_path / "none")
    assert memory_kills(file) == before + 7


def test_silence_counts_by_ticks_so_that_our_own_sleep_is_not_theirs() -> None:
    silence = Silence()
    now = silence._last
    assert silence.tick(now + 0.5) == 0.5
    assert silence.tick(now + 1000.5) == 1.5  # we were suspended
    silence.heard()
    assert silence.tick(now + 1001.0) == 0.5
