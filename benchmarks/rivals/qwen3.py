"""A tiny Qwen3 twice: transformers' training forward, and the same weights in an engine's spelling.

The engine's spelling is what vLLM's model code writes: merged QKV and gate-up projections, the residual carried beside
the stream into a fused add and norm, norms and rotation in FP32 islands, halves instead of `rotate_half`.
"""

import torch
import torch.nn.functional as F
from transformers import Qwen3Config, Qwen3ForCausalLM


def model(layers: int):
    torch.manual_seed(0)
    config = Qwen3Config(
        hidden_size=256, intermediate_size=512, num_attention_heads=4, num_key_value_heads=2, head_dim=64,
        vocab_size=512, num_hidden_layers=layers, max_position_embeddings=512, tie_word_embeddings=False,
        attn_implementation="eager", use_cache=False,
    )  # fmt: skip
    made = Qwen3ForCausalLM(config).float().eval()
    for name, p in made.named_parameters():     # weights of ones would hide half of the ops' values
        if name.endswith("norm.weight"):
            p.data.uniform_(0.5, 1.5)
    return made


def training(net):
    def forward(ids):
        tokens = ids.shape[-1]
        mask = torch.full((1, 1, tokens, tokens), float("-inf")).triu(1)  # given: building it is data dependent
        return net(
            input_ids=ids, position_ids=torch.arange(tokens)[None], attention_mask={"full_attention": mask}
        ).logits

    return forward


def inference(net):
    c = net.config
    heads, kv, dim = c.num_attention_heads, c.num_key_value_heads, c.head_dim

    def norm(x, w, residual=None):
        if residual is not None:
            x = x.float() + residual.float()
            residual = x.to(w.dtype)
        x = x.float()
        n = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + c.rms_norm_eps)
        n = (n * w.float()).to(w.dtype)
        return n if residual is None else (n, residual)

    def rotate(x, cos, sin):
        a, b = x.float().chunk(2, -1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(x.dtype)

    def forward(ids):
        tokens = ids.shape[-1]
        x = F.embedding(ids[0], net.model.embed_tokens.weight)
        pos = torch.arange(tokens).float()
        inv = 1.0 / (c.rope_parameters["rope_theta"] ** (torch.arange(0, dim, 2).float() / dim))
        angle = torch.outer(pos, inv)[:, None]
        cos, sin = angle.cos(), angle.sin()
        residual = None
        for layer in net.model.layers:
            at, mlp = layer.self_attn, layer.mlp
            w = layer.input_layernorm.weight
            if residual is None:
                x, residual = norm(x, w), x
            else:
                x, residual = norm(x, w, residual)
            qkv = F.linear(x, torch.cat((at.q_proj.weight, at.k_proj.weight, at.v_proj.weight)))
            q, k, v = qkv.split((heads * dim, kv * dim, kv * dim), -1)
            q = rotate(norm(q.view(tokens, heads, dim), at.q_norm.weight), cos, sin).transpose(0, 1)
            k = rotate(norm(k.view(tokens, kv, dim), at.k_norm.weight), cos, sin).transpose(0, 1)
            v = v.view(tokens, kv, dim).transpose(0, 1)
            k, v = (t[:, None].expand(kv, heads // kv, tokens, dim).reshape(heads, tokens, dim) for t in (k, v))
            scores = q @ k.transpose(1, 2) * dim**-0.5
            scores = scores.masked_fill(torch.ones(tokens, tokens, dtype=torch.bool).triu(1), float("-inf"))
            y = torch.softmax(scores, -1) @ v
            x = F.linear(y.transpose(0, 1).reshape(tokens, heads * dim), at.o_proj.weight)
            x, residual = norm(x, layer.post_attention_layernorm.weight, residual)
            gate, up = F.linear(x, torch.cat((mlp.gate_proj.weight, mlp.up_proj.weight))).chunk(2, -1)
            x = F.linear((F.silu(gate.float()) * up.float()).to(x.dtype), mlp.down_proj.weight)
        x, _ = norm(x, net.model.norm.weight, residual)
        return F.linear(x, net.lm_head.weight)[None]

    return forward
