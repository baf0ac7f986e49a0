"""The program ``flashflow-results``: figures of results as PDF, PNG or SVG."""

from __future__ import annotations

import argparse
import sys
import warnings
from pathlib import Path
from typing import Sequence

from .figures import draw, overlay, plot_downloads, save_figures
from .folder import load
from .others import onionperf, tor_metrics


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(prog="flashflow-results", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)

    figures = commands.add_parser("figures", help="draw all figures of folders")
    figures.add_argument("folders", nargs="+", metavar="FOLDER")
    figures.add_argument("--format", default="pdf,png", help="formats, separated by commas (default: %(default)s)")
    figures.add_argument("--out", metavar="DIR", help="where to write them (default: each folder itself)")

    plot = commands.add_parser("plot", help="draw several folders, and the Tor network, in one figure: download times, or what --figure names")
    plot.add_argument("folders", nargs="+", metavar="FOLDER")
    plot.add_argument("--out", required=True, metavar="FILE", help="the figure; its name decides the format")
    plot.add_argument("--figure", metavar="REPORT/FIGURE", help="this figure of a report instead, such as accuracy/figure-6")
    plot.add_argument("--sizes", metavar="BYTES,…", help="sizes of downloads (default: all that the folders have)")
    plot.add_argument("--first-byte", action="store_true", help="times to the first byte instead of the last")
    plot.add_argument("--warm-up", type=float, default=0.0, metavar="SECONDS", help="leave out downloads that began earlier")
    plot.add_argument("--onionperf", nargs="+", default=[], metavar="FILE", help="analyses of OnionPerf to compare with")
    plot.add_argument("--tor-metrics", metavar="FILE", help="torperf-1.1.csv of Tor Metrics, or tornettools' JSON, to compare with")
    plot.add_argument("--since", metavar="DATE", help="of Tor Metrics: the first day")
    plot.add_argument("--until", metavar="DATE", help="of Tor Metrics: the last day")
    return parser


def run(options: argparse.Namespace) -> None:
    """Executes a command."""
    folders = [load(folder) for folder in options.folders]
    if options.command == "figures":
        for folder in folders:
            # Several folders have figures of the same name.
            out = Path(options.out) / folder.name if options.out and len(folders) > 1 else options.out
            for path in save_figures(folder, out, options.format.split(",")):
                print(path)
        return
    if options.figure:
        report, _, figure = options.figure.partition("/")
        draw(overlay(folders, report, figure)).savefig(options.out, dpi=200)
        print(options.out)
        return
    references = []
    if options.onionperf:
        references.append(onionperf(*options.onionperf))
    if options.tor_metrics:
        references.append(tor_metrics(options.tor_metrics, options.since, options.until))
    sizes = [int(size) for size in options.sizes.split(",")] if options.sizes else None
    column = "first_byte_s" if options.first_byte else "last_byte_s"
    plot_downloads(folders, references, sizes, column, options.warm_up).savefig(options.out, dpi=200)
    print(options.out)


def main(words: Sequence[str] | None = None) -> int:
    """Exit status: 0 done; 1 a file cannot be read or written, or has other content; 2 wrong arguments."""
    options = arguments().parse_args(words)
    warnings.formatwarning = lambda message, *_place, **_line: f"flashflow-results: note: {message}\n"
    try:
        run(options)
    except (OSError, ValueError, KeyError) as error:
        # A KeyError prints its argument in quotes.
        print(f"flashflow-results: {error.args[0] if isinstance(error, KeyError) else error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
