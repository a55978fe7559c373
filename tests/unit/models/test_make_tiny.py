# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The tests' model is the same on every machine: inventories pin its digest."""

from __future__ import annotations

import hashlib
import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "tests" / "models" / "make_tiny.py"
DIGESTS = {
    1: "8fbf934df9db42063a5793333c8aa379aab0765ca40180966e8266a3fede9131",
    2: "cbec18166bfec4a8b3ceb71309254f7d5239028337bddcbced007a90ea75b413",
}


@pytest.fixture(scope="module")
def make_tiny() -> ModuleType:
    pytest.importorskip("gguf")
    spec = importlib.util.spec_from_file_location("make_tiny", SCRIPT)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("seed", DIGESTS)
def test_the_same_bytes(make_tiny: ModuleType, tmp_path: Path, seed: int) -> None:
    path = tmp_path / "tiny.gguf"
    assert make_tiny.write(path, seed) == DIGESTS[seed]
    assert hashlib.sha256(path.read_bytes()).hexdigest() == DIGESTS[seed]
    assert [found.name for found in tmp_path.iterdir()] == ["tiny.gguf"]
