"""The estimate after Kaplan and Meier."""

import math

import pytest

from flashflow_results import Durations


def test_the_textbooks_patients_relapse_as_in_the_textbook():
    # Weeks to relapse under 6-mercaptopurine (Freireich 1963).
    found = Durations(
        [6, 6, 6, 7, 10, 13, 16, 22, 23], [6, 9, 10, 11, 17, 19, 20, 25, 32, 32, 34, 35]
    )
    known = found.distribution()
    assert list(known["seconds"]) == [6, 7, 10, 13, 16, 22, 23]
    expected = [0.857, 0.807, 0.753, 0.690, 0.627, 0.538, 0.448]
    assert list(1 - known["share"]) == pytest.approx(expected, abs=5e-4)
    assert found.median() == 23
    assert found.quantile(0.95) is None


def test_without_censoring_the_median_is_the_ordinary_one():
    assert Durations([1, 2, 3]).median() == 2
    assert Durations([1, 2, 3, 4]).median() == 2.5


def test_failures_never_end():
    assert Durations([1, math.inf, math.inf]).median() == math.inf
    assert Durations([1, 2, math.inf]).median() == 2


def test_what_was_seen_too_shortly_has_no_median():
    assert Durations([], [1, 2]).median() is None
    assert Durations([1], [2, 3, 4]).median() is None
