"""OpenVINO: one block of diffusers' transformer, converted, its weights compressed by NNCF, run once for every block of
the model. What lies before and after the blocks is left out. Run as a program it serves a Worker."""

from dataclasses import dataclass
from pathlib import Path

from tools.peers import block
from tools.peers.worker import serve, timed


@dataclass(frozen=True)
class Setting:
    weights: str  # as convert makes them
    # Activations are turned into 8 bits as they come, in groups of so many; 0: not.
    group: int = 0
    # Of the arithmetic; None: its own choice for the CPU, bfloat16 where there are instructions for it.
    precision: str | None = None

    @property
    def name(self):
        parts = [self.weights]
        parts += [f"dynamic {self.group}"] if self.group else []
        parts += ["fp32 arithmetic"] if self.precision else []
        return ", ".join(parts)


F32, INT4, INT8, QUANTIZED = "f32", "int4 group 64", "int8", "nncf.quantize"
GROUPS = (0, 32, 64, 128)
SETTINGS = {
    setting.name: setting
    for setting in (
        *(Setting(weights, group) for weights in (F32, INT4, INT8) for group in GROUPS),
        Setting(QUANTIZED),
        Setting(F32, 0, "f32"),
        *(Setting(weights, 64, "f32") for weights in (INT4, INT8)),
    )
}
VARIANTS = tuple(SETTINGS)
FORCED = Setting(F32, 0, "f32").name

loaded: dict = {}


def convert(transformer, weights, case):
    import nncf
    import openvino as ov
    import torch

    example = block.case_inputs(case)
    with torch.no_grad():
        model = ov.convert_model(block.load(transformer), example_input=tuple(map(torch.from_numpy, example)))
    # Any number of tokens: one file serves all sizes; it is made static before it is compiled.
    if weights == INT8:
        return nncf.compress_weights(model, mode=nncf.CompressWeightsMode.INT8_ASYM)
    if weights == INT4:
        mode = nncf.CompressWeightsMode.INT4_ASYM
        return nncf.compress_weights(model, mode=mode, group_size=64, ratio=1.0, all_layers=True)
    if weights == QUANTIZED:
        # With the very input that its error is measured on: it cannot be calibrated better.
        return nncf.quantize(model, nncf.Dataset([example]), model_type=nncf.ModelType.TRANSFORMER, subset_size=1)
    return model


def load(transformer, case, variant, cache, threads, side, text_tokens):
    """Converts, or reads what an earlier run converted, and compiles for these sizes."""
    import openvino as ov

    core = ov.Core()
    setting = SETTINGS[variant]
    path = Path(cache) / f"{setting.weights.replace(' ', '_')}.xml"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        ov.save_model(convert(transformer, setting.weights, case), path, compress_to_fp16=False)
    model = core.read_model(path)
    inputs = block.random_inputs(side, text_tokens)
    model.reshape({port: list(value.shape) for port, value in zip(model.inputs, inputs, strict=True)})
    settings = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": threads,
        "DYNAMIC_QUANTIZATION_GROUP_SIZE": setting.group,
    }
    if setting.precision:
        settings["INFERENCE_PRECISION_HINT"] = setting.precision
    compiled = core.compile_model(model, "CPU", settings)
    loaded["request"], loaded["inputs"] = compiled.create_infer_request(), inputs
    return {"precision": compiled.get_property("INFERENCE_PRECISION_HINT").get_type_name(), "version": ov.__version__}


def infer(inputs):
    """(image, text)"""
    outputs = loaded["request"].infer(inputs)
    return outputs[1], outputs[0]


def blocks(count):
    """COUNT blocks, each on the outputs of the one before."""
    inputs = loaded["inputs"]

    def step():
        image, text = inputs[:2]
        for _ in range(count):
            image, text = infer([image, text, *inputs[2:]])

    return {"seconds": timed(step)}


def error(case):
    return {"nmse": block.nmse(case, *infer(block.case_inputs(case)))}


if __name__ == "__main__":
    serve({"load": load, "blocks": blocks, "error": error})
