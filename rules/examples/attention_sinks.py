# The case tests/cases/more/231_attention_sinks.py, shipped with the rules.
"""Attention with learned sinks (GPT-OSS): the sink logit joins the softmax and is dropped after it. The trainer works in bf16 up to the softmax, the engine in fp32.
Expected moved: scores, scaled scores, and scores less the row maximum in training only; joining and dropping the sink round nothing."""
import torch
import torch.nn.functional as F
bf = torch.bfloat16


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return (1.5 * torch.randn(4, 32, 96, generator=g)).to(bf), (1.5 * torch.randn(4, 32, 96, generator=g)).to(bf), torch.randn(4, generator=g).to(bf)


def _join(s, sinks):
    return torch.cat((s, sinks[:, None, None].expand(4, s.shape[1], 1)), -1)


def inference(q, k, sinks):
    s = _join(q.float() @ k.float().transpose(1, 2) * 96 ** -0.5, sinks.float())
    s = s - s.amax(-1, keepdim=True)
    return torch.softmax(s, -1)[..., :-1].to(bf)


def training(q, k, sinks):
    s = _join(torch.matmul(q, k.transpose(1, 2)) * 96 ** -0.5, sinks)
    s = s - s.max(dim=-1, keepdim=True).values
    return F.softmax(s, dim=-1, dtype=s.dtype)[..., :-1]
