"""Source positions tell two equal functions of two files apart."""

from __future__ import annotations

import importlib.util

from graphdiff.lower.aten import Positions

SOURCE = "def forward(positions):\n    return positions.here()\n"


def load(path):
    path.write_text(SOURCE)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.forward


def test_equal_code_in_two_files(tmp_path):
    one, two = load(tmp_path / "modeling_one.py"), load(tmp_path / "modeling_two.py")
    assert one.__code__ == two.__code__  # Python compares code without its file
    found = [f(Positions(prefer=(str(tmp_path),))) for f in (one, two)]
    assert [p.file for p in found] == ["modeling_one.py", "modeling_two.py"]
    assert {(p.line, p.text) for p in found} == {(2, "positions.here()")}
