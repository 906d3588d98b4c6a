"""The training data: pictures, pairs of pictures for edits, and the latents of both."""
import json
import os
import random
import time
from multiprocessing import Pool, get_context

import numpy as np
import torch
from diffusers import AutoencoderKLQwenImage
from PIL import Image

from tools.tiny_model.edits import EDIT_SIZES, edit_item
from tools.tiny_model.scenes import BASE_SIZE, SIZES, training_item
from tools.tiny_model.vae import moments, single_frame, to_tensor

DECODED_SHARE = 0.35  # share of the references which have been through the VAE before
CONDITION_FACTOR = 28  # Qwen2-VL's patch size times its merge size


def condition_size(size):
    """Qwen2-VL's smart_resize for pictures of our sizes."""
    return tuple(round(side / CONDITION_FACTOR) * CONDITION_FACTOR for side in size)


def shares(other_sizes):
    """Picture sizes of the captions and their shares."""
    if other_sizes:
        return SIZES
    return {(BASE_SIZE, BASE_SIZE): 1.0}


def make_pictures(args):
    """Captions and pictures, grouped by picture size (all pictures of a batch have one size)."""
    path = os.path.join(args.work, "pictures.npz")
    sizes = shares(args.other_sizes)
    if not os.path.exists(path):
        start, arrays, seed = time.time(), {}, 0
        with Pool() as pool:
            for group, (size, share) in enumerate(sizes.items()):
                count = int(args.pictures * share)
                jobs = [(seed + i, size) for i in range(count)]
                seed += count
                items = pool.map(training_item, jobs, chunksize=100)
                arrays[f"captions{group}"] = np.array([item[0] for item in items])
                arrays[f"named{group}"] = np.stack([item[1] for item in items])
                # A third of them in arbitrary colours is enough for the VAE.
                arrays[f"arbitrary{group}"] = np.stack([item[2] for item in items[::3]])
        np.savez(path, **arrays)
        print(f"pictures: {seed}, {time.time() - start:.0f}s", flush=True)
    data = np.load(path)
    count = len(sizes)
    captions = [data[f"captions{i}"].tolist() for i in range(count)]
    named = [data[f"named{i}"] for i in range(count)]
    arbitrary = [data[f"arbitrary{i}"] for i in range(count)]
    return captions, named, arbitrary


@torch.no_grad()
def encode(vae, pictures):
    """uint8 [n, h, w, 3] -> normalised latents [n, 16, h/8, w/8], the posterior's mode."""
    mean, std = (
        torch.tensor(vae.config[key]).view(1, -1, 1, 1) for key in ("latents_mean", "latents_std")
    )
    parts = []
    with single_frame():
        for i in range(0, len(pictures), 16):  # few at a time stay in the processor's cache
            parts.append(moments(vae, to_tensor(pictures[i : i + 16]))[0][:, :, 0])
    return (torch.cat(parts) - mean) / std


@torch.no_grad()
def through_vae(vae, picture):
    """A picture as a model's own output shows it: encoded and decoded, uint8 [h, w, 3]."""
    with single_frame():
        mean, _ = moments(vae, to_tensor(picture[None]))
        x = vae.decoder(vae.post_quant_conv(mean))[0, :, 0].clamp(-1, 1)
    return ((x + 1) * 127.5).round().to(torch.uint8).permute(1, 2, 0).numpy()


def resized(picture, size):
    return np.asarray(Image.fromarray(picture).resize(size, Image.BICUBIC))


# ---- work of the processes which draw and encode, one thread each ----

worker_vae = None


def start_worker(vae_folder):
    global worker_vae
    torch.set_num_threads(1)
    worker_vae = AutoencoderKLQwenImage.from_pretrained(vae_folder, torch_dtype=torch.float32)


def workers(vae_folder):
    return get_context("spawn").Pool(initializer=start_worker, initargs=(vae_folder,))


def encode_chunk(pictures):
    return encode(worker_vae, pictures).numpy()


def pair_chunk(job):
    """Seeds of scenes and a picture size -> one part of a group of make_pairs."""
    seeds, size = job
    items = [edit_item((seed, size)) for seed in seeds]
    before = [
        through_vae(worker_vae, picture) if random.Random(seed).random() < DECODED_SHARE else picture
        for seed, (picture, _) in zip(seeds, items)
    ]
    after = [picture for _, pairs in items for _, picture in pairs]
    targets = encode(worker_vae, np.stack(after))
    return {
        "before": encode(worker_vae, np.stack(before)).numpy(),
        "after": targets.view(len(seeds), -1, *targets.shape[1:]).numpy(),
        "condition": np.stack([resized(picture, condition_size(size)) for picture in before]),
        "edits": [[json.dumps(edit) for edit, _ in pairs] for _, pairs in items],
    }


def chunks(values, length=64):
    return [values[i : i + length] for i in range(0, len(values), length)]


def make_latents(args, vae_folder, named):
    """Normalised latents of the pictures with captions, a tensor for each group."""
    path = os.path.join(args.work, "caption_latents.pt")
    if not os.path.exists(path):
        start = time.time()
        with workers(vae_folder) as pool:
            latents = [np.concatenate(pool.map(encode_chunk, chunks(group))) for group in named]
        torch.save([torch.from_numpy(group) for group in latents], path)
        print(f"latents: {time.time() - start:.0f}s", flush=True)
    return torch.load(path)


def make_pairs(args, vae_folder):
    """References and targets of the edits, one group for each picture size.

    Each group holds the latents before [n, 16, h, w] and after [n, k, 16, h, w], the reference as
    the vision tower sees it (uint8 [n, h, w, 3]), and the k edits of each reference.
    """
    path = os.path.join(args.work, "pairs.pt")
    if os.path.exists(path):
        return torch.load(path)
    start, groups, seed = time.time(), [], 0
    with workers(vae_folder) as pool:
        for size, share in EDIT_SIZES.items():
            count = int(args.edit_scenes * share)
            jobs = [(seeds, size) for seeds in chunks(range(seed, seed + count))]
            parts = pool.map(pair_chunk, jobs, chunksize=1)
            group = {
                key: torch.from_numpy(np.concatenate([part[key] for part in parts]))
                for key in ("before", "after", "condition")
            }
            group["edits"] = [edits for part in parts for edits in part["edits"]]
            groups.append(group)
            seed += count
    torch.save(groups, path)
    print(f"pairs: {seed} references, {time.time() - start:.0f}s", flush=True)
    return groups
