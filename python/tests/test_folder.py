"""Reading folders."""

import math

import pandas as pd
import pytest

import flashflow_results as ff


def test_a_run_has_its_three_tables(simulated):
    folder, _ = simulated["kist"]
    run = ff.load(folder)
    assert set(run.tables) == {"transfers", "relays", "seconds"}
    assert len(run["relays"]) == 8
    assert run.simulated_s == 61
    assert run.name == "kist"
    with pytest.raises(KeyError, match="has no table nothing; it has: relays, seconds, transfers"):
        run["nothing"]


def test_statistics_are_those_that_the_program_prints(simulated):
    # Two implementations of the estimate, one here and one in Rust, of the same run.
    for folder, lines in simulated.values():
        found = ff.load(folder).summary().set_index("bytes")
        printed = [line for line in lines if line["type"] == "downloads"]
        assert len(printed) == 2
        for line in printed:
            row = found.loc[line["bytes"]]
            assert row["complete"] == line["complete"]
            assert row["failed"] == line["timed_out"] + line["lost"]
            assert row["under_way"] == line["under_way"]
            for name in ("first_byte_median_s", "last_byte_median_s", "last_byte_p95_s"):
                if line[name] is None:
                    assert row[name] is None or not math.isfinite(row[name])
                else:
                    assert row[name] == pytest.approx(line[name], rel=1e-9), name


def test_some_downloads_failed_so_that_the_statistics_matter(simulated):
    _, lines = simulated["kist"]
    assert sum(line.get("timed_out", 0) for line in lines) > 0
    assert sum(line.get("complete", 0) for line in lines) > 0


def test_parquet_and_csv_are_the_same(simulated, tmp_path):
    folder, _ = simulated["vanilla"]
    for path in folder.glob("*.csv"):
        pd.read_csv(path).to_parquet(tmp_path / f"{path.stem}.parquet")
    from_csv, from_parquet = ff.load(folder), ff.load(tmp_path)
    for name, table in from_csv.tables.items():
        other = from_parquet[name]
        assert list(table.columns) == list(other.columns)
        for column in table:
            if table[column].dtype == object:
                assert list(table[column]) == list(other[column])
            else:
                pd.testing.assert_series_equal(
                    table[column].astype(float), other[column].astype(float), check_names=False
                )


def test_a_batch_has_a_report_with_cases_and_figures(batch):
    report = ff.load(batch).reports["batch"]
    assert len(report.cases) >= 4
    assert not report.cases.isna().all().any(), "no column is empty"
    assert "verdict" not in report.cases, "a batch claims nothing"
    table = ff.load(batch)["batch"]
    assert {"kind", "variant", "load_percent", "seed", "metric", "unit", "value"} <= set(table.columns)
    runs = table[table["kind"] == "run"].pivot(index=["variant", "seed"], columns="metric", values="value")
    assert len(runs) == 4 and (runs["goodput_mbit_per_s"] > 0).all()
    assert report.figures
    name = next(iter(report.figures))
    points = report.points(name)
    assert list(points.columns) == ["series", "x", "y"]
    assert len(points) > 0
    with pytest.raises(KeyError, match="report batch has no figure nothing"):
        report.points("nothing")


def test_the_points_of_a_figure_are_those_of_its_csv(batch):
    results = ff.load(batch)
    report = results.reports["batch"]
    compared = 0
    for name in report.figures:
        points = report.points(name).dropna()
        assert len(points) == len(results[f"batch-{name}"].dropna(subset=["x", "y"])), name
        compared += len(points)
    assert compared > 0


def test_an_export_has_its_tables(exported):
    store = ff.load(exported, name="store")
    assert len(store["relays"]) == 1000
    assert store["measurements"]["fingerprint"].str.fullmatch("[0-9A-F]{40}").all()
    assert store["seconds"]["bytes"].gt(0).any()
    assert store.name == "store"


def test_folders_without_results_are_errors(tmp_path):
    with pytest.raises(NotADirectoryError, match="give the one that --out named"):
        ff.load(tmp_path / "nowhere")
    (tmp_path / "other.json").write_text("[1, 2]")
    with pytest.raises(FileNotFoundError, match="has no results: expected are tables"):
        ff.load(tmp_path)


def test_a_size_that_no_client_fetched_is_an_error(simulated):
    folder, _ = simulated["kist"]
    with pytest.raises(ValueError, match=r"has no download of 7 bytes .* sizes \[51200, 1048576\]"):
        ff.load(folder).durations(7)
