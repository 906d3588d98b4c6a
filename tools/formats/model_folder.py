"""A model folder in diffusers' layout as plain tensors, and what its forms have in common."""

import inspect
import json
import shutil
from pathlib import Path

from diffusers import AutoencoderKLQwenImage
from safetensors.torch import load_file

from tools.formats import names

COMPONENTS = ("transformer", "text_encoder", "vae")
STEMS = {"transformer": "diffusion_pytorch_model", "text_encoder": "model", "vae": "diffusion_pytorch_model"}
# Never used for a picture from text; some programs leave them out.
OPTIONAL = ("visual.", "lm_head.")


def read_json(path):
    return json.loads(Path(path).read_text(encoding="utf-8"))


def write_json(path, value):
    Path(path).write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def is_optional(name):
    return name.startswith(OPTIONAL) or ".time_conv." in name


def read_tensors(folder, stem):
    """All tensors of a component, from one file or from shards."""
    index = folder / f"{stem}.safetensors.index.json"
    files = sorted(set(read_json(index)["weight_map"].values())) if index.exists() else [f"{stem}.safetensors"]
    tensors = {}
    for file in files:
        tensors |= load_file(folder / file)
    return tensors


class Model:
    def __init__(self, folder):
        self.folder = Path(folder)
        self.config = {component: read_json(self.folder / component / "config.json") for component in COMPONENTS}
        self.tensors = {component: read_tensors(self.folder / component, STEMS[component]) for component in COMPONENTS}
        # One spelling of the text encoder's keys: model.layers… and visual….
        rules = names.NESTED_TEXT_ENCODER
        encoder = self.tensors["text_encoder"].items()
        self.tensors["text_encoder"] = {names.to_diffusers(name, rules): tensor for name, tensor in encoder}

    def text_config(self):
        config = self.config["text_encoder"]
        return config.get("text_config", config)

    def has_published_shape(self):
        """Whether the constants that no weight file holds are the published model's."""
        text, vae, transformer = self.text_config(), self.config["vae"], self.config["transformer"]
        rope = text.get("rope_parameters") or {**text["rope_scaling"], "rope_theta": text["rope_theta"]}
        defaults = inspect.signature(AutoencoderKLQwenImage).parameters
        return (
            transformer["attention_head_dim"] == 128
            and transformer["axes_dims_rope"] == [16, 56, 56]
            and text["hidden_size"] == 128 * text["num_attention_heads"]
            and rope["mrope_section"] == [16, 24, 24]
            and rope["rope_theta"] == 1e6
            and text["rms_norm_eps"] == 1e-6
            and all(list(vae[key]) == list(defaults[key].default) for key in ("latents_mean", "latents_std"))
        )

    def has_published_vae(self):
        """Other programs read and write the VAE of four levels with two residual blocks each, and no other."""
        return names.vae_dimensions(list(self.tensors["vae"])) == (4, 2)

    def copy_without_weights(self, out, components=COMPONENTS):
        """The folder's small files; of COMPONENTS the weights are left out."""
        for path in sorted(self.folder.rglob("*")):
            relative = path.relative_to(self.folder)
            is_weights = ".safetensors" in path.name and relative.parts[0] in components
            if path.is_file() and not is_weights:
                (out / relative).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, out / relative)

    def copy_config(self, component, folder):
        """Beside a file that has none of its own, unless the constants it leaves open are the published ones."""
        if not self.has_published_shape():
            shutil.copyfile(self.folder / component / "config.json", folder / "config.json")
