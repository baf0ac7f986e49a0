"""Folders of results: those of ``flashflow-lab sim run``, ``sim batch`` and ``experiment``, and of ``flashflow export``."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from .durations import Durations

#: Tables of ``flashflow-lab sim run``.
RUN_TABLES = ("transfers", "relays", "seconds")
#: What each kind of file is read by, in the order of preference.
SUFFIXES = (".parquet", ".csv", ".jsonl")
#: Columns that are text, also if all their values look like numbers: 40 hexadecimal digits may be 12E34.
TEXT = {"fingerprint": str, "other_fingerprint": str, "seed": str, "nickname": str, "relay": str, "client": str}


@dataclass
class Report:
    """The report of an experiment: the file ``NAME.json`` of its folder."""

    name: str
    #: Everything in the file.
    content: dict[str, Any]

    @property
    def cases(self) -> pd.DataFrame:
        """One row per case, with all columns that have a value in any case."""
        return pd.DataFrame(self.content["cases"]).dropna(axis="columns", how="all")

    @property
    def parameters(self) -> dict[str, str]:
        """The parameters of the experiment, as text with units."""
        return dict(self.content["parameters"])

    @property
    def figures(self) -> dict[str, dict[str, Any]]:
        """The figures as data, by name; :func:`flashflow_results.draw` draws one."""
        return {it["name"]: it for it in self.content["figures"]}

    def points(self, figure: str) -> pd.DataFrame:
        """The points of a figure: columns ``series``, ``x``, ``y``. Times are timestamps in UTC."""
        found = self.figures
        if figure not in found:
            raise KeyError(f"report {self.name} has no figure {figure}; it has: {', '.join(found) or 'none'}")
        rows = [
            (series["name"], x, y) for series in found[figure]["series"] for x, y in series["points"]
        ]
        points = pd.DataFrame(rows, columns=["series", "x", "y"])
        for side in ("x", "y"):
            if found[figure][side]["scale"] == "time":
                points[side] = pd.to_datetime(points[side], unit="s", utc=True)
        return points


@dataclass
class Results:
    """A folder of results."""

    folder: Path
    #: What figures call it: the name of the folder, unless :func:`load` was given another.
    name: str
    #: Tables by the names of their files.
    tables: dict[str, pd.DataFrame] = field(default_factory=dict)
    #: Reports of experiments by name.
    reports: dict[str, Report] = field(default_factory=dict)

    def __getitem__(self, table: str) -> pd.DataFrame:
        if table not in self.tables:
            there = ", ".join(sorted(self.tables)) or "no table"
            raise KeyError(f"{self.folder} has no table {table}; it has: {there}")
        return self.tables[table]

    def __contains__(self, table: str) -> bool:
        return table in self.tables

    @property
    def simulated_s(self) -> int:
        """How long a simulation ran, in whole seconds.

        A run ends with a window of virtual time, up to some milliseconds after the second that was asked for. The last second
        in the table then has next to nothing.
        """
        sent = self["seconds"].groupby("second")["sent_bytes"].sum()
        is_rest = len(sent) > 1 and sent.iloc[-1] < 0.05 * sent.iloc[:-1].mean()
        return int(sent.index[-1]) + (0 if is_rest else 1)

    @property
    def downloads(self) -> pd.DataFrame:
        """Downloads of benchmarks, in seconds: ``client``, ``begun_s``, ``bytes``, ``first_byte_s``, ``last_byte_s``, ``ending``."""
        found = self["transfers"].dropna(subset=["asked_bytes"])
        return pd.DataFrame(
            {
                "client": found["client"],
                "begun_s": found["begun_ns"] * 1e-9,
                "bytes": found["asked_bytes"].astype(int),
                "first_byte_s": found["first_byte_ns"] * 1e-9,
                "last_byte_s": found["last_byte_ns"].where(found["ending"] == "complete") * 1e-9,
                "ending": found["ending"],
            }
        )

    def durations(self, size: int, column: str = "last_byte_s", warm_up_s: float = 0.0) -> Durations:
        """Times to the first or the last byte of all downloads of a size that began after the warm-up.

        Downloads that were running at the end count for as long as they were observed.
        """
        found = self.downloads
        found = found[(found["bytes"] == size) & (found["begun_s"] >= warm_up_s)]
        if found.empty:
            sizes = sorted(self.downloads["bytes"].unique())
            raise ValueError(f"{self.folder} has no download of {size} bytes after {warm_up_s} s; it has the sizes {sizes}")
        known = found[column].dropna()
        open_ones = found[found[column].isna()]
        running = open_ones[open_ones["ending"] == "under way"]
        failed = [float("inf")] * (len(open_ones) - len(running))
        return Durations([*known, *failed], (self.simulated_s - running["begun_s"]).clip(lower=0.0))

    def summary(self, warm_up_s: float = 0.0) -> pd.DataFrame:
        """One row per size of download: how many ended how, and median times of all that began."""
        rows = []
        found = self.downloads
        found = found[found["begun_s"] >= warm_up_s]
        for size, group in found.groupby("bytes"):
            last = self.durations(size, "last_byte_s", warm_up_s)
            rows.append(
                {
                    "bytes": size,
                    "complete": int((group["ending"] == "complete").sum()),
                    "failed": int(group["ending"].isin(["timed out", "lost"]).sum()),
                    "under_way": int((group["ending"] == "under way").sum()),
                    "first_byte_median_s": self.durations(size, "first_byte_s", warm_up_s).median(),
                    "last_byte_median_s": last.median(),
                    "last_byte_p95_s": last.quantile(0.95),
                }
            )
        return pd.DataFrame(rows)


def load(folder: str | Path, name: str | None = None) -> Results:
    """Reads a folder of results.

    Tables are read from Parquet (if pyarrow is installed), CSV or JSON lines, reports of experiments from JSON. Other files
    are ignored. A folder without any of these is an error.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise NotADirectoryError(f"{folder} is no folder: give the one that --out named")
    found = Results(folder, name or folder.resolve().name)
    for suffix in SUFFIXES if _has_pyarrow() else SUFFIXES[1:]:
        for path in sorted(folder.glob(f"*{suffix}")):
            if path.stem not in found.tables:
                found.tables[path.stem] = _table(path)
    for path in sorted(folder.glob("*.json")):
        content = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(content, dict) and "cases" in content and "figures" in content:
            found.reports[path.stem] = Report(path.stem, content)
    if not found.tables and not found.reports:
        raise FileNotFoundError(
            f"{folder} has no results: expected are tables such as transfers.csv, or reports of experiments such as batch.json"
        )
    return found


def _has_pyarrow() -> bool:
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        return False
    return True


def _table(path: Path) -> pd.DataFrame:
    if path.suffix == ".parquet":
        table = pd.read_parquet(path)
        # Some writers store text as bytes.
        for column in table.select_dtypes("object"):
            table[column] = table[column].map(lambda it: it.decode() if isinstance(it, bytes) else it)
        return table
    if path.suffix == ".jsonl":
        return pd.read_json(path, lines=True, dtype=False, convert_dates=False)
    return pd.read_csv(path, dtype=TEXT)
