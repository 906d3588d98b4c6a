"""A byte-level BPE tokenizer of Qwen2's kind with a vocabulary for the grammar of scenes.py."""
import json
import os
import random

from tokenizers import pre_tokenizers, trainers
from transformers import Qwen2Tokenizer

from tools.tiny_model.scenes import sample_scene, vary

VOCABULARY = 1024

# The templates of the official pipelines, and how many tokens these throw away.
TEXT_TEMPLATE = (
    "<|im_start|>system\nDescribe the image by detailing the color, shape, size, texture, "
    "quantity, text, spatial relationships of the objects and background:<|im_end|>\n"
    "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
)
EDIT_TEMPLATE = (
    "<|im_start|>system\nDescribe the key features of the input image (color, shape, size, "
    "texture, objects, background), then explain how the user's text instruction should alter "
    "or modify the image. Generate a new image that meets the user's requirements while "
    "maintaining consistency with the original input where appropriate.<|im_end|>\n"
    "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
)
TEXT_DROP = 34
EDIT_DROP = 64

SPECIAL_TOKENS = [
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>", "<|object_ref_end|>",
    "<|box_start|>", "<|box_end|>", "<|quad_start|>", "<|quad_end|>", "<|vision_start|>",
    "<|vision_end|>", "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>", "<tool_call>",
    "</tool_call>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>",
    "<|repo_name|>", "<|file_sep|>",
]  # fmt: skip

# Words outside the grammar which become one token each, mostly for edit instructions.
EXTRA_WORDS = """
draw paint make change turn into color colour picture photo image of an the background foreground
small large big tiny huge remove add move red green blue yellow purple orange white black pink
gray brown circle square triangle star heart cross circles squares triangles stars hearts crosses
one two three four five six left right top bottom center middle corner above below under over next
to between with without and or in on at from it is are this that please shape size place keep same
Picture a cat dog house tree sun moon flower sea sky mountain person face car boat fish bird book
table water light dark bright simple round sharp line ring dot grid wide tall short long new old
good day night Change Make Turn Draw Replace
""".split()


def template_length(tokenizer, template):
    return len(tokenizer(template.split("{}")[0])["input_ids"])


def check_tokenizer(tokenizer):
    lengths = (
        template_length(tokenizer, TEXT_TEMPLATE),
        template_length(tokenizer, EDIT_TEMPLATE),
    )
    assert lengths == (TEXT_DROP, EDIT_DROP), lengths
    assert len(tokenizer) <= VOCABULARY, len(tokenizer)
    # The caption must not merge with the end of the template.
    first, second = (
        tokenizer(TEXT_TEMPLATE.format(text))["input_ids"][:TEXT_DROP]
        for text in ("a red circle", " ")
    )
    assert first == second


def build_tokenizer(folder):
    """Train, save and check; every word of the templates and of the grammar is one token."""
    base = Qwen2Tokenizer()._tokenizer  # for its normalizer and pre-tokenizer
    rng = random.Random(0)
    text = [vary(sample_scene(rng)[0], rng) for _ in range(4000)]
    templates = TEXT_TEMPLATE + EDIT_TEMPLATE
    text += [templates.replace("<|im_start|>", "\n").replace("<|im_end|>", "\n")] * 2000
    text += [f"{word} {word}" for word in EXTRA_WORDS] * 100
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - len(SPECIAL_TOKENS),
        show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
    )
    base.train_from_iterator(text, trainer)
    model = json.loads(base.to_str())["model"]
    merges = [tuple(pair) for pair in model["merges"]]
    tokenizer = Qwen2Tokenizer(vocab=dict(model["vocab"]), merges=merges, model_max_length=131072)
    # The special tokens come after the plain ones, as in Qwen2.5.
    tokenizer.add_special_tokens({"additional_special_tokens": SPECIAL_TOKENS[1:]})
    tokenizer.save_pretrained(folder)
    tokenizer = Qwen2Tokenizer.from_pretrained(folder)
    check_tokenizer(tokenizer)
    print(f"tokenizer: {len(tokenizer)} tokens", flush=True)
    return tokenizer


def save_slow_files(folder):
    """Write vocab.json and merges.txt beside tokenizer.json, for readers of the older layout."""
    with open(os.path.join(folder, "tokenizer.json"), encoding="utf-8") as file:
        model = json.load(file)["model"]
    with open(os.path.join(folder, "vocab.json"), "w", encoding="utf-8") as file:
        json.dump(model["vocab"], file, ensure_ascii=False)
    with open(os.path.join(folder, "merges.txt"), "w", encoding="utf-8") as file:
        file.write("#version: 0.2\n")
        for left, right in model["merges"]:
            file.write(f"{left} {right}\n")
