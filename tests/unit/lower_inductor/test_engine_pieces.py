"""A whole tiny engine graph lowers; its kernels' bits are those of Triton's repaired interpreter."""

from collections import Counter

import numpy as np
import pytest
from tiny_engine import tiny_qwen3

from graphdiff.lower.inductor import program_from_pieces
from graphdiff.program.evaluate import Evaluation


@pytest.fixture(scope="module", params=["base", "combo"])
def lowered(request):
    return program_from_pieces(tiny_qwen3(request.param))


def test_outputs_are_the_hidden_states(lowered):
    program, bits = lowered
    assert [o.name for o in program.outputs] == ["hidden_states"]
    hidden = Evaluation(program, bits).output(0)
    assert hidden.shape == (8, 256) and np.isfinite(hidden).all()


def test_combo_kernels_compute_the_same_bits():
    hidden = [Evaluation(*program_from_pieces(tiny_qwen3(v))).output(0) for v in ("base", "combo")]
    assert np.array_equal(*hidden)


def test_anchors_and_roundings(lowered):
    program, _ = lowered
    dynamic = Counter(n.op for n in program.nodes if n.dynamic)
    assert (dynamic["mm"], dynamic["attention"], dynamic["embedding"]) == (8, 2, 1)
    assert {n.dtype for n in program.nodes if n.op == "round"} == {"bfloat16"}


def test_what_depends_on_tokens(lowered):
    """A gather by token is dynamic; the cos/sin table read by positions is not."""
    program, _ = lowered
    leaves = {n.attrs["name"]: n.dynamic for n in program.nodes if n.op == "leaf"}
    assert not any(leaves.values())
    assert any("cos_sin_cache" in name for name in leaves)
    embedding = next(n for n in program.nodes if n.op == "embedding")
    assert embedding.dynamic and embedding.shape == (8, 256)


def test_sites_name_kernel_place_and_line(lowered):
    program, _ = lowered
    rsqrt = next(i for i, n in enumerate(program.nodes) if n.op == "rsqrt")
    site = program.site(rsqrt)
    assert site.kernel == "triton_per_fused__to_copy_embedding_rms_norm_0"
    assert (site.name, site.code, site.origin) == ("tmp14", "submod_0", ("long", "embedding", "rms_norm_default"))
    attention = next(i for i, n in enumerate(program.nodes) if n.op == "attention")
    assert program.site(attention).kernel == "attention"


@pytest.mark.parametrize("variant", ["base", "combo"])
def test_site_lines_are_lines_of_the_output_code(variant):
    engine = tiny_qwen3(variant)
    program, _ = program_from_pieces(engine)
    for n in program.nodes:
        site = program.sites[n.site]
        if site.kernel.startswith("triton") and n.op == "rsqrt":
            line = engine.pieces[site.code].text.splitlines()[site.code_line - 1]
            assert line.strip().startswith(f"{site.name} = libdevice.rsqrt(")


@pytest.mark.parametrize("variant", ["base", "combo"])
def test_bits_of_every_kernel(variant):
    pytest.importorskip("triton")
    from kernel_bits import differing, recorded

    launches = recorded(lambda: program_from_pieces(tiny_qwen3(variant)))
    found = differing(launches)
    assert len(found) == (9 if variant == "combo" else 11)
    assert [f for f in found if f[1]] == []
