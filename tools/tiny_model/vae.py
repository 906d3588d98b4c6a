"""The VAE: official class, small configuration, trained on single frames."""
import copy
import math
import time
from contextlib import contextmanager

import numpy as np
import torch
import torch.nn.functional as F
from diffusers import AutoencoderKLQwenImage
from diffusers.models.autoencoders.autoencoder_kl_qwenimage import QwenImageCausalConv3d

from tools.tiny_model.threads import AdaptiveThreads

CHANNELS = 16
CROP = 64
CROP_BATCH = 20
WHOLE_BATCH = 6
WHOLE_SHARE = 0.2  # share of the time in which whole pictures are trained, at the end


def _single_frame_forward(self, x, cache_x=None):
    weight = self.weight[:, :, -1]
    padding = (self._padding[2], self._padding[0])
    return F.conv2d(x[:, :, 0], weight, self.bias, padding=padding).unsqueeze(2)


@contextmanager
def single_frame():
    """Run the causal 3-d convolutions as 2-d ones.

    A single frame only meets the last time tap, so this is exact and much faster.
    """
    plain = QwenImageCausalConv3d.forward
    QwenImageCausalConv3d.forward = _single_frame_forward
    try:
        yield
    finally:
        QwenImageCausalConv3d.forward = plain


def make_vae(base_dim):
    vae = AutoencoderKLQwenImage(base_dim=base_dim, z_dim=CHANNELS, num_res_blocks=1)
    # torch's default start counts the time taps which a single frame never meets; the signal
    # would all but vanish.  The unused taps stay zero.
    with torch.no_grad():
        for name, module in vae.named_modules():
            if not isinstance(module, (torch.nn.Conv2d, torch.nn.Conv3d)):
                continue
            gain = 0.3 if name.endswith(("conv2", "proj")) else 1.0
            module.weight.zero_()
            module.bias.zero_()
            tap = module.weight[:, :, -1] if module.weight.dim() == 5 else module.weight
            if "time_conv" not in name:
                tap.normal_(0, gain / math.sqrt(tap[0].numel()))
        # Begin as a nearly noise-free autoencoder.
        vae.quant_conv.weight[CHANNELS:] *= 0.1
        vae.quant_conv.bias[CHANNELS:] = -4
    return vae


def to_tensor(pictures):
    """uint8 [n, h, w, 3] -> float [n, 3, 1, h, w] in -1..1."""
    x = torch.tensor(pictures).permute(0, 3, 1, 2)
    return x.float().div(127.5).sub(1).unsqueeze(2)


def moments(vae, x):
    mean, log_variance = vae.quant_conv(vae.encoder(x)).chunk(2, 1)
    return mean, log_variance.clamp(-30, 20)


def autoencode(vae, x):
    mean, log_variance = moments(vae, x)
    z = mean + torch.randn_like(mean) * (0.5 * log_variance).exp()
    return vae.decoder(vae.post_quant_conv(z)), mean, log_variance


def edge_weight(x):
    """Pixels near an edge count more, near one of low contrast most: these blur first."""
    frame = x[:, :, 0]
    contrast = F.max_pool2d(frame, 5, 1, 2) + F.max_pool2d(-frame, 5, 1, 2)
    contrast = contrast.amax(1, keepdim=True).unsqueeze(2)
    return 1 + 2 * (contrast > 0.05) / (0.5 + contrast)


def sample_crops(rng, groups, count):
    """Crops of CROP x CROP; flat ones teach nothing, so they get a second chance."""
    crops = []
    while len(crops) < count:
        pictures = groups[rng.integers(len(groups))]
        picture = pictures[rng.integers(len(pictures))]
        for _ in range(2):
            y = rng.integers(0, picture.shape[0] - CROP + 1)
            x = rng.integers(0, picture.shape[1] - CROP + 1)
            crop = picture[y : y + CROP, x : x + CROP]
            if (crop != crop[:1, :1]).any():
                break
        crops.append(crop)
    return np.stack(crops)


def sample_whole(rng, groups, count):
    pictures = groups[rng.integers(len(groups))]
    return pictures[rng.integers(len(pictures), size=count)]


def train_vae(args, named, arbitrary):
    """Train on pictures in the named colours and, in one batch of four, in arbitrary ones.

    named, arbitrary: lists of uint8 arrays [n, h, w, 3], one array for each picture size.
    """
    rng = np.random.default_rng(0)
    vae = make_vae(args.vae_dim)
    average = copy.deepcopy(vae)
    parameters = [p for name, p in vae.named_parameters() if "time_conv" not in name]
    optimizer = torch.optim.AdamW(parameters, lr=args.vae_lr, betas=(0.9, 0.99), weight_decay=0)
    run_crops = torch.compile(autoencode, dynamic=False) if args.compile else autoencode
    threads, log, start = AdaptiveThreads(), [], time.time()
    step = 0
    while True:
        done = max(step / args.vae_steps, (time.time() - start) / (60 * args.vae_minutes))
        if done >= 1:
            break
        if not args.compile:
            # torch.compile starts anew for another number of threads.
            threads.tick(step)
        rate = args.vae_lr * min(1, (step + 1) / 50)
        rate *= 0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * done))
        for group in optimizer.param_groups:
            group["lr"] = rate

        groups = arbitrary if step % 4 == 3 else named
        if done < 1 - WHOLE_SHARE:
            x = to_tensor(sample_crops(rng, groups, CROP_BATCH))
            picture, mean, log_variance = run_crops(vae, x)
        else:
            x = to_tensor(sample_whole(rng, groups, WHOLE_BATCH))
            picture, mean, log_variance = autoencode(vae, x)
        kl = 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance).mean()
        error = (picture - x).abs()
        weight = edge_weight(x)
        loss = (weight * error).mean() + 0.5 * (weight * error.square()).mean()
        loss = loss + args.kl * min(1, step / 500) * kl

        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        decay = min(0.995, (1 + step) / (10 + step))
        with torch.no_grad():
            for slow, fast in zip(average.parameters(), vae.parameters()):
                slow.lerp_(fast, 1 - decay)
        log.append((error.mean().item(), kl.item()))
        step += 1
        if step % 100 == 0:
            l1, kl_mean = np.mean(log[-100:], 0)
            seconds = time.time() - start
            count = torch.get_num_threads()
            print(
                f"vae {step} l1 {l1:.4f} kl {kl_mean:.3f} {seconds:.0f}s threads {count}",
                flush=True,
            )
    print(f"vae: {step} steps, {time.time() - start:.0f}s", flush=True)
    return average


@torch.no_grad()
def latent_statistics(vae, groups):
    """Mean and spread of the *sampled* latents by channel.

    With the spread of the samples, channels which the VAE does not use stay near 0 instead of
    being blown up to 1.
    """
    count, total, total_square = 0, 0, 0
    for pictures in groups:
        for i in range(0, len(pictures), 16):
            mean, log_variance = moments(vae, to_tensor(pictures[i : i + 16]))
            z = mean + torch.randn_like(mean) * (0.5 * log_variance).exp()
            count += z[:, 0].numel()
            total = total + z.sum((0, 2, 3, 4))
            total_square = total_square + z.square().sum((0, 2, 3, 4))
    center = total / count
    return center, (total_square / count - center.square()).sqrt()


@torch.no_grad()
def reconstruction_psnr(vae, pictures):
    """Mean of the pictures' PSNR in dB, without noise in the latents."""
    x = to_tensor(pictures)
    mean, _ = moments(vae, x)
    picture = vae.decoder(vae.post_quant_conv(mean)).clamp(-1, 1)
    errors = (picture - x).square().mean((1, 2, 3, 4))
    return (10 * torch.log10(4 / errors)).mean().item()
