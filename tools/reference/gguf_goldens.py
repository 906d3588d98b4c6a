"""Writes the goldens of GGUF files with the official package (gguf, from the authors of ggml).

    python -m tools.reference.gguf_goldens --out tests/goldens/gguf

all_types.gguf             a tensor of every type that the engine decodes and of some that it only lists, and metadata of
                           every kind
all_types.safetensors      what gguf.quants.dequantize makes of the decoded ones
alignment.gguf             another alignment than the usual 32
"""

import argparse
from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf import GGUFValueType as Value
from safetensors.numpy import save_file

# The package quantizes to these itself; of the others it only knows how to read them.
QUANTIZED = (Type.Q8_0, Type.Q4_0, Type.Q4_1, Type.Q5_0, Type.Q5_1)
# Where the block's scales are, in bytes; the rest of a block may be any bits.
SCALES = {
    Type.Q8_0: (0,),
    Type.Q4_0: (0,),
    Type.Q4_1: (0, 2),
    Type.Q5_0: (0,),
    Type.Q5_1: (0, 2),
    Type.Q2_K: (80, 82),
    Type.Q3_K: (108,),
    Type.Q4_K: (0, 2),
    Type.Q5_K: (0, 2),
    Type.Q6_K: (208,),
    Type.IQ4_NL: (0,),
    Type.IQ4_XS: (0,),
}
# Only listed: their sizes must be known all the same. Of Q8_1, which no file holds, the package has a wrong one.
PLAIN = (Type.F32, Type.F16, Type.BF16, Type.F64, Type.I8, Type.I16, Type.I32, Type.I64)
UNREAD = [kind for kind in Type if kind not in (*PLAIN, *SCALES, Type.Q8_1)]


def random_blocks(rng, kind, rows, blocks):
    """Blocks of random bits with scales of both signs, among them a zero and a subnormal one."""
    values, size = gguf.GGML_QUANT_SIZES[kind]
    data = rng.integers(0, 256, (rows * blocks, size), dtype=np.uint8)
    for at in SCALES[kind]:
        scales = rng.normal(0, 0.05, rows * blocks).astype(np.float16)
        scales[:2] = (0, np.float16(3e-6))
        data[:, at : at + 2] = scales.view(np.uint8).reshape(-1, 2)
    return data.reshape(rows, blocks * size)


def tensors(rng):
    """name → (raw data, type), and name → expected floats"""
    stored, expected = {}, {}

    def add(name, data, kind, values):
        stored[name] = (data, kind)
        expected[name] = np.ascontiguousarray(values, dtype=np.float32)

    plain = rng.normal(0, 1, (3, 5)).astype(np.float32)
    add("plain.F32", plain, None, plain)
    add("plain.F16", plain.astype(np.float16), None, plain.astype(np.float16))
    bf16 = gguf.quants.quantize(plain, Type.BF16)
    add("plain.BF16", bf16, Type.BF16, gguf.quants.dequantize(bf16, Type.BF16))
    add("plain.F64", plain.astype(np.float64) / 3, None, plain.astype(np.float64) / 3)
    integers = rng.integers(-128, 128, (2, 2, 7), dtype=np.int8)
    add("plain.I8", integers, None, integers)
    add("scalar.F32", np.array([2.5], np.float32), None, np.array([2.5]))
    for kind in QUANTIZED:
        weight = rng.normal(0, 0.05, (4, 2, 64)).astype(np.float32)
        data = gguf.quants.quantize(weight, kind)
        add(f"quantized.{kind.name}", data, kind, gguf.quants.dequantize(data, kind))
    for kind in SCALES:
        data = random_blocks(rng, kind, rows=2, blocks=3)
        add(f"random.{kind.name}", data, kind, gguf.quants.dequantize(data, kind))
    # ggml knows four dimensions, and blocks need rows of 32; city96's converter folds such tensors into rows.
    folded = gguf.quants.quantize(rng.normal(0, 1, (4, 96)).astype(np.float32), Type.Q8_0)
    stored["folded.weight"] = (folded, Type.Q8_0)
    expected["folded.weight"] = gguf.quants.dequantize(folded, Type.Q8_0).reshape(6, 2, 2, 4, 4)
    for kind in (np.int16, np.int32, np.int64):
        stored[f"unread.I{np.dtype(kind).itemsize * 8}"] = (np.arange(6, dtype=kind).reshape(2, 3), None)
    for kind in UNREAD:
        values, size = gguf.GGML_QUANT_SIZES[kind]
        stored[f"unread.{kind.name}"] = (rng.integers(0, 256, (2, size), dtype=np.uint8), kind)
    return stored, expected


def add_metadata(writer):
    writer.add_uint8("scalar.uint8", 200)
    writer.add_int8("scalar.int8", -100)
    writer.add_uint16("scalar.uint16", 60000)
    writer.add_int16("scalar.int16", -30000)
    writer.add_uint32("scalar.uint32", 4000000000)
    writer.add_int32("scalar.int32", -2000000000)
    writer.add_uint64("scalar.uint64", 2**64 - 1)
    writer.add_int64("scalar.int64", -(2**63))
    writer.add_float32("scalar.float32", 1e-6)
    writer.add_float64("scalar.float64", 0.1)
    writer.add_bool("scalar.bool", True)
    writer.add_bool("scalar.bool_false", False)
    writer.add_string("scalar.string", "Grüße, 世界\n")
    writer.add_array("array.string", ["Ġthe", "", "世界"])
    writer.add_array("array.bool", [True, False])
    writer.add_array("array.nested", [[1, 2], [3]])
    for kind, values in {
        Value.UINT8: [0, 255],
        Value.INT8: [-128, 127],
        Value.UINT16: [0, 65535],
        Value.INT16: [-32768, 32767],
        Value.UINT32: [0, 2**32 - 1],
        Value.INT32: [-(2**31), 2**31 - 1],
        Value.UINT64: [0, 2**63 - 1],
        Value.INT64: [-(2**63), 2**63 - 1],
        Value.FLOAT32: [0.5, 1.5],
        Value.FLOAT64: [0.5, 1.5],
    }.items():
        writer.add_key_value(f"array.{kind.name.lower()}", values, Value.ARRAY, sub_type=kind)
    writer.add_array("comfy.gguf.orig_shape.folded.weight", (6, 2, 2, 4, 4))


def write(path, stored, metadata=None, alignment=None):
    writer = gguf.GGUFWriter(path, "qwen_image")
    if alignment:
        writer.add_custom_alignment(alignment)
    if metadata:
        metadata(writer)
        # GGUF itself leaves the sizes to the reader's arithmetic.
        writer.add_array("layout.names", list(stored))
        writer.add_array("layout.bytes", [data.nbytes for data, kind in stored.values()])
    for name, (data, kind) in stored.items():
        writer.add_tensor(name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    stored, expected = tensors(np.random.default_rng(7))
    write(out / "all_types.gguf", stored, add_metadata)
    save_file(expected, out / "all_types.safetensors")
    numbers = {name: (np.arange(n, dtype=np.float32), None) for name, n in {"a": 3, "b": 70, "c": 1}.items()}
    write(out / "alignment.gguf", numbers, alignment=256)


if __name__ == "__main__":
    main()
