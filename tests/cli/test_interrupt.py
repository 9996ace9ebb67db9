import os
import signal

import pytest

from strata.cli.interrupt import Interrupts


class LeftError(Exception):
    pass


@pytest.fixture(autouse=True)
def _leave(monkeypatch) -> None:
    def leave(code: int) -> None:
        raise LeftError(code)

    monkeypatch.setattr(os, "_exit", leave)


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_ctrl_c_leaves_on_the_spot() -> None:
    before = signal.getsignal(signal.SIGINT)
    with Interrupts(), pytest.raises(LeftError, match="130"):
        interrupt()
    assert signal.getsignal(signal.SIGINT) is before


def test_a_conversation_hears_of_the_first_and_the_second_leaves() -> None:
    with Interrupts() as interrupts:
        with interrupts.raising():
            with pytest.raises(KeyboardInterrupt):
                interrupt()
            with pytest.raises(LeftError):  # the first is still being dealt with
                interrupt()
        with interrupts.raising(), pytest.raises(KeyboardInterrupt):
            interrupt()
        with pytest.raises(LeftError):
            interrupt()


def test_an_ignored_signal_stays_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with Interrupts():
            interrupt()
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_measurements_take_note_of_the_first_and_the_second_leaves() -> None:
    with Interrupts() as interrupts:
        with interrupts.noting() as noted:
            assert not noted.is_set()
            interrupt()
            assert noted.is_set()
            with pytest.raises(LeftError):
                interrupt()
        with pytest.raises(LeftError):
            interrupt()
