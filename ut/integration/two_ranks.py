"""A training script for two gloo ranks, started by test_two_ranks.py through the launcher; prints one JSON line.

Tensor parallelism gives each rank half of the heads, context parallelism a part of the sequence cut at a chunk.
The stand-in's L1 runs each rank's slice and the whole; the results must agree bit for bit.
"""
import json
import sys

import torch
import torch.distributed as dist
from mindspeed_llm.tasks.models.transformer.chunk_gated_delta_rule import chunk_gated_delta_rule_fwd

from mindspeed_kkt_plugin import status
from mindspeed_kkt_plugin.integration.forward import consumer_of
from ut.inputs import make_inputs

CHUNK = 16


def forward(inputs, rows=slice(None), heads=slice(None), offsets=None):
    k, g, beta = (x[:, rows, heads].contiguous() for x in (inputs.k, inputs.g, inputs.beta))
    return chunk_gated_delta_rule_fwd(k, g, beta, offsets if offsets is not None else inputs.cu_seqlens, CHUNK)[2]


def gathered(part):
    parts = [torch.empty_like(part) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, part.contiguous())
    return parts


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    found = {"rank": rank, "argv": sys.argv[1:], "fused": consumer_of(chunk_gated_delta_rule_fwd)}
    for name, packed in (("fixed", None), ("packed", [0, 32, 64])):
        inputs = make_inputs("cosine_50", T=64, H=4, K=16, chunk_size=CHUNK, cu_seqlens=packed, dtype=torch.bfloat16)
        whole = forward(inputs)
        heads = forward(inputs, heads=slice(2 * rank, 2 * rank + 2))
        half = torch.tensor([0, 32]) if packed else None  # one whole sequence for each rank
        rows = forward(inputs, rows=slice(32 * rank, 32 * rank + 32), offsets=half)
        found[name] = {
            "heads": torch.equal(heads, whole[:, :, 2 * rank:2 * rank + 2]),
            "rows": torch.equal(rows, whole[:, 32 * rank:32 * rank + 32]),
            "heads_gathered": torch.equal(torch.cat(gathered(heads.float()), 2), whole.float()),
            "rows_gathered": torch.equal(torch.cat(gathered(rows.float()), 1), whole.float()),
        }
    found["paths"] = status()["calls"]
    sys.stdout.write("RESULT " + json.dumps(found) + "\n")
    dist.destroy_process_group()


main()
