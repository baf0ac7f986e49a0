"""Drawing."""

import matplotlib.pyplot as plt
import pytest
from matplotlib.dates import num2date

import flashflow_results as ff
from flashflow_results.__main__ import main


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


def lines(axes):
    return {line.get_label(): line for line in axes.get_lines()}


def test_each_figure_of_a_report_is_drawn_with_all_its_points(batch):
    report = ff.load(batch).reports["batch"]
    for name, figure in report.figures.items():
        axes = ff.draw(figure).axes[0]
        drawn = sum(len(line.get_xdata()) for line in axes.get_lines()) + len(axes.patches)
        assert drawn >= len(report.points(name)), name
        assert axes.get_xlabel() == figure["x"]["label"]
        for series in figure["series"]:
            assert series["name"] in axes.get_legend_handles_labels()[1], name


def test_all_figures_become_pdf_and_png(batch, simulated, exported, tmp_path):
    written = []
    for number, folder in enumerate([batch, simulated["kist"][0], exported]):
        written += ff.save_figures(ff.load(folder), tmp_path / str(number))
    names = {path.name for path in written}
    assert {"downloads.pdf", "traffic.png", "relays.pdf", "capacities.png"} <= names
    assert sum(name.startswith("batch-") for name in names) >= 2
    for path in written:
        start = {".pdf": b"%PDF", ".png": b"\x89PNG"}[path.suffix]
        assert path.read_bytes().startswith(start), path


def test_a_figure_of_two_folders_has_the_series_of_both(batch, tmp_path):
    one, other = ff.load(batch, name="one"), ff.load(batch, name="other")
    name = next(iter(one.reports["batch"].figures))
    merged = ff.overlay([one, other], "batch", name)
    series = one.reports["batch"].figures[name]["series"]
    assert [it["name"] for it in merged["series"]] == [
        f"{folder}: {it['name']}" for folder in ("one", "other") for it in series
    ]
    out = tmp_path / "both.png"
    assert main(["plot", str(batch), str(batch), "--figure", f"batch/{name}", "--out", str(out)]) == 0
    assert out.read_bytes().startswith(b"\x89PNG")
    assert main(["plot", str(batch), "--figure", "batch/nothing", "--out", str(out)]) == 1


def test_downloads_of_several_runs_lie_in_one_panel_for_each_size(simulated):
    runs = [ff.load(folder) for folder, _ in simulated.values()]
    panels = ff.plot_downloads(runs).axes
    assert [axes.get_title() for axes in panels] == ["50 KiB", "1 MiB"]
    for axes in panels:
        assert set(lines(axes)) == {"kist", "vanilla"}
    # Some timed out: the line ends below 1.
    assert lines(panels[1])["kist"].get_ydata()[-1] < 0.95


def test_relays_use_no_more_than_they_have(simulated):
    run = ff.load(simulated["kist"][0])
    drawn = lines(ff.plot_relays([run]).axes[0])["kist"]
    assert 0 < drawn.get_xdata()[-1] <= 1.01
    assert drawn.get_ydata()[-1] == pytest.approx(1)


def test_the_program_overlays_folders_and_a_reference(simulated, tmp_path, capsys):
    table = tmp_path / "torperf-1.1.csv"
    table.write_text(
        "#\n# The Tor Project\n#\ndate,filesize,source,server,q1,md,q3,timeouts,failures,requests\n"
        "2026-01-01,51200,,public,500,900,1500,0,0,100\n2026-01-01,51200,op-nl,public,1,1,1,0,0,50\n"
    )
    folders = [str(folder) for folder, _ in simulated.values()]
    out = tmp_path / "overlay.pdf"
    assert main(["plot", *folders, "--tor-metrics", str(table), "--sizes", "51200", "--out", str(out)]) == 0
    assert out.read_bytes().startswith(b"%PDF")
    drawn = lines(plt.figure(plt.get_fignums()[-1]).axes[0])
    assert set(drawn) == {"kist", "vanilla", "Tor Metrics"}
    assert list(drawn["Tor Metrics"].get_xdata()) == [0.5, 0.9, 1.5]


def test_the_program_draws_all_figures_and_says_where(simulated, tmp_path, capsys):
    folder, _ = simulated["kist"]
    assert main(["figures", str(folder), "--format", "svg", "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed == [str(tmp_path / f"{name}.svg") for name in ("downloads", "traffic", "relays")]


def test_the_program_explains_what_is_wrong(tmp_path, capsys):
    assert main(["figures", str(tmp_path)]) == 1
    assert "has no results" in capsys.readouterr().err


def test_times_are_dates(tmp_path):
    noon = 1795867200
    axis = {"label": "time (UTC)", "scale": "time", "range": [noon, noon + 86400], "is_percent": False, "ticks": []}
    figure = {
        "name": "history", "title": "Estimates", "caption": "", "x": axis,
        "y": {"label": "Mbit/s", "scale": "linear", "range": None, "is_percent": False, "ticks": []},
        "series": [{"name": "a", "points": [[noon, 1.0], [noon + 7200, 2.0]], "style": "line", "role": "measurement"}],
        "bands": [{"on": "x", "from": noon, "to": noon + 3600, "label": "", "role": "truth"}],
        "marks": [{"on": "x", "at": noon + 1800, "label": "", "role": "muted"}],
    }  # fmt: skip
    points = ff.Report("r", {"figures": [figure]}).points("history")
    assert [str(time) for time in points["x"]] == ["2026-11-28 12:00:00+00:00", "2026-11-28 14:00:00+00:00"]
    drawn = ff.draw(figure)
    axes = drawn.axes[0]
    first, last = (num2date(day).isoformat() for day in axes.get_xlim())
    assert first <= "2026-11-28T12:00:00+00:00" and last >= "2026-11-29T12:00:00+00:00"
    assert first > "2026-11-27", "bands and marks are at their times, too"
    drawn.savefig(tmp_path / "history.png")
    labels = [label.get_text() for label in axes.get_xticklabels()]
    assert any(":" in label for label in labels), labels
