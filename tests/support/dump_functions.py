"""Functions whose compilation is dumped: run as a script it compiles them live and writes what it saw.

    TORCH_TRACE=DIR TORCH_LOGS=output_code,post_grad_graphs TORCH_LOGS_OUT=FILE python dump_functions.py OUT NAME...

NAME is one of FUNCTIONS, with `:training` for gradients, or `:native` for a plain torch.compile on this CPU.
"""

import hashlib
import json
import sys

import torch


def norm(x, residual, weight):
    h = residual + x
    f = h.float()
    y = f * torch.rsqrt(f.pow(2).mean(-1, keepdim=True) + 1e-6)
    return weight * y.to(h.dtype), h


def mlp(x, gate, up, down):
    return (torch.nn.functional.silu(x @ gate) * (x @ up)) @ down


def attention_weights(q, k, mask):
    scores = (q @ k.transpose(-1, -2)) * 0.125 + mask
    return torch.softmax(scores.float(), -1).to(q.dtype)


FUNCTIONS = {
    "norm": (norm, ((4, 64), (4, 64), (64,))),
    "mlp": (mlp, ((4, 64), (64, 96), (64, 96), (96, 64))),
    "attention_weights": (attention_weights, ((2, 8, 16), (2, 8, 16), (8, 8))),
}


def inputs(name, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(shape, generator=generator).bfloat16() for shape in FUNCTIONS[name][1])


def canonical(program, names=False):
    """A program without its numbers: nodes, what they read, formats, kernels and the lines of generated code."""

    def operand(o):
        index = hashlib.sha256(program.blobs[o.index].tobytes()).hexdigest()[:16] if o.index >= 0 else ""
        return [list(o.nodes), list(o.shape), o.form, o.offset, list(o.strides), index]

    nodes = []
    for n, node in enumerate(program.nodes):
        site = program.site(n)
        attrs = {k: str(v) for k, v in node.attrs.items() if k != "name" or names}
        read = [operand(o) for o in node.operands]
        nodes.append([node.op, list(node.shape), read, attrs, node.dtype, node.dynamic, site.kernel, site.name, list(site.origin), site.code_line])
    return {"nodes": nodes, "outputs": [[o.name, operand(o.operand)] for o in program.outputs]}


def main(out, *wanted):
    seen = {}
    for spec in wanted:
        name, _, how = spec.partition(":")
        function = FUNCTIONS[name][0]
        if how == "native":
            torch.compile(function)(*inputs(name))
            continue
        from graphdiff.capture.compiled import record_compiled
        from graphdiff.capture.function import Function

        argument_names = function.__code__.co_varnames[: function.__code__.co_argcount]
        recorded = record_compiled(Function(function, inputs(name), argument_names, __file__, name), "cuda:90", training=how == "training")
        seen[spec] = canonical(recorded.program, names=True)
    with open(out, "w") as file:
        json.dump(seen, file)


if __name__ == "__main__":
    main(*sys.argv[1:])
