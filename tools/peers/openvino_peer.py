"""OpenVINO: one block of diffusers' transformer, converted, its weights compressed by NNCF, run once for every block of
the model. What lies before and after the blocks is left out. Run as a program it serves a Worker."""

from pathlib import Path

from worker import serve, timed

# The precision it computes in is its own choice for the CPU (bfloat16 where there are instructions for it), but for the
# last, which is told to keep to fp32.
FORCED = "f32, fp32 arithmetic"
VARIANTS = ("f32", "int4 group 64", "int8", FORCED)
HEADS, HEAD_DIM, WIDTH = 24, 128, 3072

loaded = {}


def real_rotation(x, rotation, use_real=True, use_real_unbind_dim=-1):
    """diffusers' apply_rotary_emb_qwen without complex numbers, which the converter does not know.

    rotation: [tokens, pairs, 2], cosines and sines.
    """
    import torch

    del use_real, use_real_unbind_dim
    real, imaginary = x.reshape(*x.shape[:-1], -1, 2).unbind(-1)
    cos, sin = rotation[:, None, :, 0], rotation[:, None, :, 1]
    return torch.stack([real * cos - imaginary * sin, real * sin + imaginary * cos], dim=-1).flatten(3)


def first_block(transformer):
    """transformer_blocks.0 with the weights of the file, and nothing else of the model."""
    from diffusers.models.transformers import transformer_qwenimage as source
    from safetensors import safe_open

    block = source.QwenImageTransformerBlock(WIDTH, HEADS, HEAD_DIM)
    prefix = "transformer_blocks.0."
    with safe_open(Path(transformer) / "diffusion_pytorch_model.safetensors", "pt") as file:
        state = {
            key.removeprefix(prefix): file.get_tensor(key).float() for key in file.keys() if key.startswith(prefix)
        }
    block.load_state_dict(state)
    source.apply_rotary_emb_qwen = real_rotation
    return block.float().eval()


def convert(transformer, variant):
    import nncf
    import openvino as ov
    import torch

    class Block(torch.nn.Module):
        """The block with tensors only for arguments."""

        def __init__(self):
            super().__init__()
            self.block = first_block(transformer)

        def forward(self, image, text, temb, image_rotation, text_rotation):
            return self.block(image, text, None, temb, (image_rotation, text_rotation))

    example = example_inputs(512, 23)
    with torch.no_grad():
        model = ov.convert_model(Block(), example_input=tuple(torch.from_numpy(value) for value in example))
    # Any number of tokens: one file serves all sizes; it is made static before it is compiled.
    if variant == "int8":
        model = nncf.compress_weights(model, mode=nncf.CompressWeightsMode.INT8_ASYM)
    elif variant == "int4 group 64":
        mode = nncf.CompressWeightsMode.INT4_ASYM
        model = nncf.compress_weights(model, mode=mode, group_size=64, ratio=1.0, all_layers=True)
    return model


def example_inputs(side, text_tokens):
    import numpy as np

    random = np.random.default_rng(0)
    tokens = (side // 16) ** 2
    rotations = []
    for count in (tokens, text_tokens):
        angles = random.uniform(0, 6, (count, HEAD_DIM // 2))
        rotations.append(np.stack([np.cos(angles), np.sin(angles)], axis=-1))
    values = [random.standard_normal((1, count, WIDTH)) for count in (tokens, text_tokens)]
    values += [random.standard_normal((1, WIDTH)), *rotations]
    return [value.astype(np.float32) for value in values]


def load(transformer, variant, cache, threads, side, text_tokens):
    """Converts, or reads what an earlier run converted, and compiles for these sizes."""
    import openvino as ov

    core = ov.Core()
    weights = "f32" if variant == FORCED else variant
    path = Path(cache) / f"{weights.replace(' ', '_')}.xml"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        ov.save_model(convert(transformer, weights), path, compress_to_fp16=False)
    model = core.read_model(path)
    inputs = example_inputs(side, text_tokens)
    model.reshape({port: list(value.shape) for port, value in zip(model.inputs, inputs, strict=True)})
    settings = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": threads}
    if variant == FORCED:
        settings["INFERENCE_PRECISION_HINT"] = "f32"
    compiled = core.compile_model(model, "CPU", settings)
    loaded["request"], loaded["inputs"] = compiled.create_infer_request(), inputs
    return {"precision": compiled.get_property("INFERENCE_PRECISION_HINT").get_type_name(), "version": ov.__version__}


def blocks(count):
    """COUNT blocks, each on the outputs of the one before."""
    request, inputs = loaded["request"], loaded["inputs"]

    def step():
        image, text = inputs[:2]
        for _ in range(count):
            outputs = request.infer([image, text, *inputs[2:]])
            text, image = outputs[0], outputs[1]

    return {"seconds": timed(step)}


if __name__ == "__main__":
    serve({"load": load, "blocks": blocks})
