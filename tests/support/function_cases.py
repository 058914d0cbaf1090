"""Functions whose CUDA code is lowered and whose numbers are compared with eager (see test_wide_functions)."""

import torch, torch.nn.functional as F
bf=torch.bfloat16
def r(*s,d=bf): 
    return torch.randn(*s,generator=torch.Generator().manual_seed(sum(s)+len(s))).to(d)
def rms(x,w): h=x.float(); return w*(h*torch.rsqrt(h.pow(2).mean(-1,keepdim=True)+1e-6)).to(x.dtype)
def addrms(x,y,w):
    h=x+y; f=h.float(); return (w*(f*torch.rsqrt(f.pow(2).mean(-1,keepdim=True)+1e-6)).to(x.dtype)), h
def rope(x,c,s):
    h=x.shape[-1]//2; return x*c+torch.cat((-x[...,h:],x[...,:h]),-1)*s
def heads(x):
    q,k,v=(t.view(2,16,4,32).transpose(1,2) for t in x.chunk(3,-1))
    return F.silu(F.scaled_dot_product_attention(q,k,v,is_causal=True).transpose(1,2).reshape(2,16,128))*2
ids=torch.tensor([3,1,4,1,5,9,2,6])
CASES={
 'softmax':(lambda x:torch.softmax(x,-1),(r(8,512),)),
 'softmax_big':(lambda x:torch.softmax(x,-1),(r(8,8192),)),
 'log_softmax':(lambda x:torch.log_softmax(x.float(),-1),(r(8,8192),)),
 'layer_norm256':(lambda x,w,b:F.layer_norm(x,(256,),w,b),(r(8,256),r(256),r(256))),
 'layer_norm8192':(lambda x,w,b:F.layer_norm(x,(8192,),w,b),(r(8,8192),r(8192),r(8192))),
 'gelu':(lambda x:F.gelu(x),(r(8,256),)),
 'gelu_tanh':(lambda x:F.gelu(x,approximate='tanh'),(r(8,256),)),
 'silu_up':(lambda x,y:F.silu(x)*y,(r(8,256),r(8,256))),
 'rope':(rope,(r(8,4,64),r(8,1,64),r(8,1,64))),
 'rms256':(rms,(r(8,256),r(256))),'rms1024':(rms,(r(8,1024),r(1024))),'rms8192':(rms,(r(8,8192),r(8192))),
 'addrms8192':(addrms,(r(8,8192),r(8,8192),r(8192))),'addrms256':(addrms,(r(8,256),r(8,256),r(256))),
 'cross_entropy':(lambda x,t:F.cross_entropy(x.float(),t),(r(8,8192),ids)),
 'cross_entropy_small':(lambda x,t:F.cross_entropy(x.float(),t),(r(8,256),ids)),
 'moe_combine':(lambda y,w:(y*w.unsqueeze(-1)).sum(1),(r(8,2,256),r(8,2))),
 'cumsum':(lambda x:torch.cumsum(x,-1),(r(8,256),)),
 'argmax':(lambda x:x.argmax(-1),(r(8,256),)),
 'argmax_gather':(lambda x:x.gather(-1,x.argmax(-1,keepdim=True))*2,(r(8,256),)),
 'argmax_big':(lambda x:x.argmax(-1)*2+x.sum(-1),(r(8,8192),)),
 'gather':(lambda x,t:x.gather(-1,t[:,None])*3,(r(8,256),ids)),
 'embedding':(lambda w,t:F.embedding(t,w)*2,(r(16,256),ids)),
 'pad':(lambda x:F.pad(x*2,(3,5)),(r(8,256),)),
 'cat':(lambda x,y:torch.cat((x*2,y+1),-1),(r(8,256),r(8,128))),
 'linear_bias':(lambda x,w,b:F.linear(x,w,b)*2,(r(8,256),r(128,256),r(128))),
 'bmm':(lambda x,y:torch.bmm(x,y).relu(),(r(2,8,64),r(2,64,8))),
 'sdpa':(lambda q,k,v:F.scaled_dot_product_attention(q,k,v,is_causal=True)*2,(r(1,4,16,64),r(1,4,16,64),r(1,4,16,64))),
 'sdpa_heads':(heads,(r(2,16,384),)), 'sdpa_heads_fp32':(heads,(r(2,16,384,d=torch.float32),)),
 'std':(lambda x:x.std(-1),(r(8,256),)), 'var_big':(lambda x:x.float().var(-1),(r(8,8192),)),
 'clamp':(lambda x:x.clamp(-.5,.5)*x.sign(),(r(8,256),)),
 'pow':(lambda x:x.abs().pow(1.7)+x.pow(3),(r(8,256),)),
 'logsumexp':(lambda x:torch.logsumexp(x,-1),(r(8,256),)),
 'tril_mask':(lambda x:x.masked_fill(torch.ones(16,16,dtype=torch.bool).tril().logical_not(),float('-inf')).softmax(-1),(r(4,16,16),)),
 'isnan':(lambda x:torch.nan_to_num(x/x),(r(8,256),)),
 'topk':(lambda x:x.topk(2)[0],(r(8,16),)),
 'sort':(lambda x:x.sort(-1)[0],(r(8,16),)),
 'amin':(lambda x:x.amin(-1)-x.amax(-1),(r(8,256),)),
 'prod':(lambda x:x.prod(-1),(r(8,16),)),
 'mean0':(lambda x:x.mean(0),(r(64,256),)),
 'inv_freq':(lambda p:torch.cos(p[:,None].float()*(1.0/(10000**(torch.arange(0,64,2)/64)))[None]).to(bf),(torch.arange(8),)),
 'round_half':(lambda x:torch.round(x*3)+torch.floor(x),(r(8,256),)),
 'fp8':(lambda x:(x.float().clamp(-448,448)).to(torch.float8_e4m3fn).to(bf)*2,(r(8,256),)),
 'index_put':(lambda x,y,t:x.index_put((t,),y),(r(16,32),r(8,32),ids)),
 'scatter_add':(lambda x,y,t:x.index_add(0,t,y),(r(16,32),r(8,32),ids)),
 'dropout':(lambda x:F.dropout(x,.5),(r(8,256),)),
 'erf':(lambda x:torch.erf(x)+torch.tanh(x),(r(8,256),)),
 'fp16':(lambda x:F.silu(x)*2,(r(8,256,d=torch.float16),)),
 'fp32':(lambda x:F.silu(x)*2,(r(8,256,d=torch.float32),)),
 'transpose':(lambda x:(x.transpose(1,2)*2).contiguous()+1,(r(4,8,64),)),
 'conv1d':(lambda x,w:F.conv1d(x,w),(r(1,4,32),r(8,4,3))),
 'roll':(lambda x:torch.roll(x,1,-1)*2,(r(8,256),)),
 'repeat_kv':(lambda x:x[:,:,None].expand(2,4,3,8,16).reshape(2,12,8,16)*2,(r(2,4,8,16),)),
 'where_x':(lambda x:torch.where(x>0,x*2,x*.5),(r(8,256),)),
 'stack':(lambda x:torch.stack((x,x*2),1).flatten(1),(r(8,256),)),
 'sum_big':(lambda x:x.sum(),(r(512,512),)),
 'chunk_swiglu':(lambda x:F.silu(x.chunk(2,-1)[0])*x.chunk(2,-1)[1],(r(8,512),)),
}
