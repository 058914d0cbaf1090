"""MoE: the engine applies the routing weight to the activation, before the down projection (apply_router_weight_on_input), the trainer to its output.
Mathematically one value, reached over another path: no schedule makes one side's skeleton the other's.
Expected moved: activation and down_proj output in training only, the weighted activation in inference only."""
import torch
import torch.nn.functional as F
bf = torch.bfloat16
EXPECT = dict(verdict="moved", moved_training_only=["activation", "down_out"], moved_inference_only=["weighted_activation"], slack="GEMM order, other skeleton", other_skeleton=True)


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(32, 128, generator=g).to(bf), torch.randn(32, 128, generator=g).to(bf), torch.rand(32, 1, generator=g).to(bf), (128 ** -0.5 * torch.randn(192, 128, generator=g)).to(bf)


def inference(g, u, w, down):
    return F.linear((F.silu(g.float()) * u.float() * w.float()).to(bf), down)


def training(g, u, w, down):
    return F.linear((F.silu(g.float()) * u.float()).to(bf), down) * w


def aligned(rnd, g, u, w, down):
    a = rnd("activation", F.silu(g.float()) * u.float())
    aw = a * w.float()
    rounded = rnd("weighted_activation", aw)
    after = rnd("down_out", a @ down.float().t()) * w.float()
    return ((rounded @ down.float().t()) if rounded is not aw else after).to(bf)
