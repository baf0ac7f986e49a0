"""Result files for the tests: made by the programs of this repository (scripts/test-python builds them)."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import matplotlib
import pytest

matplotlib.use("Agg")

ROOT = Path(__file__).resolve().parents[2]
#: The folder with the built programs.
BUILT = Path(os.environ.get("FLASHFLOW_BUILT", ROOT / "target" / "debug"))
#: The program that fills a store; below that folder unless it is an absolute path.
YEAR = os.environ.get("FLASHFLOW_YEAR", "examples/year")


def call(program: str, *words: object) -> str:
    path = BUILT / program
    if not path.is_file():
        pytest.fail(f"there is no {path}: run scripts/test-python, which builds it")
    command = [str(path), *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout


NETWORK = """
[choices]
scheduler = "{scheduler}"
ramp_s = 2

[[relays]]
count = 4
country = "DE"
mbit_per_s = 20
guard = true

[[relays]]
count = 4
country = "NL"
mbit_per_s = 20
exit = true

[[servers]]
country = "US"
mbit_per_s = 1000

[[clients]]
count = 12
country = "DE"
mbit_per_s = 100
fetch = {{ every_s = 4, sizes = [{{ bytes = 51200, timeout_s = 15, weight = 2 }}, {{ bytes = 1048576, timeout_s = 3 }}] }}
"""


@pytest.fixture(scope="session")
def networks(tmp_path_factory) -> dict[str, Path]:
    """Scenarios by scheduler. Their large downloads often time out."""
    folder = tmp_path_factory.mktemp("networks")
    made = {name: folder / f"{name}.toml" for name in ("kist", "vanilla")}
    for name, path in made.items():
        path.write_text(NETWORK.format(scheduler=name))
    return made


@pytest.fixture(scope="session")
def simulated(tmp_path_factory, networks) -> dict[str, tuple[Path, list[dict]]]:
    """For each scheduler the folder of a run, and the lines that it printed."""
    made = {}
    for name, network in networks.items():
        folder = tmp_path_factory.mktemp("runs") / name
        printed = call(
            "flashflow-lab", "sim", "run", "--network", network, "--seconds", 61, "--warm-up", 0,
            "--out", folder, "--json",
        )
        made[name] = folder, [json.loads(line) for line in printed.splitlines()]
    return made


@pytest.fixture(scope="session")
def batch(tmp_path_factory, networks) -> Path:
    """The folder of a batch of both networks."""
    folder = tmp_path_factory.mktemp("batch") / "results"
    options = [word for network in networks.values() for word in ("--network", network)]
    call("flashflow-lab", "sim", "batch", *options, "--run-seconds", 30, "--seeds", 2, "--out", folder)
    return folder


@pytest.fixture(scope="session")
def exported(tmp_path_factory) -> Path:
    """Tables of a coordinator's store."""
    folder = tmp_path_factory.mktemp("store")
    # A store of 1,000 relays, filled as a coordinator fills it. The program asks for pages of its 4,711th measurement.
    call(YEAR, folder, 1000, 5)
    tables = folder / "tables"
    tables.mkdir()
    for table, suffix in [("relays", "csv"), ("measurements", "jsonl"), ("seconds", "csv"), ("periods", "jsonl")]:
        call(
            "flashflow", "export", "--store", folder / "store.db", "--what", table, "--format", suffix,
            "--out", tables / f"{table}.{suffix}",
        )
    return tables
