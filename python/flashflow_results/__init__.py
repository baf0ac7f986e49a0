"""Results of FlashFlow as pandas tables and matplotlib figures.

>>> import flashflow_results as ff
>>> run = ff.load("results")
>>> run["transfers"].groupby("ending").size()
>>> ff.plot_downloads([run]).savefig("downloads.pdf")
"""

from .durations import Durations
from .figures import (
    draw,
    overlay,
    plot_capacities,
    plot_downloads,
    plot_relays,
    plot_traffic,
    save_figures,
)
from .folder import Report, Results, load
from .others import Reference, onionperf, tor_metrics

__all__ = [
    "Durations",
    "Reference",
    "Report",
    "Results",
    "draw",
    "load",
    "onionperf",
    "overlay",
    "plot_capacities",
    "plot_downloads",
    "plot_relays",
    "plot_traffic",
    "save_figures",
    "tor_metrics",
]
