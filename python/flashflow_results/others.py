"""Measurements of the public Tor network to compare with: OnionPerf's analyses and the tables of Tor Metrics."""

from __future__ import annotations

import gzip
import json
import lzma
import math
import warnings
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
    #: For each file of which something could not be used: its name and what.
    left_out: list[str] = field(default_factory=list)

    def sizes(self) -> set[int]:
        """Sizes of which something is known."""
        return set(self.durations) | set(self.quartiles)


def _open(path: Path) -> IO[str]:
    if path.suffix == ".xz":
        return lzma.open(path, "rt", encoding="utf-8")
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8")
    return open(path, encoding="utf-8")


#: OnionPerf takes a stream of tor for that of a download if both end within this time (its visualization.py).
_SAME_STREAM_S = 150.0


class _LeftOut:
    """What could not be used of a file: told once, with the number of each."""

    def __init__(self, path: Path):
        self.path = path
        self.counts: dict[str, int] = {}

    def add(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    def tell(self) -> list[str]:
        """Warns, and returns the message as the only item, or nothing."""
        if not self.counts:
            return []
        parts = [what if count == 1 else f"{what} ({count} times)" for what, count in self.counts.items()]
        message = f"{self.path}: left out: {'; '.join(parts)}"
        warnings.warn(message, stacklevel=3)
        return [message]


def _read_json(path: Path) -> dict[str, Any]:
    try:
        with _open(path) as file:
            content = json.load(file)
    except (ValueError, EOFError, lzma.LZMAError, gzip.BadGzipFile) as problem:
        raise ValueError(f"{path} is damaged or no JSON ({problem}): fetch it again") from problem
    if not isinstance(content, dict):
        raise ValueError(f"{path} has no JSON object, but {type(content).__name__}")
    return content


def _table(value: Any) -> dict[str, Any]:
    """A JSON object; an empty one if it is missing or null."""
    return value if isinstance(value, dict) else {}


def _number(value: Any) -> float | None:
    """A number that is not negative, also as text; ``None`` if it is missing: null, or -1 as in metrics-lib."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if 0 <= number < math.inf else None


def onionperf(*paths: str | Path, name: str = "OnionPerf") -> Reference:
    """Reads analyses of OnionPerf (``onionperf.analysis.json``, also compressed; formats 1 to 4) from files.

    Times count from the start of the stream, as in Tor Metrics. Streams to onion services are left out, and downloads
    over circuits that OnionPerf's filters took out. Parts that are missing or null cost themselves only: a warning and
    ``Reference.left_out`` name them and their file.
    """
    ended: dict[int, list[float]] = {}
    told: list[str] = []
    for path in map(Path, paths):
        content = _read_json(path)
        if content.get("type") != "onionperf":
            raise ValueError(f"{path} is no analysis of OnionPerf: its type is {content.get('type')!r}")
        left_out = _LeftOut(path)
        sources = _table(content.get("data"))
        if not sources:
            left_out.add("all, because it has no `data`")
        is_filtered = bool(_table(content.get("filters")).get("tor/circuits"))
        for label, source in sources.items():
            _of_source(label, _table(source), is_filtered, ended, left_out)
        told += left_out.tell()
    if not ended:
        raise ValueError("; ".join([f"no download to a public server in {', '.join(map(str, paths))}", *told]))
    return Reference(name, durations={size: Durations(it) for size, it in sorted(ended.items())}, left_out=told)


def _of_source(label: str, source: dict[str, Any], is_filtered: bool, ended: dict[int, list[float]], left_out: _LeftOut) -> None:
    tgen = _table(source.get("tgen"))
    downloads = [_of_stream(_table(it)) for it in _table(tgen.get("streams")).values()]
    downloads += [_of_transfer(_table(it)) for it in _table(tgen.get("transfers")).values()]
    if not downloads:
        left_out.add(f"source {label}, which has no downloads (`tgen`)")
    passed = _Circuits(_table(source.get("tor"))) if is_filtered else None
    for download in downloads:
        if download.is_onion or (passed is not None and not passed.carried(download)):
            continue
        if not download.size:
            left_out.add(f"source {label}: a download without its size")
        elif download.is_success is None:
            left_out.add(f"source {label}: a download without its outcome")
        elif not download.is_success:
            ended.setdefault(int(download.size), []).append(math.inf)
        elif download.seconds is None:
            left_out.add(f"source {label}: a successful download without its time to the last byte")
        else:
            ended.setdefault(int(download.size), []).append(download.seconds)


@dataclass
class _Download:
    is_onion: bool
    size: float | None
    is_success: bool | None
    #: To the last byte.
    seconds: float | None
    #: The address and port of the client's socket.
    local: str
    ended_unix_s: float | None


def _is_onion(address: Any) -> bool:
    return ".onion" in str(address or "")


def _of_stream(stream: dict[str, Any]) -> _Download:
    transport, times = _table(stream.get("transport_info")), _table(stream.get("time_info"))
    last_byte_us = _number(times.get("usecs-to-last-byte-recv"))
    return _Download(
        is_onion=_is_onion(transport.get("remote")),
        size=_number(_table(stream.get("stream_info")).get("recvsize")),
        is_success=stream.get("is_success"),
        seconds=None if last_byte_us is None else last_byte_us / 1e6,
        local=str(transport.get("local") or ""),
        ended_unix_s=_number(stream.get("unix_ts_end")),
    )


def _of_transfer(transfer: dict[str, Any]) -> _Download:
    return _Download(
        is_onion=_is_onion(transfer.get("endpoint_remote")),
        size=_number(transfer.get("filesize_bytes")),
        is_success=transfer.get("is_success"),
        seconds=_number(_table(transfer.get("elapsed_seconds")).get("last_byte")),
        local=str(transfer.get("endpoint_local") or ""),
        ended_unix_s=_number(transfer.get("unix_ts_end")),
    )


class _Circuits:
    """The circuits that OnionPerf's filters left, by the sockets of their streams: as its visualization.py finds them."""

    def __init__(self, tor: dict[str, Any]):
        circuits = _table(tor.get("circuits"))
        #: For each port the ends of streams, and whether their circuits passed.
        self.streams: dict[str, list[tuple[float, bool]]] = {}
        for stream in map(_table, _table(tor.get("streams")).values()):
            address, ended = str(stream.get("source") or ""), _number(stream.get("unix_ts_end"))
            circuit = circuits.get(str(stream.get("circuit_id")))
            if ":" in address and ended is not None:
                passed = isinstance(circuit, dict) and "filtered_out" not in circuit
                self.streams.setdefault(address.split(":")[1], []).append((ended, passed))

    def carried(self, download: _Download) -> bool:
        """Whether a circuit that passed the filters carried it."""
        local, ended = download.local.split(":"), download.ended_unix_s
        if len(local) < 3 or ended is None:
            return False
        near = [passed for at, passed in self.streams.get(local[2], []) if abs(at - ended) < _SAME_STREAM_S]
        return bool(near) and near[0]


def tor_metrics(path: str | Path, since: str | None = None, until: str | None = None, name: str = "Tor Metrics") -> Reference:
    """Reads download times of Tor Metrics.

    ``path`` is either ``torperf-1.1.csv`` from metrics.torproject.org (quartiles by day; the median over the days from
    ``since`` to ``until`` of each is taken), or the JSON that ``tornettools`` makes of Tor Metrics' data (``download_times``).
    """
    path = Path(path)
    if ".json" in path.suffixes:
        times = _table(_read_json(path).get("download_times"))
        if not times:
            raise ValueError(f"{path} has no download_times: expected is the JSON that tornettools makes of Tor Metrics' data")
        return _of_download_times(path, times, name)
    try:
        table = pd.read_csv(path, comment="#")
    except pd.errors.EmptyDataError:
        raise ValueError(f"{path} is empty: expected is torperf-1.1.csv of Tor Metrics") from None
    missing = {"date", "filesize", "q1", "md", "q3"} - set(table.columns)
    if missing:
        raise ValueError(f"{path} lacks the columns {', '.join(sorted(missing))}: expected is torperf-1.1.csv of Tor Metrics")
    table = table.dropna(subset=["date"])
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
    columns = ["filesize", "q1", "md", "q3"]
    numbers = table[columns].apply(pd.to_numeric, errors="coerce").dropna()
    left_out = _LeftOut(path)
    for date in table.loc[~table.index.isin(numbers.index), "date"]:
        left_out.add(f"a row of {date} without all quartiles, as on days of time-outs only")
    told = left_out.tell()
    if numbers.empty:
        raise ValueError(f"{path} has no day with quartiles from {since} to {until}")
    # Tor Metrics counts in milliseconds.
    middle = numbers.groupby("filesize")[["q1", "md", "q3"]].median() / 1000.0
    return Reference(name, quartiles={int(size): tuple(row) for size, row in middle.iterrows()}, left_out=told)


def _of_download_times(path: Path, times: dict[str, Any], name: str) -> Reference:
    left_out = _LeftOut(path)
    durations = {}
    for size, values in times.items():
        if not str(size).isdigit():
            continue
        numbers = [_number(it) for it in values] if isinstance(values, list) else []
        known = [it for it in numbers if it is not None]
        for _ in range(len(numbers) - len(known)):
            left_out.add(f"a download of {size} bytes without its time")
        if known:
            durations[int(size)] = Durations(known)
        else:
            left_out.add(f"all downloads of {size} bytes: none has a time")
    told = left_out.tell()
    if not durations:
        raise ValueError("; ".join([f"{path} has no download with its time", *told]))
    return Reference(name, durations=dict(sorted(durations.items())), left_out=told)
