"""Durations of which some had not ended when the observation did."""

from __future__ import annotations

import math
from typing import Iterable

import pandas as pd


class Durations:
    """Ended durations in seconds (infinite for failures), and others that are only known to be longer than a value.

    The median of the ended ones alone would be biased towards short ones. The estimate is that of Kaplan and Meier
    (1958), with the conventions of ``flashflow-lab sim run``.
    """

    def __init__(self, ended: Iterable[float], longer_than: Iterable[float] = ()):
        self.ended = sorted(float(it) for it in ended if not math.isnan(it))
        self.longer_than = sorted(float(it) for it in longer_than if not math.isnan(it))

    def __len__(self) -> int:
        return len(self.ended) + len(self.longer_than)

    def distribution(self) -> pd.DataFrame:
        """For each ended duration, the share that is at most as long: columns ``seconds`` and ``share``."""
        left = len(self)
        censored = iter(self.longer_than)
        next_censored = next(censored, math.inf)
        share_longer = 1.0
        rows = []
        ended = pd.Series([it for it in self.ended if math.isfinite(it)], dtype=float)
        for seconds, count in ended.value_counts(sort=False).sort_index().items():
            while next_censored < seconds:
                left -= 1
                next_censored = next(censored, math.inf)
            share_longer *= 1.0 - count / left
            left -= count
            rows.append((seconds, 1.0 - share_longer))
        return pd.DataFrame(rows, columns=["seconds", "share"])

    def quantile(self, share: float) -> float | None:
        """The duration that this share does not exceed: infinite if too many fail, ``None`` if too few have ended."""
        rounding = 1e-9
        known = self.distribution()
        reached = known[known["share"] >= share - rounding]
        never = self._never(known)
        if reached.empty:
            return math.inf if never > 0 and never >= 1.0 - share - rounding else None
        first = reached.iloc[0]
        if first["share"] > share + rounding or first["share"] > 1.0 - rounding:
            return float(first["seconds"])
        if len(reached) > 1:
            return float(first["seconds"] + reached.iloc[1]["seconds"]) / 2.0
        return math.inf if never > 1.0 - first["share"] - rounding else None

    def median(self) -> float | None:
        """See :meth:`quantile`."""
        return self.quantile(0.5)

    def _never(self, known: pd.DataFrame) -> float:
        """The share that never ends, if everything that is still running after the last end does end."""
        seconds, share = (0.0, 0.0) if known.empty else known.iloc[-1]
        failed = sum(1 for it in self.ended if math.isinf(it))
        running = sum(1 for it in self.longer_than if it >= seconds)
        return (1.0 - share) * failed / (failed + running) if failed else 0.0
