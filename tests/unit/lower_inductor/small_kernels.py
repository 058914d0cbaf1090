"""Hand-written output codes around one kernel."""

KERNEL = """
k = async_compile.triton('k', '''
import triton
import triton.language as tl

@triton_heuristics.{kind}(
    triton_meta={{'signature': {signature}}},
    inductor_meta={{'grid_type': 'Grid1D'}},
)
@triton.jit
def k({parameters}):
{body}
''', device_str='cuda')

def call(args):
{call}
"""

INDEX = """xoffset = tl.program_id(0) * XBLOCK
xindex = xoffset + tl.arange(0, XBLOCK)[:]
xmask = xindex < xnumel
x0 = xindex
"""


def output_code(body: str, call: str, *, pointers: dict[str, str], kind: str = "pointwise", index: str = INDEX,
                sizes: tuple[str, ...] = ("xnumel",), blocks: tuple[str, ...] = ("XBLOCK",)) -> str:
    """A module with kernel `k`: pointers (name -> '*bf16'), then sizes, then blocks."""
    signature = {**pointers, **dict.fromkeys(sizes, "i32"), **dict.fromkeys(blocks, "constexpr")}
    parameters = [*pointers, *sizes, *(f"{b} : tl.constexpr" for b in blocks)]
    indented = lambda text: "\n".join("    " + line for line in text.strip("\n").splitlines())  # noqa: E731
    return KERNEL.format(kind=kind, signature=signature, parameters=", ".join(parameters),
                         body=indented(index + body), call=indented(call))
