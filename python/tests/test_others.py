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


def only(found):
    """The message of what was left out of the one file."""
    assert len(found.left_out) == 1
    return found.left_out[0]


def write(path, content):
    path.write_text(json.dumps(content))
    return path


def test_a_day_that_lacks_a_part_costs_itself_and_is_named(tmp_path):
    whole = write(tmp_path / "whole.json", analysis({"1": stream(51200, 900000)}))
    lacking = {
        "no-tgen": {"op-x": {"measurement_ip": "192.0.2.1", "tor": {}}},
        "null-tgen": {"op-x": {"tgen": None}},
        "null-source": {"op-x": None},
        "null-streams": {"op-x": {"tgen": {"streams": None, "transfers": None}}},
        "no-data": None,
    }
    for day, data in lacking.items():
        path = write(tmp_path / f"{day}.json", {"type": "onionperf", "version": "3.1", "data": data})
        with pytest.warns(UserWarning, match=f"{day}.json: left out"):
            found = ff.onionperf(path, whole)
        assert found.durations[51200].ended == [0.9]
        assert "op-x" in only(found) or "no `data`" in only(found)
        with pytest.raises(ValueError, match="no download to a public server in .*op-x|no `data`"), pytest.warns(UserWarning):
            ff.onionperf(path)


def test_downloads_that_lack_a_part_are_left_out_and_counted(tmp_path):
    good, failed = stream(51200, 900000), stream(51200, -1, success=False)
    parts = {"size": ("stream_info", "recvsize"), "time to the last byte": ("time_info", "usecs-to-last-byte-recv")}
    for what, (table, key) in parts.items():
        for value in (None, -1, "-1", "x", "absent"):
            bad = json.loads(json.dumps(stream(51200, 700000)))
            if value == "absent":
                del bad[table][key]
            else:
                bad[table][key] = value
            none = {**bad, table: None}
            path = write(tmp_path / "day.json", analysis({"1": good, "2": failed, "3": bad, "4": none}))
            with pytest.warns(UserWarning, match="day.json"):
                found = ff.onionperf(path)
            assert found.durations[51200].ended == [0.9, math.inf], (what, value)
            assert what in only(found) and "2 times" in only(found)
    # A failed transfer of format 1 has no size, and a stream of 3.1 may have no outcome.
    transfer = {"is_success": False, "elapsed_seconds": {"last_byte": 4.5}}
    path = write(tmp_path / "old.json", analysis({"1": {**good, "is_success": None}}, {"a": transfer, "b": None}))
    with pytest.raises(ValueError, match="without its outcome"), pytest.warns(UserWarning, match="without its size"):
        ff.onionperf(path)


def test_a_damaged_file_is_named(tmp_path):
    path = tmp_path / "cut.json"
    path.write_text('{"type": "onionperf", "data": {')
    with pytest.raises(ValueError, match="cut.json is damaged or no JSON"):
        ff.onionperf(path)
    path = tmp_path / "cut.json.xz"
    path.write_bytes(lzma.compress(b'{"type": "onionperf"}')[:-20])
    with pytest.raises(ValueError, match="cut.json.xz is damaged or no JSON"):
        ff.onionperf(path)


def test_onionperfs_filters_are_obeyed(tmp_path):
    def of_port(port, ended, last_byte_us):
        transport = {"local": f"localhost:127.0.0.1:{port}", "remote": "server:192.0.2.2:80"}
        return {**stream(51200, last_byte_us), "transport_info": transport, "unix_ts_end": ended}

    content = analysis({"1": of_port(1, 100.0, 1), "2": of_port(2, 100.0, 2_000_000), "3": of_port(3, 100.0, 3)})
    tor_stream = lambda port, circuit: {"source": f"127.0.0.1:{port}", "circuit_id": circuit, "unix_ts_end": 101.0}
    content["data"]["op-de"]["tor"] = {
        "circuits": {"7": {"filtered_out": True}, "8": {}},
        "streams": {"a": tor_stream(1, "7"), "b": tor_stream(2, "8")},
    }
    path = write(tmp_path / "day.json", content)
    assert len(ff.onionperf(path).durations[51200]) == 3, "there is no filter"
    content["filters"] = {"tor/circuits": [{"name": "exclude_fingerprints"}]}
    assert ff.onionperf(write(path, content)).durations[51200].ended == [2.0]


def test_tor_metrics_without_times(tmp_path):
    path = write(tmp_path / "tor.json", {"download_times": {"51200": [1.0, None, -1, 3.0], "1048576": None, "x": [1]}})
    with pytest.warns(UserWarning, match="tor.json: left out"):
        found = ff.tor_metrics(path)
    assert found.durations[51200].ended == [1.0, 3.0] and found.sizes() == {51200}
    assert "51200 bytes without its time (2 times)" in only(found) and "1048576" in only(found)
    path = tmp_path / "torperf-1.1.csv"
    head = "date,filesize,source,server,q1,md,q3,timeouts,failures,requests\n"
    day = lambda number, quartiles: f"2026-01-0{number},51200,,public,{quartiles},9,0,9\n"
    path.write_text(head + day(1, "100,150,180") + day(2, ",,"))
    with pytest.warns(UserWarning, match="2026-01-02"):
        assert ff.tor_metrics(path).quartiles == {51200: (0.1, 0.15, 0.18)}
    path.write_text(head + day(2, ",,"))
    with pytest.raises(ValueError, match="no day with quartiles"), pytest.warns(UserWarning):
        ff.tor_metrics(path)


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
