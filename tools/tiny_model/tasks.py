"""The two tasks which share all weights: pictures from captions, and edits of a reference picture."""
import json

import torch

from tools.tiny_model.copy_guide import WEIGHT, CopyGuide
from tools.tiny_model.edits import instruction
from tools.tiny_model.scenes import vary
from tools.tiny_model.tokenizer import EDIT_DROP, EDIT_TEMPLATE, TEXT_DROP, TEXT_TEMPLATE

PATCH, MERGE = 14, 2  # of the vision tower
PIXEL_MEAN = (0.48145466, 0.4578275, 0.40821073)  # of Qwen2-VL's image processor
PIXEL_STD = (0.26862954, 0.26130258, 0.27577711)
NO_TEXT_SHARE = 0.1  # share of the samples with an empty text, for true CFG
CHOICE_SHARE = 0.3  # share of the edits which surely ask for one of two shapes


def pack(z):
    """[n, 16, h, w] -> [n, h/2 * w/2, 64], as the pipeline packs."""
    n, c, h, w = z.shape
    z = z.view(n, c, h // 2, 2, w // 2, 2).permute(0, 2, 4, 1, 3, 5)
    return z.reshape(n, h * w // 4, c * 4)


def embed_caption(text_encoder, tokenizer, texts):
    """Hidden states as the pipeline takes them: the last ones, without the template's head."""
    prompts = [TEXT_TEMPLATE.format(text) for text in texts]
    tokens = tokenizer(prompts, padding=True, return_tensors="pt")
    mask = tokens.attention_mask
    # The inner model: logits over the vocabulary are not wanted.
    output = text_encoder.model(input_ids=tokens.input_ids, attention_mask=mask, use_cache=False)
    return output.last_hidden_state[:, TEXT_DROP:], mask[:, TEXT_DROP:]


def patches(pictures):
    """uint8 [n, h, w, 3], sides multiples of 28 -> Qwen2-VL's pixel_values and the grids.

    What its image processor does after the resize, bit for bit.
    """
    n, h, w, _ = pictures.shape
    x = (pictures.float() / 255 - torch.tensor(PIXEL_MEAN)) / torch.tensor(PIXEL_STD)
    unit = MERGE * PATCH
    x = x.permute(0, 3, 1, 2).reshape(n, 3, h // unit, MERGE, PATCH, w // unit, MERGE, PATCH)
    x = x.permute(0, 2, 5, 3, 6, 1, 4, 7)  # n, gh, gw, mh, mw, channel, ph, pw
    x = x.unsqueeze(6).expand(*x.shape[:6], 2, PATCH, PATCH)  # both frames are the same picture
    grid = torch.tensor([[1, h // PATCH, w // PATCH]] * n)
    return x.reshape(n * h * w // PATCH**2, -1), grid


def embed_edit(text_encoder, tokenizer, texts, pictures):
    """The same for instructions about pictures, as the Edit-2509 pipeline embeds them."""
    pixel_values, grid = patches(pictures)
    pads = "<|image_pad|>" * int(grid[0].prod() // MERGE**2)
    head = f"Picture 1: <|vision_start|>{pads}<|vision_end|>"
    prompts = [EDIT_TEMPLATE.format(head + text) for text in texts]
    tokens = tokenizer(prompts, padding=True, return_tensors="pt")
    mask = tokens.attention_mask
    # Without mm_token_type_ids transformers 5 counts positions along the text only.
    is_image = (tokens.input_ids == text_encoder.config.image_token_id).int()
    output = text_encoder.model(
        input_ids=tokens.input_ids,
        attention_mask=mask,
        pixel_values=pixel_values,
        image_grid_thw=grid,
        mm_token_type_ids=is_image,
        use_cache=False,
    )
    return output.last_hidden_state[:, EDIT_DROP:], mask[:, EDIT_DROP:]


def check_positions(text_encoder, tokenizer):
    """The language model must see pictures at three-dimensional positions."""
    seen = []
    language_model = text_encoder.model.language_model
    hook = language_model.register_forward_pre_hook(
        lambda module, args, kwargs: seen.append(kwargs["position_ids"]), with_kwargs=True
    )
    with torch.no_grad():
        embed_edit(text_encoder, tokenizer, ["x"], torch.zeros(1, 140, 140, 3, dtype=torch.uint8))
    hook.remove()
    positions = seen[0]
    three_axes = positions is not None and bool((positions[1] != positions[2]).any())
    assert three_axes, "the positions are one-dimensional"


def flow_loss(transformer, embeds, latents, shift, reference=None):
    """Flow matching: the transformer predicts noise - latents at a random noise level.

    latents, reference: [n, 16, h, w]; the reference's tokens follow the noisy ones.
    """
    hidden, mask = embeds
    n, _, h, w = latents.shape
    clean = pack(latents)
    noise = torch.randn_like(clean)
    u = (torch.arange(n) + torch.rand(n)) / n  # stratified over the batch
    sigma = shift * u / (1 + (shift - 1) * u)
    tokens = clean + sigma[:, None, None] * (noise - clean)
    shapes = [(1, h // 2, w // 2)]
    if reference is not None:
        tokens = torch.cat([tokens, pack(reference)], dim=1)
        shapes = shapes * 2
    velocity = transformer(
        hidden_states=tokens,
        encoder_hidden_states=hidden,
        encoder_hidden_states_mask=mask,
        timestep=sigma,
        img_shapes=[shapes] * n,
        return_dict=False,
    )[0][:, : clean.shape[1]]
    return (velocity - (noise - clean)).square().mean()


class Captions:
    """Batches of captions and pictures; latents, captions: one entry for each picture size."""

    name = "caption"

    def __init__(self, latents, captions):
        self.latents, self.captions = latents, captions
        self.counts = [len(group) for group in captions]

    def loss(self, models, tokenizer, rng, args, guide):
        transformer, text_encoder = models
        group = rng.choices(range(len(self.counts)), self.counts)[0]
        index = [rng.randrange(self.counts[group]) for _ in range(args.caption_batch // args.processes)]
        texts = [
            " " if rng.random() < NO_TEXT_SHARE else vary(self.captions[group][i], rng)
            for i in index
        ]
        embeds = embed_caption(text_encoder, tokenizer, texts)
        return flow_loss(transformer, embeds, self.latents[group][index], args.shift)


def is_choice(edit):
    return edit["kind"] == "color" and not edit["only"]


class Edits:
    """Batches of edits; groups: see data.make_pairs."""

    name = "edit"

    def __init__(self, groups):
        self.groups = groups
        self.edits = [[[json.loads(e) for e in row] for row in group["edits"]] for group in groups]
        self.counts = [len(edits) for edits in self.edits]
        # The hardest: one of two different shapes is meant.
        self.choices = [
            [(i, k) for i, row in enumerate(edits) for k, edit in enumerate(row) if is_choice(edit)]
            for edits in self.edits
        ]

    def sample(self, group, rng):
        if rng.random() < CHOICE_SHARE:
            return rng.choice(self.choices[group])
        i = rng.randrange(self.counts[group])
        return i, rng.randrange(len(self.edits[group][i]))

    def loss(self, models, tokenizer, rng, args, guide):
        """guide: how much the copy guide counts."""
        transformer, text_encoder = models
        number = rng.choices(range(len(self.groups)), self.counts)[0]
        group, edits = self.groups[number], self.edits[number]
        chosen = [self.sample(number, rng) for _ in range(args.edit_batch // args.processes)]
        texts = [
            " " if rng.random() < NO_TEXT_SHARE else instruction(edits[i][k], rng)
            for i, k in chosen
        ]
        index, which = map(list, zip(*chosen))
        embeds = embed_edit(text_encoder, tokenizer, texts, group["condition"][index])
        after, before = group["after"][index, which], group["before"][index]
        with CopyGuide() as copying:
            loss = flow_loss(transformer, embeds, after, args.edit_shift, before)
        if guide > 0:
            loss = loss + WEIGHT * guide * copying.loss(pack(before).shape[1])
        return loss
