"""Compiled training on this machine: what the forward's and the backward's kernels really wrote against their programs."""

import re

import msgspec
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from training_functions import FUNCTIONS, bits_of_kernels, bits_of_program, run  # noqa: E402

from graphdiff.errors import GraphdiffError  # noqa: E402
from graphdiff.pipeline import compare_captures, function_capture  # noqa: E402
from graphdiff.program import Evaluation  # noqa: E402
from graphdiff.program.dtypes import decode  # noqa: E402

MATMUL = {"mlp", "block", "saved"}
"""Their float32 sums are in another order in the whole program; kernel by kernel each is given what it really got."""
OTHER_LIBRARY = {"gelu": 3}
"""Its erf is at::vec's in compiled code and MKL's in torch.erf: so many elements of a kernel fall to the other side of a tie."""


@pytest.fixture(scope="module", params=FUNCTIONS)
def ran(request):
    return request.param, run(request.param)


def low(found):
    chosen = [b for b in found if b.dtype == "bfloat16"]
    return chosen, sum(b.elements for b in chosen), sum(b.differing for b in chosen)


def test_kernels(ran):
    """A tie that the last bit of a float32 sum decides may fall to the other side: one element in ten thousand of a kernel,
    by one ulp, or where terms of both signs cancel by less than the terms' own."""
    name, native = ran
    forward, backward = bits_of_kernels(native.code, native.runs), bits_of_kernels(native.backward.code, native.backward.runs)
    assert forward and backward
    chosen, elements, wrong = low(forward + backward)
    most = OTHER_LIBRARY.get(name, 1)
    assert elements >= 1000 and wrong <= max(most, elements * 1e-4), chosen
    assert all(b.differing <= max(most, b.elements * 1e-4) and (b.worst <= 1 or b.of_largest < 0.1) for b in chosen), chosen


def test_forward_and_backward_as_one_program(ran):
    name, native = ran
    if name in MATMUL:
        return
    found = bits_of_program(name, native)
    chosen, elements, wrong = low(found)
    assert elements >= 1000 and wrong <= max(OTHER_LIBRARY.get(name, 0), elements * 1e-4, 6 if name == "softmax" else 0), chosen


def test_a_cast_too_many_is_seen():
    """The same kernel with the casts that the backend elides: silu would read the saved difference rounded."""
    native = run("saved")
    emulated = msgspec.structs.replace(native.code, launches=[msgspec.structs.replace(k, emulate=True) for k in native.code.launches])
    assert not low(bits_of_kernels(native.code, native.runs))[2]
    assert low(bits_of_kernels(emulated, native.runs))[2] > 1000


SOURCE = """
import torch


def norm(x, residual, weight):
    h = residual + x
    f = h.float()
    y = f * torch.rsqrt(f.pow(2).mean(-1, keepdim=True) + 1e-6)
    return weight * y.to(h.dtype), h


def kept(x, a, b):
    return torch.nn.functional.silu(x @ a - x @ b)


def writes(x):
    return x.add_(1) * 2


def plain(x):
    return (x * 2).detach()


def dropped(x):
    return torch.nn.functional.dropout(x, 0.5) * x


def attends(q, k, v):
    q, k, v = ((t * 2).transpose(1, 2) for t in (q, k, v))
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2) * 2


def three(seed):
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(s, generator=generator).bfloat16() for s in ((4, 64), (4, 64), (64,)))


def factors(seed):
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(s, generator=generator).bfloat16() for s in ((16, 8), (8, 32), (8, 32)))


def one(seed):
    return (three(seed)[0],)


def heads(seed):
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(2, 16, 4, 32, generator=generator).bfloat16() for _ in range(3))
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    written = tmp_path_factory.mktemp("f") / "functions.py"
    written.write_text(SOURCE)
    return written


def capture(file, name, inputs, **options):
    return function_capture(f"{file}:{name}", f"{file}:{inputs}", 0, compile=True, target="native", **options)


def test_the_forward_reads_what_it_saves_from_the_register(file):
    """Inductor puts a cast on what is saved and used again (`emulate_precision_casts_on_saved_tensors`); for CUDA it is
    there, the C++ backend takes two casts in a row for one (`_eliminate_duplicate_to_node`) and then elides it. So silu
    reads the difference unrounded, as in inference, and its gradient reads it rounded. The bits above say the same."""
    inference, training = capture(file, "kept", "factors"), capture(file, "kept", "factors", training=True)
    report = compare_captures(inference, training)
    assert (report.summary.moved.training, report.summary.moved.inference) == (0, 0)
    assert training.header.mode == "torch.compile with gradients, Inductor's C++ code, forward"
    assert training.header.not_captured == ["the backward (record it with --backward)"] and len(training.program.outputs) == 1
    both = capture(file, "kept", "factors", backward=True).program
    (difference,) = [i for i, n in enumerate(both.nodes) if n.op == "sub" and both.sites[n.site].code == "output_code"]
    forward, backward = readers(both, difference), [i for i in readers(both, difference) if both.nodes[i].op == "round"]
    assert {both.nodes[i].op for i in forward} == {"neg", "div", "round"}
    (saved,) = backward
    assert readers(both, saved) and {both.sites[both.nodes[i].site].code for i in readers(both, saved)} == {"backward_code"}


def readers(program, node):
    return [i for i, n in enumerate(program.nodes) if any(node in o.nodes for o in n.operands)]


def test_the_backward_is_one_program_with_its_forward(file):
    made = capture(file, "norm", "three", backward=True)
    assert [o.name for o in made.program.outputs] == ["output0", "output1", "grad_x", "grad_residual", "grad_weight"]
    assert {s.code for s in made.program.sites if s.code} == {"output_code", "backward_code"}
    assert {k.code for k in made.header.kernels} == {"output_code", "backward_code"} and all(k.kind == "c++" for k in made.header.kernels)
    again = compare_captures(made, made)
    assert not again.summary.moved.training and not again.summary.unmatched.training


def test_the_backward_of_fused_attention_is_opaque(file):
    """Its numbers are there, tokens before heads in memory as ATen lays them out; what it rounds inside is not told."""
    from graphdiff.capture.function import load_function

    made = capture(file, "attends", "heads", backward=True)
    (note,) = [n for n in made.header.notes if "opaque" in n]
    assert "_scaled_dot_product_flash_attention_for_cpu_backward" in note
    function = load_function(f"{file}:attends", f"{file}:heads", 0)
    args = [t.requires_grad_() for t in function.args]
    leaf = next(i for i, n in enumerate(made.program.nodes) if n.op == "leaf" and n.attrs.get("name") == "grad_output0")
    numbers = decode(made.program.data[leaf], "bfloat16").reshape(made.program.nodes[leaf].shape).astype("float32")
    function.call(*args).backward(torch.from_numpy(numbers).bfloat16())
    evaluation = Evaluation(made.program, made.program.data)
    for i, o in enumerate(made.program.outputs[1:], 1):
        real = args["qkv".index(o.name.removeprefix("grad_"))].grad.float().numpy()
        off = evaluation.output(i) - real
        assert (off ** 2).sum() ** 0.5 <= 0.01 * (real ** 2).sum() ** 0.5, o.name
    assert [o.name for o in made.program.outputs] == ["output0", "grad_q", "grad_k", "grad_v"]


def test_what_cannot_be(file):
    for name, inputs, said in (("plain", "one", "no backward"), ("writes", "one", "in-place"), ("dropped", "one", "randint")):
        with pytest.raises(GraphdiffError, match=said) as error:
            capture(file, name, inputs, backward=True)
        assert "\n" not in str(error.value)


def products(a, b, c):
    return torch.nn.functional.silu(a @ b) * c


def test_a_gemm_template_is_refused_by_name():
    """With max_autotune Inductor times its own C++ matmul against ATen's; what was only tried is no part of the code."""
    from graphdiff.capture.compiled import record_native
    from graphdiff.capture.function import Function

    g = torch.Generator().manual_seed(0)
    function = Function(products, tuple(torch.randn(4, 64, 64, generator=g).bfloat16() for _ in range(3)), ("a", "b", "c"), "x.py", "products")
    options = {"max_autotune": True, "max_autotune_gemm_backends": "CPP"}
    refusal = "a C\\+\\+ GEMM template has no lowering.*cpp_.*: switch max_autotune off"
    with pytest.raises(GraphdiffError, match=refusal):
        record_native(function, config_patches=options)
    try:  # whichever is faster now
        program = record_native(function, config_patches={**options, "max_autotune_gemm_backends": "ATEN,CPP"}).program
    except GraphdiffError as error:
        assert re.search(refusal, str(error))
    else:
        assert [n.op for n in program.nodes].count("mm") == 1


def one_hot(x):
    return torch.nn.functional.one_hot((x > 0).long(), 2).to(x.dtype) * 0.3


def test_a_check_in_the_code_computes_nothing():
    from graphdiff.capture.compiled import record_native
    from graphdiff.capture.function import Function
    from graphdiff.program import Evaluation

    x = torch.randn(8, 16, generator=torch.Generator().manual_seed(0)).bfloat16()
    recorded = record_native(Function(one_hot, (x,), ("x",), "x.py", "one_hot"))
    assert (Evaluation(recorded.program, recorded.bits).output(0) == one_hot(x).float().numpy()).all()
