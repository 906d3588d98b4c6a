"""Forms of GGUF: ComfyUI-GGUF's and llama.cpp's by the gguf package, and those of stable-diffusion.cpp's converter."""

import json
import subprocess
from functools import partial

import gguf

from tools.formats import names
from tools.formats.model_folder import is_optional
from tools.formats.safetensors_forms import PREFIX, VAE_FILE, comfy_form, in_bf16, write_vae_file

TYPES = ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1")
# Only ggml itself makes these: stable-diffusion.cpp's converter does.
SD_TYPES = ("q8_0", "q4_0", "q5_1", "q2_K", "q3_K", "q4_K", "q5_K", "q6_K", "iq4_nl", "iq4_xs")
TRANSFORMER_FILE = "diffusion_models/qwen-image-{}.gguf"
TEXT_ENCODER_FILE = "text_encoders/Qwen2.5-VL-7B-Instruct-{}.gguf"


def add_tensor(writer, name, tensor, kind):
    """As llama.cpp and ComfyUI-GGUF do: vectors in F32, F16 where the type's block does not divide the rows."""
    array = tensor.float().numpy()
    if tensor.dim() == 1:
        kind = gguf.GGMLQuantizationType.F32
    try:
        data = gguf.quants.quantize(array, kind)
    except gguf.QuantError:
        kind = gguf.GGMLQuantizationType.F16
        data = gguf.quants.quantize(array, kind)
    writer.add_tensor(name, data, raw_dtype=kind)


def finish(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def file_type(type_name):
    return gguf.LlamaFileType.ALL_F32 if type_name == "F32" else gguf.LlamaFileType[f"MOSTLY_{type_name}"]


def write_transformer(path, tensors, type_name):
    path.parent.mkdir(parents=True, exist_ok=True)
    writer = gguf.GGUFWriter(path, "qwen_image")
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    writer.add_file_type(file_type(type_name))
    for name, tensor in tensors.items():
        add_tensor(writer, name, tensor, gguf.GGMLQuantizationType[type_name])
    finish(writer)


def add_tokenizer(writer, tokenizer, vocab_size):
    """tokenizer.json as llama.cpp's converter stores it: every id a token; the control tokens are type 3, gaps type 5."""
    content = json.loads((tokenizer / "tokenizer.json").read_text(encoding="utf-8"))
    tokens = {index: (text, gguf.TokenType.NORMAL) for text, index in content["model"]["vocab"].items()}
    for token in content["added_tokens"]:
        kind = gguf.TokenType.CONTROL if token["special"] else gguf.TokenType.USER_DEFINED
        tokens[token["id"]] = (token["content"], kind)
    listed = [tokens.get(index, (f"[PAD{index}]", gguf.TokenType.UNUSED)) for index in range(vocab_size)]
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in content["model"]["merges"]]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list([text for text, _ in listed])
    writer.add_token_types([kind for _, kind in listed])
    writer.add_token_merges(merges)
    ids = {text: index for index, (text, _) in tokens.items()}
    writer.add_eos_token_id(ids["<|im_end|>"])
    writer.add_pad_token_id(ids["<|endoftext|>"])
    writer.add_bos_token_id(ids["<|endoftext|>"])
    writer.add_add_bos_token(False)


def write_text_encoder(path, model, type_name):
    path.parent.mkdir(parents=True, exist_ok=True)
    text = model.text_config()
    rope = text.get("rope_parameters") or {**text["rope_scaling"], "rope_theta": text["rope_theta"]}
    writer = gguf.GGUFWriter(path, "qwen2vl")
    writer.add_type("model")
    writer.add_block_count(text["num_hidden_layers"])
    writer.add_context_length(text["max_position_embeddings"])
    writer.add_embedding_length(text["hidden_size"])
    writer.add_feed_forward_length(text["intermediate_size"])
    writer.add_head_count(text["num_attention_heads"])
    writer.add_head_count_kv(text["num_key_value_heads"])
    writer.add_rope_dimension_sections([*rope["mrope_section"], 0])
    writer.add_rope_freq_base(rope["rope_theta"])
    writer.add_layer_norm_rms_eps(text["rms_norm_eps"])
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    writer.add_file_type(file_type(type_name))
    add_tokenizer(writer, model.folder / "tokenizer", text["vocab_size"])
    for name, tensor in model.tensors["text_encoder"].items():
        if not is_optional(name):
            add_tensor(
                writer,
                names.from_diffusers(name, names.LLAMA_TEXT_ENCODER),
                tensor,
                gguf.GGMLQuantizationType[type_name],
            )
    finish(writer)


def gguf_form(model, out, type_name):
    """The tokenizer is in the text encoder's file, and so is all that a config would say."""
    transformer, text_encoder = TRANSFORMER_FILE.format(type_name), TEXT_ENCODER_FILE.format(type_name)
    write_transformer(out / transformer, model.tensors["transformer"], type_name)
    model.copy_config("transformer", (out / transformer).parent)
    write_text_encoder(out / text_encoder, model, type_name)
    return {
        "transformer": {"path": transformer, "format": "gguf", "names": "diffusers"},
        "text_encoder": {"path": text_encoder, "format": "gguf", "names": "llama"},
        "vae": write_vae_file(model, out),
    }


def sd_form(model, out, program, type_name, prefix=""):
    """stable-diffusion.cpp's converter on the transformer and the text encoder; names stay, and it writes no metadata."""
    parts = comfy_form(model, out, in_bf16, prefix=prefix)
    for component in ("transformer", "text_encoder"):
        source = out / parts[component]["path"]
        target = source.with_suffix(".gguf")
        command = [str(program), "-M", "convert", "-m", str(source), "-o", str(target), "--type", type_name]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode or not target.exists():
            raise SystemExit(f"{' '.join(command)} failed: {done.stdout[-500:]} {done.stderr[-500:]}")
        source.unlink()
        parts[component] |= {"path": str(target.relative_to(out)), "format": "gguf"}
    return parts


def forms(program=None):
    table, vae = {}, f"--vae={{root}}/{VAE_FILE}"
    for name in TYPES:
        transformer, text_encoder = TRANSFORMER_FILE.format(name), TEXT_ENCODER_FILE.format(name)
        engine = [f"--transformer={{root}}/{transformer}", f"--text-encoder={{root}}/{text_encoder}", vae]
        table[f"gguf_{name.lower()}"] = ("gguf", partial(gguf_form, type_name=name), engine)
    engine = ["--transformer={root}/diffusion_models/qwen_image.gguf", vae, "--tokenizer={root}/tokenizer"]
    engine.append("--text-encoder={root}/text_encoders/qwen_2.5_vl_7b.gguf")
    for name in SD_TYPES if program else ():
        prefix = PREFIX if name == "q5_1" else ""
        write = partial(sd_form, program=program, type_name=name, prefix=prefix)
        table[f"sdcpp_{name.lower()}"] = ("stable-diffusion.cpp", write, engine)
    return table
