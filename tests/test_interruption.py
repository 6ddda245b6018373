"""Ctrl-C reaches a run, also where Python drops the error of its handler."""

from __future__ import annotations

import signal
import threading
import time
from typing import Any

import pytest

import lamu
from lamu.running.progress import Interruption, interruptible

X, Y = lamu.data.load("diabetes")
MODEL = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian()).standardised(X, Y)


@pytest.fixture(autouse=True)
def as_in_a_terminal():
    """Lets Ctrl-C raise KeyboardInterrupt, as it does in a terminal."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def _xla_gc_callback() -> None:
    """Stands for JAX's function of this name, whose errors Python drops."""
    signal.raise_signal(signal.SIGINT)


def interrupted_by(press: Any) -> tuple[lamu.Fit, list[int]]:
    seen: list[int] = []

    def callback(done: int, last: Any) -> None:
        seen.append(done)
        if len(seen) == 2:
            press()

    return lamu.fit(MODEL, (X, Y), lamu.algorithms.sgd(1e-3), steps=3000, batch_size=10, callbacks=[callback]), seen


@pytest.mark.parametrize("press", [_xla_gc_callback, lambda: signal.raise_signal(signal.SIGINT)])
def test_a_run_ends_at_an_interrupt_even_if_its_error_is_dropped(press) -> None:
    fit, seen = interrupted_by(press)
    assert fit.interrupted
    assert len(seen) == 2
    assert int(fit.state.count) == len(fit.history["loss"]) == seen[-1] < 3000
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


class _Finalised:
    def __del__(self) -> None:
        signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("press", [_xla_gc_callback, _Finalised, lambda: signal.raise_signal(signal.SIGINT)])
def test_an_interrupt_is_heard_before_and_after_a_run_too(press: Any) -> None:
    """As in a command: the first Ctrl-C ends it, wherever it comes."""

    def command() -> None:
        press()
        for _ in range(500):
            time.sleep(0.01)

    with pytest.raises(KeyboardInterrupt), interruptible():
        command()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("press", [_xla_gc_callback, lambda: signal.raise_signal(signal.SIGINT)])
def test_one_interrupt_of_a_run_is_heard_once(press: Any) -> None:
    """The run ends, and what comes after it is not interrupted by the same signal."""
    with interruptible():
        fit, seen = interrupted_by(press)
        time.sleep(0.2)
    assert fit.interrupted
    assert len(seen) == 2


def test_a_second_interrupt_is_heard_too() -> None:
    with interruptible():
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)


def test_an_error_of_another_kind_passes_through() -> None:
    with pytest.raises(ValueError, match="mine"), Interruption() as interruption:
        raise ValueError("mine")
    assert not interruption.came
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_handler_of_somebody_else_stays() -> None:
    received: list[int] = []

    def mine(number: int, frame: Any) -> None:
        received.append(number)

    signal.signal(signal.SIGINT, mine)
    fit, _ = interrupted_by(lambda: signal.raise_signal(signal.SIGINT))
    assert received == [signal.SIGINT]
    assert not fit.interrupted
    assert signal.getsignal(signal.SIGINT) is mine


def test_a_run_in_another_thread_leaves_the_signal_alone() -> None:
    found: list[bool] = []

    def run() -> None:
        with Interruption() as interruption:
            found.append(signal.getsignal(signal.SIGINT) is signal.default_int_handler)
        found.append(interruption.came)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert found == [True, False]
