"""Figures by matplotlib: those that experiments define, and those of simulations and stores."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Iterable, Sequence


import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from .durations import Durations
from .folder import Results
from .others import Reference

#: The colours of the programs' own figures (crates/operators/report/src/figure.rs).
COLOURS = ("#3b82f6", "#d97706", "#059669", "#8b5cf6", "#ec4899", "#0891b2")
ROLES = {
    "measurement": COLOURS[0],
    "client": COLOURS[1],
    "truth": COLOURS[2],
    "sum": COLOURS[3],
    "problem": "#ef4444",
    "muted": "#7c8798",
}
DASHES = ("-", "--", ":")


def _look(role: Any) -> dict[str, str]:
    """Colour and pattern of what a figure shows: a word, or ``{"nth": 3}``."""
    if isinstance(role, dict):
        number = int(role["nth"])
        return {"color": COLOURS[number % len(COLOURS)], "linestyle": DASHES[number // 2 % len(DASHES)]}
    return {"color": ROLES[role], "linestyle": "-"}


def draw(figure: dict[str, Any], title: bool = True) -> Figure:
    """Draws a figure of a report, as in ``load(folder).reports["accuracy"].figures["figure-6"]``."""
    drawn, axes = plt.subplots(figsize=(6.4, 4.0), layout="constrained")
    bars = [series for series in figure["series"] if series["style"] == "bars"]
    places = sorted({x for series in bars for x, _ in series["points"] if x is not None})
    room = min((b - a for a, b in zip(places, places[1:])), default=1.0) * 0.8
    for series in figure["series"]:
        points = pd.DataFrame(series["points"], columns=["x", "y"], dtype=float)
        for side in ("x", "y"):
            points[side] = _places(figure[side], points[side])
        look = _look(series["role"])
        if series["style"] == "bars":
            width = room / len(bars)
            offset = (bars.index(series) - (len(bars) - 1) / 2.0) * width
            axes.bar(points["x"] + offset, points["y"], width, color=look["color"], label=series["name"])
        elif series["style"] == "dots":
            axes.plot(points["x"], points["y"], "o", markersize=3, color=look["color"], label=series["name"])
        else:
            steps = "steps-post" if series["style"] == "steps" else "default"
            axes.plot(points["x"], points["y"], drawstyle=steps, label=series["name"], **look)
    for band in figure["bands"]:
        span = axes.axvspan if band["on"] == "x" else axes.axhspan
        ends = _places(figure[band["on"]], [band["from"], band["to"]])
        span(ends[0], ends[1], alpha=0.12, linewidth=0, color=_look(band["role"])["color"], label=band["label"] or None)
    for mark in figure["marks"]:
        line = axes.axvline if mark["on"] == "x" else axes.axhline
        line(_places(figure[mark["on"]], [mark["at"]])[0], linestyle=":", color=_look(mark["role"])["color"], label=mark["label"] or None)
    for side, axis in (("x", figure["x"]), ("y", figure["y"])):
        _lay_out(axes, side, axis)
    if title:
        axes.set_title(figure["title"], fontsize="medium")
    _finish(axes)
    return drawn


def _places(axis: dict[str, Any], values: Any) -> Any:
    """Positions on an axis: those of times are the day numbers of matplotlib, those of numbers the numbers."""
    # matplotlib counts days since 1970, as `dates.date2num` does for dates.
    return pd.Series(values, dtype=float) / 86_400.0 if axis["scale"] == "time" else pd.Series(values, dtype=float)


def overlay(folders: Sequence[Results], report: str, figure: str) -> dict[str, Any]:
    """A figure of a report, as data for :func:`draw`, with the series of several folders in it."""
    series = []
    for folder in folders:
        if report not in folder.reports:
            raise KeyError(f"{folder.folder} has no report {report}; it has: {', '.join(folder.reports) or 'none'}")
        # Raises an error that names the figures.
        folder.reports[report].points(figure)
        for one in folder.reports[report].figures[figure]["series"]:
            series.append({**one, "name": f"{folder.name}: {one['name']}", "role": {"nth": len(series)}})
    return {**folders[0].reports[report].figures[figure], "series": series}


def _lay_out(axes: Any, side: str, axis: dict[str, Any]) -> None:
    both = {"x": (axes.set_xlabel, axes.set_xscale, axes.set_xlim, axes.xaxis), "y": (axes.set_ylabel, axes.set_yscale, axes.set_ylim, axes.yaxis)}
    set_label, set_scale, set_limits, lines = both[side]
    set_label(axis["label"])
    if axis["scale"] == "time":
        lines.axis_date("UTC")
        locator = AutoDateLocator(tz="UTC")
        lines.set_major_locator(locator)
        lines.set_major_formatter(ConciseDateFormatter(locator, tz="UTC"))
    else:
        set_scale(axis["scale"])
    if axis["is_percent"]:
        lines.set_major_formatter(PercentFormatter(1.0))
    if axis["ticks"]:
        lines.set_ticks([at for at, _ in axis["ticks"]], labels=[text for _, text in axis["ticks"]])
    if axis["range"]:
        # Shown at least: more if there is more.
        low, high = sorted(_places(axis, axis["range"]))
        shown = sorted(axes.get_xlim() if side == "x" else axes.get_ylim())
        low, high = min(low, shown[0]), max(high, shown[1])
        set_limits((high, low) if axis["range"][0] > axis["range"][1] else (low, high))


def _finish(axes: Any) -> None:
    axes.grid(alpha=0.25, linewidth=0.5)
    axes.spines[["top", "right"]].set_visible(False)
    handles, _ = axes.get_legend_handles_labels()
    if handles:
        axes.legend(frameon=False, fontsize="small")


def _human(size: int) -> str:
    if size % (1 << 20) == 0:
        return f"{size >> 20} MiB"
    return f"{size // 1024} KiB" if size % 1024 == 0 else f"{size} B"


def _cumulative(axes: Any, durations: Durations, **look: Any) -> None:
    known = durations.distribution()
    axes.plot([0.0, *known["seconds"]], [0.0, *known["share"]], drawstyle="steps-post", **look)


def plot_downloads(
    runs: Sequence[Results],
    references: Iterable[Reference] = (),
    sizes: Sequence[int] | None = None,
    column: str = "last_byte_s",
    warm_up_s: float = 0.0,
) -> Figure:
    """Cumulative distributions of download times: a panel per size, a line per run, and references in grey.

    Downloads that failed or did not end are counted, so a line may end below 1. References have times to the last byte only.
    """
    references = list(references)
    if sizes is None:
        sizes = sorted({int(size) for run in runs for size in run.downloads["bytes"].unique()})
    if not sizes:
        raise ValueError("no run has downloads of a fixed size")
    drawn, panels = plt.subplots(
        1, len(sizes), figsize=(0.6 + 3.2 * len(sizes), 3.2), sharey=True, squeeze=False, layout="constrained"
    )
    for axes, size in zip(panels[0], sizes):
        for number, run in enumerate(runs):
            if size in set(run.downloads["bytes"]):
                look = {"color": COLOURS[number % 6], "linestyle": DASHES[number // 2 % 3]}
                _cumulative(axes, run.durations(size, column, warm_up_s), label=run.name, **look)
        for reference, dash in zip(references, (DASHES * len(references))[: len(references)]):
            if column != "last_byte_s":
                continue
            look = {"color": ROLES["muted"], "label": reference.name}
            if size in reference.durations:
                _cumulative(axes, reference.durations[size], linestyle=dash, **look)
            elif size in reference.quartiles:
                axes.plot(reference.quartiles[size], (0.25, 0.5, 0.75), "s", **look)
        axes.set_title(_human(size), fontsize="medium")
        axes.set_xlabel("time to the last byte, s" if column == "last_byte_s" else "time to the first byte, s")
        axes.set_ylim(0.0, 1.02)
        axes.set_xlim(left=0.0)
        _finish(axes)
    panels[0][0].set_ylabel("share of downloads")
    panels[0][0].yaxis.set_major_formatter(PercentFormatter(1.0))
    return drawn


def plot_traffic(runs: Sequence[Results]) -> Figure:
    """What all relays of a simulation sent in each second."""
    drawn, axes = plt.subplots(figsize=(6.4, 3.2), layout="constrained")
    for number, run in enumerate(runs):
        total = run["seconds"].groupby("second")["sent_bytes"].sum() * 8e-9
        axes.plot(total.index, total, linewidth=1, color=COLOURS[number % 6], label=run.name)
    axes.set_xlabel("simulated time, s")
    axes.set_ylabel("relays sent, Gbit/s")
    axes.set_ylim(bottom=0.0)
    _finish(axes)
    return drawn


def plot_relays(runs: Sequence[Results], warm_up_s: int = 0) -> Figure:
    """The share of its capacity that each relay of a simulation used, as a cumulative distribution over relays."""
    drawn, axes = plt.subplots(figsize=(4.8, 3.2), layout="constrained")
    for number, run in enumerate(runs):
        seconds = run["seconds"]
        seconds = seconds[seconds["second"] >= warm_up_s]
        length_s = seconds["second"].nunique()
        sent = seconds.groupby("relay")["sent_bytes"].sum() * 8.0 / length_s
        used = (sent / run["relays"].set_index("relay")["capacity_bit_per_s"]).dropna()
        _cumulative(axes, Durations(used), color=COLOURS[number % 6], label=run.name)
    axes.set_xlabel("used share of a relay's capacity")
    axes.xaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_ylabel("share of relays")
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    _finish(axes)
    return drawn


def plot_capacities(stores: Sequence[Results]) -> Figure:
    """Estimates of a coordinator's store (``flashflow export --what relays``), as a cumulative distribution over relays."""
    drawn, axes = plt.subplots(figsize=(4.8, 3.2), layout="constrained")
    for number, store in enumerate(stores):
        known = store["relays"].dropna(subset=["capacity_byte_s"])
        for kind, dash in ((True, "-"), (False, ":")):
            chosen = known[known["is_conclusive"] == kind]
            if not chosen.empty:
                label = f"{store.name}: {'conclusive' if kind else 'lower bounds'}"
                _cumulative(axes, Durations(chosen["capacity_byte_s"] * 8e-6), color=COLOURS[number % 6], linestyle=dash, label=label)
    axes.set_xlabel("estimate, Mbit/s")
    axes.set_ylabel("share of relays")
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    _finish(axes)
    return drawn


def save_figures(results: Results, out: str | Path | None = None, formats: Sequence[str] = ("pdf", "png")) -> list[Path]:
    """Writes all figures of a folder, by default into the folder itself. Returns the files."""
    out = Path(out) if out is not None else results.folder
    out.mkdir(parents=True, exist_ok=True)
    written = []

    def save(name: str, drawn: Figure) -> None:
        for kind in formats:
            written.append(out / f"{name}.{kind}")
            drawn.savefig(written[-1], dpi=200)
        plt.close(drawn)

    for report in results.reports.values():
        for name, figure in report.figures.items():
            save(f"{report.name}-{name}", draw(figure))
    if "transfers" in results and "seconds" in results:
        if not results.downloads.empty:
            save("downloads", plot_downloads([results]))
        save("traffic", plot_traffic([results]))
        save("relays", plot_relays([results]))
    if "relays" in results and "capacity_byte_s" in results["relays"]:
        save("capacities", plot_capacities([results]))
    return written
