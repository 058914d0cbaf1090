"""SwiGLU followed by per-token dynamic FP8 quantisation: the fused kernel takes amax and quantises from fp32, the unfused path from bf16.
Expected moved: silu(gate) and silu(gate)*up in training only. Outputs: quantised values and scales."""
import torch
import torch.nn.functional as F
bf, f8 = torch.bfloat16, torch.float8_e4m3fn
EXPECT = dict(verdict="moved", moved_training_only=["silu_gate", "silu_gate_up"], moved_inference_only=[], out_dtype="float8_e4m3fn as float32")


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(48, 1024, generator=g).to(bf), torch.randn(48, 1024, generator=g).to(bf)


def _quant(y):
    scale = y.abs().amax(-1, keepdim=True) / 448
    return (y / scale).to(f8).float(), scale


def inference(g, u):
    return _quant(F.silu(g.float()) * u.float())


def training(g, u):
    return _quant((F.silu(g) * u).float())


def aligned(rnd, g, u):
    return _quant(rnd("silu_gate_up", rnd("silu_gate", F.silu(g.float())) * u.float()))
