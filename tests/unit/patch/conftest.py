"""A patch made from the captures in fixtures/cuda-90/qwen3-tiny, and the tiny model it is for."""

import importlib
import sys

import pytest
from patch_models import CAPTURES, tiny

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    """Bits of two runs are compared, and how a product is split over threads may depend on the machine's load."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


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
