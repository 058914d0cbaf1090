# The case tests/cases/more/325_neg_logprob_tail_spelling.py, shipped with the rules.
"""NEGATIVE. Chosen-token log-prob as gather(log_softmax) against gather - logsumexp against log(softmax), all fp32 from the same bf16 logits."""
import torch
bf = torch.bfloat16


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return (4 * torch.randn(32, 512, generator=g)).to(bf), torch.randint(0, 512, (32, 1), generator=g)


def inference(logits, ids):
    return torch.log_softmax(logits.float(), -1).gather(-1, ids).squeeze(-1)


def training(logits, ids):
    x = logits.float()
    return x.gather(-1, ids).squeeze(-1) - torch.logsumexp(x, dim=-1)
