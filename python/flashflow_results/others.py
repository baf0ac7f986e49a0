"""Measurements of the public Tor network to compare with: OnionPerf's analyses and the tables of Tor Metrics."""

from __future__ import annotations

import gzip
import json
import lzma
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, IO

import pandas as pd

from .durations import Durations


@dataclass
class Reference:
    """Times to the last byte by size of download, of another source than FlashFlow."""

    name: str
    #: Single downloads, by size in bytes.
    durations: dict[int, Durations] = field(default_factory=dict)
    #: Quartiles (0.25, 0.5, 0.75) in seconds by size in bytes, where single downloads are not known.
    quartiles: dict[int, tuple[float, float, float]] = field(default_factory=dict)

    def sizes(self) -> set[int]:
        """Sizes of which something is known."""
        return set(self.durations) | set(self.quartiles)


def _open(path: Path) -> IO[str]:
    if path.suffix == ".xz":
        return lzma.open(path, "rt", encoding="utf-8")
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8")
    return open(path, encoding="utf-8")


def onionperf(*paths: str | Path, name: str = "OnionPerf") -> Reference:
    """Reads analyses of OnionPerf (``onionperf.analysis.json``, also compressed; formats 1 to 3) from files.

    Times count from the start of the stream, as in Tor Metrics. Streams to onion services are left out.
    """
    ended: dict[int, list[float]] = {}
    for path in map(Path, paths):
        with _open(path) as file:
            content = json.load(file)
        if content.get("type") != "onionperf":
            raise ValueError(f"{path} is no analysis of OnionPerf: its type is {content.get('type')!r}")
        for source in content["data"].values():
            tgen = source["tgen"]
            for stream in tgen.get("streams", {}).values():
                _add(ended, *_of_stream(stream))
            for transfer in tgen.get("transfers", {}).values():
                _add(ended, *_of_transfer(transfer))
    if not ended:
        raise ValueError(f"no download to a public server in {', '.join(map(str, paths))}")
    return Reference(name, durations={size: Durations(it) for size, it in sorted(ended.items())})


def _add(ended: dict[int, list[float]], size: int, seconds: float | None) -> None:
    if size > 0 and seconds is not None:
        ended.setdefault(size, []).append(seconds)


def _is_onion(address: Any) -> bool:
    return ".onion" in str(address or "")


def _of_stream(stream: dict[str, Any]) -> tuple[int, float | None]:
    if _is_onion(stream.get("transport_info", {}).get("remote")):
        return 0, None
    size = int(stream["stream_info"]["recvsize"])
    if not stream.get("is_success"):
        return size, float("inf")
    return size, int(stream["time_info"]["usecs-to-last-byte-recv"]) / 1e6


def _of_transfer(transfer: dict[str, Any]) -> tuple[int, float | None]:
    if _is_onion(transfer.get("endpoint_remote")):
        return 0, None
    size = int(transfer["filesize_bytes"])
    if not transfer.get("is_success"):
        return size, float("inf")
    return size, float(transfer["elapsed_seconds"]["last_byte"])


def tor_metrics(path: str | Path, since: str | None = None, until: str | None = None, name: str = "Tor Metrics") -> Reference:
    """Reads download times of Tor Metrics.

    ``path`` is either ``torperf-1.1.csv`` from metrics.torproject.org (quartiles by day; the median over the days from
    ``since`` to ``until`` of each is taken), or the JSON that ``tornettools`` makes of Tor Metrics' data (``download_times``).
    """
    path = Path(path)
    if ".json" in path.suffixes:
        with _open(path) as file:
            times = json.load(file).get("download_times")
        if not times:
            raise ValueError(f"{path} has no download_times: expected is the JSON that tornettools makes of Tor Metrics' data")
        times = {int(size): Durations(it) for size, it in times.items() if str(size).isdigit()}
        return Reference(name, durations=dict(sorted(times.items())))
    table = pd.read_csv(path, comment="#")
    missing = {"date", "filesize", "q1", "md", "q3"} - set(table.columns)
    if missing:
        raise ValueError(f"{path} lacks the columns {', '.join(sorted(missing))}: expected is torperf-1.1.csv of Tor Metrics")
    if "server" in table:
        table = table[table["server"] == "public"]
    if since is not None:
        table = table[table["date"] >= since]
    if until is not None:
        table = table[table["date"] <= until]
    # An empty source is all sources together.
    if "source" in table and table["source"].isna().any():
        table = table[table["source"].isna()]
    if table.empty:
        raise ValueError(f"{path} has no day from {since} to {until}")
    # Tor Metrics counts in milliseconds.
    middle = table.groupby("filesize")[["q1", "md", "q3"]].median() / 1000.0
    return Reference(name, quartiles={int(size): tuple(row) for size, row in middle.iterrows()})
