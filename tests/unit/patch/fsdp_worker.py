"""Two CPU processes, FSDP2, float32 master weights and BF16 compute: the patched model trains as it does in one process.

Usage: fsdp_worker.py PATCH_FOLDER
"""

import importlib
import os
import socket
import sys
import warnings
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

sys.path.insert(0, str(Path(__file__).parent))

STEPS = 10


def losses(model, optimiser):
    from patch_models import loss_of, tokens

    found = []
    for step in range(STEPS):
        optimiser.zero_grad()
        loss = loss_of(model, tokens(2, 16, seed=step % 4))
        loss.backward()
        optimiser.step()
        found.append(loss.item())
    return found


def worker(rank, folder, port):
    from patch_models import ALL, forwards, tiny
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=2)
    package = importlib.import_module(folder.name)

    alone = tiny()
    handle = package.apply(alone, **ALL)
    with torch.no_grad():
        from patch_models import loss_of, tokens

        first = loss_of(alone, tokens(2, 16)).item()
    handle.revert()

    for order in ("apply, then shard", "shard, then apply"):
        model = tiny().float()
        before = forwards(model) if order.startswith("apply") else None
        if order.startswith("apply"):
            handle = package.apply(model, **ALL)
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16)
        mesh = dist.device_mesh.init_device_mesh("cpu", (2,))
        for layer in model.model.layers:
            fully_shard(layer, mesh=mesh, mp_policy=policy)
        fully_shard(model, mesh=mesh, mp_policy=policy)
        if order.startswith("shard"):
            before = forwards(model)
            handle = package.apply(model, **ALL)
        found = losses(model, torch.optim.AdamW(model.parameters(), lr=3e-4))
        assert found[0] == first, (order, found[0], first)
        assert all(map(torch.isfinite, map(torch.tensor, found))) and found[-1] < found[0], found
        handle.revert()
        assert {n: f for n, (_, f, _) in forwards(model).items()} == {n: f for n, (_, f, _) in before.items()}
        if rank == 0:
            print(f"{order}: {found[0]:.4f} -> {found[-1]:.4f}, first loss equal to one process's", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    target = Path(sys.argv[1])
    os.environ["PYTHONPATH"] = os.pathsep.join([str(target.parent), os.environ.get("PYTHONPATH", "")])
    sys.path.insert(0, str(target.parent))
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        free = s.getsockname()[1]
    mp.spawn(worker, (target, free), nprocs=2)
