"""Sigmas and timesteps of the official scheduler over many settings, the way the pipeline sets it up."""

import numpy as np
from diffusers import FlowMatchEulerDiscreteScheduler
from diffusers.pipelines.qwenimage.pipeline_qwenimage import calculate_shift

from tools.reference import golden_json, random_spec

STEPS = (2, 3, 4, 8, 20, 50)
SIZES = ((128, 128), (96, 160), (512, 512), (1024, 1024), (1328, 1328), (1664, 928), (2048, 2048))
PIXELS_PER_TOKEN = 16 * 16


def configs():
    default = random_spec.scheduler_config(lightning=False)
    return {
        "default": default,
        "lightning": random_spec.scheduler_config(lightning=True),
        "no_terminal": {**default, "shift_terminal": None},
        "linear": {**default, "time_shift_type": "linear"},
        "linear_no_terminal": {**default, "time_shift_type": "linear", "shift_terminal": None},
        "static_shift_1": {**default, "use_dynamic_shifting": False},
        "static_shift_3": {**default, "use_dynamic_shifting": False, "shift": 3.0, "shift_terminal": None},
    }


def row(name, config, steps, size):
    scheduler = FlowMatchEulerDiscreteScheduler(**config)
    tokens = size[0] * size[1] // PIXELS_PER_TOKEN
    keys = ("base_image_seq_len", "max_image_seq_len", "base_shift", "max_shift")
    mu = calculate_shift(tokens, *(scheduler.config[key] for key in keys))
    scheduler.set_timesteps(sigmas=np.linspace(1.0, 1 / steps, steps), mu=mu)
    return {
        "config": name,
        "width": size[0],
        "height": size[1],
        "image_seq_len": tokens,
        "steps": steps,
        "mu": mu,
        "sigmas": golden_json.floats(scheduler.sigmas),
        "timesteps": golden_json.floats(scheduler.timesteps),
    }


def write(path):
    rows = []
    for name, config in configs().items():
        rows.append({"config": name, "scheduler_config": config})
        sizes = SIZES if config["use_dynamic_shifting"] else SIZES[:1]
        # One step and a terminal value divide by zero in the reference.
        steps = STEPS if config["shift_terminal"] else (1, *STEPS)
        rows += [row(name, config, count, size) for count in steps for size in sizes]
    golden_json.write(path, "rows with scheduler_config name the settings of the rows after them", rows)
