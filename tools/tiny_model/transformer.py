"""Transformer and text encoder: official classes, small configurations, trained together."""
import copy
import math
import os
import random
import time

import numpy as np
import torch
from diffusers import QwenImageTransformer2DModel
from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

from scenes import vary
from threads import AdaptiveThreads
from tokenizer import TEXT_DROP, TEXT_TEMPLATE, VOCABULARY

NO_TEXT_SHARE = 0.1  # share of the samples with an empty caption, for true CFG
WARMUP_STEPS = 100
SAVE_EVERY = 500


def make_text_encoder(text_dim, tokenizer):
    def token_id(token):
        return tokenizer.convert_tokens_to_ids(token)

    text_config = dict(
        vocab_size=VOCABULARY,
        hidden_size=text_dim,
        intermediate_size=2 * text_dim,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=4096,
        rms_norm_eps=1e-6,
        rope_theta=1000000.0,
        tie_word_embeddings=True,
        use_sliding_window=False,
        rope_scaling={"type": "mrope", "rope_type": "default", "mrope_section": [4, 6, 6]},
        bos_token_id=token_id("<|endoftext|>"),
        eos_token_id=token_id("<|im_end|>"),
    )
    # The vision tower is not trained; it is there so that edit pipelines can load the folder.
    vision_config = dict(
        depth=2,
        hidden_size=64,
        intermediate_size=64,
        num_heads=2,
        out_hidden_size=text_dim,
        patch_size=14,
        spatial_merge_size=2,
        temporal_patch_size=2,
        window_size=112,
        fullatt_block_indexes=[1],
        tokens_per_second=2,
        in_channels=3,
    )
    config = Qwen2_5_VLConfig(
        text_config=text_config,
        vision_config=vision_config,
        image_token_id=token_id("<|image_pad|>"),
        video_token_id=token_id("<|video_pad|>"),
        vision_start_token_id=token_id("<|vision_start|>"),
        vision_end_token_id=token_id("<|vision_end|>"),
        tie_word_embeddings=True,
    )
    text_encoder = Qwen2_5_VLForConditionalGeneration(config)
    with torch.no_grad():
        text_encoder.model.language_model.embed_tokens.weight.normal_(0, 0.5)
    text_encoder.model.visual.requires_grad_(False)
    return text_encoder


def make_transformer(layers, heads, text_dim):
    transformer = QwenImageTransformer2DModel(
        patch_size=2,
        in_channels=64,
        out_channels=16,
        num_layers=layers,
        attention_head_dim=32,
        num_attention_heads=heads,
        joint_attention_dim=text_dim,
        axes_dims_rope=(8, 12, 12),
    )
    # adaLN-zero start: every block begins as the identity.
    modulations = [transformer.proj_out, transformer.norm_out.linear]
    for block in transformer.transformer_blocks:
        modulations += [block.img_mod[1], block.txt_mod[1]]
    for linear in modulations:
        torch.nn.init.zeros_(linear.weight)
        torch.nn.init.zeros_(linear.bias)
    return transformer


def pack(z):
    """[n, 16, h, w] -> [n, h/2 * w/2, 64], as the pipeline packs."""
    n, c, h, w = z.shape
    z = z.view(n, c, h // 2, 2, w // 2, 2).permute(0, 2, 4, 1, 3, 5)
    return z.reshape(n, h * w // 4, c * 4)


def embed(text_encoder, tokenizer, texts):
    """Hidden states as the pipeline takes them: the last ones, without the template's head."""
    prompts = [TEXT_TEMPLATE.format(text) for text in texts]
    tokens = tokenizer(prompts, padding=True, return_tensors="pt")
    mask = tokens.attention_mask
    # The inner model: logits over the vocabulary are not wanted.
    output = text_encoder.model(input_ids=tokens.input_ids, attention_mask=mask, use_cache=False)
    return output.last_hidden_state[:, TEXT_DROP:], mask[:, TEXT_DROP:]


class Training:
    """The models, their averages and the optimizer; can be stored and gone on with."""

    def __init__(self, args, tokenizer):
        torch.manual_seed(1)
        self.models = [
            make_transformer(args.layers, args.heads, args.text_dim),
            make_text_encoder(args.text_dim, tokenizer),
        ]
        self.averages = copy.deepcopy(self.models)
        self.groups = []
        for model, rate in zip(self.models, (args.lr, 0.5 * args.lr)):
            parameters = [p for p in model.parameters() if p.requires_grad]
            self.groups.append({"params": parameters, "base": rate})
        self.optimizer = torch.optim.AdamW(
            self.groups, lr=args.lr, betas=(0.9, 0.99), weight_decay=0.01
        )
        self.step = 0
        self.seconds = 0.0
        self.path = os.path.join(args.work, "transformer.pt")
        if os.path.exists(self.path):
            self.load()

    def load(self):
        state = torch.load(self.path)
        for key in ("models", "averages"):
            for model, weights in zip(getattr(self, key), state[key]):
                model.load_state_dict(weights)
        self.optimizer.load_state_dict(state["optimizer"])
        self.step, self.seconds = state["step"], state["seconds"]

    def save(self):
        state = {
            "models": [model.state_dict() for model in self.models],
            "averages": [model.state_dict() for model in self.averages],
            "optimizer": self.optimizer.state_dict(),
            "step": self.step,
            "seconds": self.seconds,
        }
        torch.save(state, self.path + ".new")
        os.replace(self.path + ".new", self.path)

    def update(self, loss, factor):
        for group in self.optimizer.param_groups:
            group["lr"] = group["base"] * factor
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        for group in self.optimizer.param_groups:
            torch.nn.utils.clip_grad_norm_(group["params"], 1.0)
        self.optimizer.step()
        decay = min(0.997, (1 + self.step) / (10 + self.step))
        with torch.no_grad():
            for slow, fast in zip(self.averages, self.models):
                torch._foreach_lerp_(
                    list(slow.parameters()), list(fast.parameters()), 1 - decay
                )
        self.step += 1


def flow_loss(models, tokenizer, latents, texts, shift):
    """Flow matching: the transformer predicts noise - latents at a random noise level."""
    transformer, text_encoder = models
    hidden, mask = embed(text_encoder, tokenizer, texts)
    n, _, h, w = latents.shape
    clean = pack(latents)
    noise = torch.randn_like(clean)
    u = (torch.arange(n) + torch.rand(n)) / n  # stratified over the batch
    sigma = shift * u / (1 + (shift - 1) * u)
    noisy = clean + sigma[:, None, None] * (noise - clean)
    velocity = transformer(
        hidden_states=noisy,
        encoder_hidden_states=hidden,
        encoder_hidden_states_mask=mask,
        timestep=sigma,
        img_shapes=[[(1, h // 2, w // 2)]] * n,
        return_dict=False,
    )[0]
    return (velocity - (noise - clean)).square().mean()


def train_transformer(args, tokenizer, latents, captions):
    """latents, captions: lists with one entry for each picture size."""
    training = Training(args, tokenizer)
    rng = random.Random(training.step)
    sizes = [len(group) for group in captions]
    threads, log = AdaptiveThreads(), []
    start = time.time() - training.seconds
    while True:
        training.seconds = time.time() - start
        # The cosine follows the steps or, on a busy machine, the clock.
        done = max(training.step / args.steps, training.seconds / (60 * args.max_minutes))
        if done >= 1:
            break
        threads.tick(training.step)
        group = rng.choices(range(len(sizes)), sizes)[0]
        index = [rng.randrange(sizes[group]) for _ in range(args.batch)]
        texts = [
            " " if rng.random() < NO_TEXT_SHARE else vary(captions[group][i], rng) for i in index
        ]
        loss = flow_loss(training.models, tokenizer, latents[group][index], texts, args.shift)
        warmup = min(1, (training.step + 1) / WARMUP_STEPS)
        training.update(loss, warmup * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * done))))
        log.append(loss.item())
        if training.step % 100 == 0:
            print(
                f"transformer {training.step} loss {np.mean(log[-100:]):.4f} "
                f"{training.seconds:.0f}s threads {torch.get_num_threads()}",
                flush=True,
            )
        if training.step % SAVE_EVERY == 0:
            training.save()
    training.save()
    print(f"transformer: {training.step} steps, {training.seconds:.0f}s", flush=True)
    return training.averages
