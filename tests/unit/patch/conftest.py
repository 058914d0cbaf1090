"""A patch made from the captures in fixtures/cuda-90/qwen3-tiny, and the tiny model it is for."""

import importlib
import sys

import pytest
from patch_models import CAPTURES, tiny

pytest.importorskip("torch")
pytest.importorskip("transformers")

@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    from graphdiff import pipeline

    out = tmp_path_factory.mktemp("patch") / "qwen3_rounding"
    pipeline.patch(*CAPTURES, out)
    return out


@pytest.fixture(scope="session")
def package(folder):
    sys.path.insert(0, str(folder.parent))
    try:
        yield importlib.import_module(folder.name)
    finally:
        sys.path.remove(str(folder.parent))


@pytest.fixture
def model():
    return tiny()
