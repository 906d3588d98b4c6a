"""Values of torch's CPU generator, which the engine's generator must reproduce."""

import torch

from tools.reference import golden_json

# torch seeds its Mersenne Twister with the low 32 bits only; the large seeds show it.
SEEDS = (0, 1, 42, 2**32 - 1, 2**32 + 42, 2**63 + 12345, 2**64 - 1)
# Below 16 values torch draws one by one in double precision; from 16 on in blocks, and redraws a partial last block.
SIZES = (1, 2, 15, 16, 17, 31, 64, 1000, 65536)
KEPT_WHOLE = 64
EDGE = 32


def row(seed, sizes):
    """Successive torch.randn calls of these sizes on one generator; of a large one only the edges."""
    generator = torch.Generator("cpu").manual_seed(seed)
    draws = []
    for size in sizes:
        values = torch.randn(size, generator=generator, dtype=torch.float32)
        if size <= KEPT_WHOLE:
            draws.append({"size": size, "values": golden_json.floats(values)})
        else:
            draws.append(
                {
                    "size": size,
                    "first": golden_json.floats(values[:EDGE]),
                    "last": golden_json.floats(values[-EDGE:]),
                }
            )
    return {"seed": seed, "draws": draws}


def write(path):
    rows = [row(seed, (size,)) for seed in SEEDS for size in SIZES]
    # A single value leaves half a pair behind, which the next small draw uses up.
    rows += [row(42, sizes) for sizes in ((1, 1, 16), (15, 17, 64), (64, 64), (3, 1000, 5))]
    golden_json.write(path, "torch.Generator('cpu').manual_seed(seed), then torch.randn per draw, float32", rows)
