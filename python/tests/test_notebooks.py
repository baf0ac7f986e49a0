"""The notebooks run from the first cell to the last, as somebody who opens them would run them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import BUILT, ROOT

nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")
import nbformat  # noqa: E402

NOTEBOOKS = sorted((ROOT / "python" / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path, tmp_path, monkeypatch):
    shutil.copytree(ROOT / "docs" / "scenarios", tmp_path / "scenarios")
    # The cells call the programs by their names.
    monkeypatch.setenv("PATH", f"{BUILT}{os.pathsep}{os.environ['PATH']}")
    # This Python with its packages is the kernel, and no other that is installed.
    kernels = tmp_path / "kernels"
    install = [sys.executable, "-m", "ipykernel", "install", "--name", "tested", "--prefix", str(kernels)]
    subprocess.run(install, check=True, capture_output=True)
    monkeypatch.setenv("JUPYTER_PATH", str(kernels / "share" / "jupyter"))
    notebook = nbformat.read(path, as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "outputs are not committed"
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=300, kernel_name="tested", resources=resources).execute()
    made = {it.name for it in tmp_path.rglob("*.pdf")}
    assert made, "it writes a figure"


def test_there_are_two():
    assert [path.stem for path in NOTEBOOKS] == ["batches", "first-figure"]
