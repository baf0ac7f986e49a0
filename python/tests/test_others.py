"""Data of Tor Metrics and OnionPerf."""

import json
import lzma
import math
import os
from pathlib import Path

import pytest

import flashflow_results as ff

#: Real data, if it is there.
DATA = Path(os.environ.get("FLASHFLOW_DATA", Path(__file__).resolve().parents[3] / "shared" / "data"))


def analysis(streams=None, transfers=None):
    tgen = {key: value for key, value in (("streams", streams), ("transfers", transfers)) if value}
    return {"type": "onionperf", "version": "3.1", "data": {"op-de": {"measurement_ip": "192.0.2.1", "tgen": tgen}}}


def stream(size, last_byte_us, remote="server:192.0.2.2:80", success=True):
    return {
        "is_success": success,
        "stream_info": {"recvsize": str(size)},
        "transport_info": {"remote": remote},
        "time_info": {"usecs-to-command": "100000", "usecs-to-last-byte-recv": str(last_byte_us)},
    }


def test_onionperf_of_formats_1_to_3(tmp_path):
    new, old = tmp_path / "new.json", tmp_path / "old.json.xz"
    streams = {
        "1": stream(51200, 900000),
        "2": stream(51200, -1, success=False),
        "3": stream(51200, 5, remote="abc.onion:0:80"),
    }
    new.write_text(json.dumps(analysis(streams)))
    transfers = {
        "1": {"is_success": True, "filesize_bytes": 51200, "elapsed_seconds": {"last_byte": 1.5}},
        "2": {"is_success": True, "filesize_bytes": 1048576, "elapsed_seconds": {"last_byte": 4.0}},
    }
    with lzma.open(old, "wt") as file:
        json.dump(analysis(transfers=transfers), file)
    found = ff.onionperf(new, old)
    assert found.sizes() == {51200, 1048576}
    assert found.durations[51200].ended == [0.9, 1.5, math.inf]
    assert found.durations[1048576].median() == 4.0


def test_other_json_is_no_analysis(tmp_path):
    path = tmp_path / "other.json"
    path.write_text('{"type": "summary"}')
    with pytest.raises(ValueError, match="no analysis of OnionPerf: its type is 'summary'"):
        ff.onionperf(path)


def test_tor_metrics_takes_the_days_asked_for(tmp_path):
    path = tmp_path / "torperf-1.1.csv"
    days = [f"2026-01-0{day},51200,,public,{day}00,{day}50,{day}80,0,0,9" for day in (1, 2, 3, 4)]
    path.write_text("date,filesize,source,server,q1,md,q3,timeouts,failures,requests\n" + "\n".join(days))
    found = ff.tor_metrics(path, "2026-01-02", "2026-01-04")
    assert found.quartiles == {51200: (0.3, 0.35, 0.38)}
    with pytest.raises(ValueError, match="has no day from 2027-01-01"):
        ff.tor_metrics(path, "2027-01-01")
    path.write_text("date,advbw\n2026-01-01,5\n")
    with pytest.raises(ValueError, match="lacks the columns filesize, md, q1, q3"):
        ff.tor_metrics(path)


def test_what_tor_saw_in_2019():
    path = DATA / "simulations-2021" / "tor-torperf-2019.json.xz"
    if not path.is_file():
        pytest.skip(f"no {path}")
    found = ff.tor_metrics(path)
    # As the authors of the data state them.
    medians = {51200: 1.23, 1048576: 3.35, 5242880: 11.06}
    for size, median in medians.items():
        assert found.durations[size].median() == pytest.approx(median, abs=0.02)
