"""Only kernels made of listed parts are rebuilt; hostile ones are refused, and reading one runs nothing."""

import ast
import sys

import pytest
from hardware_kernels import BODY, HEAD, MIDDLE, output_code

from graphdiff.hardware.grammar import Refused
from graphdiff.hardware.kernel import groups, job, places, read_kernel
from graphdiff.lower.inductor.output_code import OutputCode

STORE = "    tl.store(out_ptr0 + xindex, tmp3, xmask)\n"
HOSTILE = {
    "exec": "    exec('import os')\n",
    "eval as a value": "    tmp3 = eval\n",
    "import": "    import os\n",
    "__import__": "    tmp3 = __import__('os').system('true')\n",
    "class attribute": "    tmp3 = tmp0.__class__.__bases__\n",
    "globals of a builtin": "    tmp3 = tl.load.__globals__\n",
    "module attribute": "    tmp3 = tl.core\n",
    "module through a module": "    tmp3 = tl.core.os.system('true')\n",
    "module of helpers": "    tmp3 = triton_helpers.triton.runtime\n",
    "set_driver_to_gpu": "    triton_helpers.set_driver_to_gpu()\n",
    "inline asm": "    tmp3 = tl.inline_asm_elementwise('trap;', '=r,r', [tmp0], dtype=tl.float32, is_pure=True, pack=1)\n",
    "device_print": "    tl.device_print('x', tmp0)\n",
    "lambda": "    tmp3 = (lambda x: x)(tmp0)\n",
    "walrus": "    tmp3 = (tmp4 := tmp0)\n",
    "comprehension": "    tmp3 = [x for x in (1, 2)]\n",
    "f-string": "    tmp3 = tl.full([1], f'{tmp0}', tl.float32)\n",
    "starred": "    tmp3 = tl.load(*in_ptr0)\n",
    "double star": "    tmp3 = tl.load(in_ptr0, **tmp0)\n",
    "private argument": "    tmp3 = tl.load(in_ptr0, _semantic=tmp0)\n",
    "dict": "    tmp3 = {1: 2}\n",
    "while": "    while True:\n        pass\n",
    "try": "    try:\n        pass\n    finally:\n        pass\n",
    "with": "    with tmp0:\n        pass\n",
    "del": "    del tmp0\n",
    "global": "    global tl\n",
    "shadowed module": "    tl = tmp0\n",
    "shadowed python": "    float = tmp0\n",
    "dunder name": "    __name = tmp0\n",
    "attribute assigned": "    tl.load = tmp0\n",
    "item assigned": "    tmp0[0] = tmp1\n",
    "nested function": "    def inner(x):\n        pass\n",
    "unknown name": "    tmp3 = os\n",
    "loop over something": "    for i in tmp0:\n        pass\n",
    "loop by a call": "    for i in tl.load(in_ptr0):\n        pass\n",
    "annotation": "    tmp3: print('x') = 1\n",
    "bytes": "    tmp3 = b'x'\n",
    "huge number": f"    tmp3 = {10**30}\n",
    "long text": f"    tl.device_assert(xmask, '{'x' * 2000}')\n",
    "await": "    tmp3 = yield\n",
    "string method": "    tmp3 = '{0.__class__}'.format(tmp0)\n",
    "method of a module": "    tmp3 = tl.to(tmp0)\n",
    "call of a call": "    tmp3 = tl.load(in_ptr0)()\n",
    "function as a value": "    tmp3 = kernel\n",
    "chained comparison": "    tmp3 = 0 < tmp0 < 1\n",
}
HEADS = {
    "default with a call": HEAD.replace("xnumel,", "xnumel=print('x'),").replace("XBLOCK : tl.constexpr", "XBLOCK : tl.constexpr = 1"),
    "annotation with a call": HEAD.replace("xnumel", "xnumel: print('x')"),
    "star arguments": HEAD.replace("xnumel", "*xnumel"),
    "return annotation": HEAD.replace("):", ") -> print('x'):"),
    "async": "async " + HEAD,
}


def refused(code: OutputCode) -> str:
    with pytest.raises(Refused) as caught:
        kernel = read_kernel(code, "kernel")
        job(kernel)
    return str(caught.value)


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_bodies_are_refused(what):
    assert refused(output_code(BODY + HOSTILE[what] + "    tmp3 = tmp0\n" + STORE))


@pytest.mark.parametrize("what", HEADS)
def test_hostile_heads_are_refused(what):
    assert refused(output_code(BODY + "    tmp3 = tmp0\n" + STORE, head=HEADS[what]))


def test_deep_nesting_is_refused():
    assert refused(output_code(BODY + "    tmp3 = " + "-" * 5000 + "tmp0\n" + STORE))
    assert "parts" in refused(output_code(BODY + "    tmp3 = tmp0 + tmp0\n" * 20_000 + STORE))


def test_other_signatures_are_refused():
    code = output_code()
    text = code.sources["kernel"][0]
    for old, new in (("'*bf16'", "'*bf16; evil'"), ("'xnumel'", "'other'"), ("'constants': {}", "'constants': {'xnumel': (1, 2)}"),
                     ("triton_meta=", "meta="), ("'constants': {}", "'constants': print('x')")):
        changed = OutputCode(f"kernel = async_compile.triton('kernel', {text.value.replace(old, new, 1)!r})\n\ndef call(args):\n    return ()\n", "piece")
        assert refused(changed)


def test_what_stands_around_the_function_is_left_behind():
    code = output_code(before="import os\nos.system('touch /tmp/never')\nX = __import__('os')\n")
    source = job(read_kernel(code, "kernel")).source
    tree = ast.parse(source)
    assert [type(n) for n in tree.body] == [ast.FunctionDef]
    assert [ast.unparse(d) for d in tree.body[0].decorator_list] == ["triton.jit"]
    assert "os" not in {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)} and "heuristics" not in source


def test_reading_a_kernel_runs_nothing():
    """No event of Python's audit that imports, executes or starts anything."""
    codes = [output_code(BODY + text + STORE) for text in HOSTILE.values()] + [output_code(before="__import__('os').system('true')")]
    seen, on = [], [True]

    def hook(event: str, arguments: tuple) -> None:
        if on[0] and (event in ("exec", "os.system", "subprocess.Popen", "os.exec", "open", "socket.connect") or event == "import" and arguments[0] != "ast"):
            seen.append((event, arguments))

    sys.addaudithook(hook)
    for code in codes:
        try:
            groups(places(read_kernel(code, "kernel")))
        except Refused:
            pass
    on[0] = False
    assert not seen


# ---- places that round
def test_places_and_what_is_taken_away():
    kernel = read_kernel(output_code(MIDDLE), "kernel")
    found = places(kernel)
    assert [(p.name, p.dtype, bool(p.pointer)) for p in found] == [("tmp4", "bfloat16", False), ("out_ptr0", "bfloat16", True)]
    assert len(groups(found)) == 2
    nothing = job(kernel, [])
    assert nothing.signature["out_ptr0"] == "*fp32" and "bfloat16" not in nothing.source
    assert job(kernel).signature["out_ptr0"] == "*bf16" and "tl.bfloat16" in job(kernel).source


def test_one_value_rounded_twice_is_one_rounding():
    body = BODY + ("    tmp3 = tmp0 * tmp1\n    tmp4 = tmp3.to(tl.bfloat16)\n    tmp5 = tmp4.to(tl.float32)\n"
                   "    tl.store(out_ptr0 + xindex, tmp5, xmask)\n")
    assert len(groups(places(read_kernel(output_code(body), "kernel")))) == 1
