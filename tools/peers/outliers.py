"""Weights that make outliers as the published model's do, and a case that shows who bears them.

Ranges that were seen in the published model: scales and shifts of the modulation up to 30, normed values up to 9 (block
0), modulated ones up to 70, the MLP's output up to 26,000, and a stream of ±2e6 after block 0 and ±4.5e7 after block
59, in which a few channels are far larger than all others. Random weights make nothing of the kind, so some of their
rows are made larger here: in 4-bit groups that is a matter of scales and biases, and no value loses precision.

The case is block 1, the first that such values enter: its input comes from a run of the engine in fp32, and what it
should make of it from diffusers in fp32.
"""

import shutil

import numpy as np

from tools.peers import block, dequantize
from tools.peers.models import STEM, write_once

SIDE = 512
MEASURED = 1  # the block
RUN = "outliers"
CHANNELS = 8  # that are far larger than the others
DEPTH = 60  # blocks of the published model
GROWTH = 0.055  # by which a block's MLP has larger outputs than the one before, in units of the first
SPREAD = 0.7  # of the logarithm of all others' size
STEP = "transformer/step000/"
ENTERING = tuple(f"{STEP}transformer_blocks.{MEASURED - 1}:{stream}" for stream in ("img", "txt"))
LEAVING = tuple(f"{STEP}transformer_blocks.{MEASURED}:{stream}" for stream in ("img", "txt"))
TIME = f"{STEP}time_text_embed"
VELOCITY = "noise_pred_step0"
ENDS = {name: f"{STEP}transformer_blocks.{index}:img" for name, index in (("first", 0), ("last", DEPTH - 1))}

# Factors of the rows, (of all, of the few), found by what they make of random weights: a modulation's values have a
# standard deviation of 0.08, an MLP's output one of 3.
MODULATION = {
    "shift1": (13, 260),
    "scale1": (13, 260),
    "gate1": (13, 13),
    "shift2": (13, 260),
    "scale2": (13, 260),
    "gate2": (60, 600),
}
MLP_OUTPUT = (700, 3700)


def row_factors(all_rows, few, channels, random):
    factors = all_rows * np.exp(SPREAD * random.standard_normal(block.WIDTH))
    factors[channels] = few
    return factors


def factors_of(layer, stream_channels, random, growth):
    """For the rows of a layer; None: it stays as it is. The stream's large channels are the same in every block, those
    of the modulation are others."""
    if layer.endswith("_mlp.net.2"):
        return row_factors(*MLP_OUTPUT, stream_channels, random) * (1 + growth * int(layer.split(".")[1]))
    if not layer.endswith("_mod.1"):
        return None
    parts = []
    for part, (all_rows, few) in MODULATION.items():
        own = random.choice(block.WIDTH, CHANNELS, replace=False)
        factors = np.full(block.WIDTH, float(all_rows))
        factors[stream_channels if part == "gate2" else own] = few
        parts.append(factors)
    return np.concatenate(parts)


def enlarge(folder, growth):
    """Makes rows of a transformer's 4-bit files larger, in place."""
    random = np.random.default_rng(1)
    channels = random.choice(block.WIDTH, CHANNELS, replace=False)
    shards = [dequantize.Shard(path, writable=True) for path in sorted(folder.glob("*.safetensors"))]
    names = [name for name, _ in dequantize.tensors_of(shards) if name.endswith(".weight")]
    for layer in (name.removesuffix(".weight") for name in names):
        factors = factors_of(layer, channels, random, growth)
        if factors is None:
            continue
        for part in ("scales", "biases"):
            raw = next(s for s in shards if f"{layer}.{part}" in s.header).bytes_of(f"{layer}.{part}")
            values = dequantize.from_bfloat16(raw).reshape(len(factors), -1) * factors[:, None].astype(np.float32)
            raw[:] = dequantize.to_bfloat16(values).reshape(-1).view(np.uint8)
    for shard in shards:
        shard.data.flush()


def transformer(models, blocks=4):
    """The folder of a 4-bit model of such blocks."""

    def write(folder):
        models.write_transformer(folder, blocks)
        enlarge(folder, GROWTH if blocks == DEPTH else 0)

    return write_once(models.root / f"transformer_outliers_{blocks}", f"writing {blocks} blocks with outliers", write)


def block_folder(models):
    """The measured block's values in fp32, exactly what the 4-bit ones are worth, and nothing else of the model."""
    source = transformer(models)

    def write(folder):
        folder.mkdir(parents=True)
        prefix = f"transformer_blocks.{MEASURED}."
        dequantize.write_float32(source, folder / f"{STEM}.safetensors", lambda name: name.startswith(prefix))

    return write_once(models.root / "outlier_block", "writing a block with outliers in fp32", write)


def case(models, engine, write_expected):
    """The file of the case, made once. write_expected(block, inputs, target) adds what fp32 makes of the inputs."""

    def write(folder):
        folder.mkdir(parents=True)
        record(models, engine, folder, "exact", (*ENTERING, *LEAVING, TIME))
        run = folder / RUN
        (run / "cpp").rename(run / "ref")
        arrays = {"image": ENTERING[0], "text": ENTERING[1], "temb": TIME}
        np.savez(folder / "inputs.npz", **{key: np.load(run / "ref" / f"{name}.npy") for key, name in arrays.items()})
        write_expected(block_folder(models), folder / "inputs.npz", folder / "case.npz")

    return write_once(models.root / "outlier_case", "the block with outliers, in fp32", write) / "case.npz"


def record(models, engine, folder, precision, checkpoints, substitute=()):
    return engine.record(transformer(models), SIDE, precision, folder, RUN, checkpoints, substitute)


def engine_error(models, engine, case_file):
    """(the run, its NMSE): the engine's block on the case's inputs."""
    folder = case_file.parent
    shutil.rmtree(folder / RUN / "cpp", ignore_errors=True)
    done = record(models, engine, folder, "fast", LEAVING, ENTERING)
    image, text = (np.load(folder / RUN / "cpp" / f"{name}.npy") for name in LEAVING)
    return done, block.nmse(case_file, image, text)


def depth_error(models, engine):
    """(the run, figures): the velocity that all blocks of the published number make, fast against exact, and the
    largest value behind the first and the last of them."""
    folder = models.root / "outlier_depth"
    shutil.rmtree(folder, ignore_errors=True)
    velocity = {}
    for precision in ("exact", "fast"):
        checkpoints = (VELOCITY, *ENDS.values())
        done = engine.record(transformer(models, DEPTH), SIDE, precision, folder, precision, checkpoints)
        arrays = folder / precision / "cpp"
        velocity[precision] = np.load(arrays / f"{VELOCITY}.npy")
    figures = {f"largest_{name}": float(np.abs(np.load(arrays / f"{at}.npy")).max()) for name, at in ENDS.items()}
    return done, figures | {"nmse": block.relative(velocity["exact"], velocity["fast"])}


def largest_values(case_file):
    """Of the streams that enter the block and leave it."""
    with np.load(case_file) as arrays:
        return {name: float(np.abs(arrays[name]).max()) for name in ("image", "text", *block.EXPECTED)}
