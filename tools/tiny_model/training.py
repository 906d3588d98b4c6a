"""Training of transformer and text encoder, by several processes of one thread each.

On a machine which others use as well, threads which wait for each other at every product get
little done; processes which only meet once a step lose much less.
"""
import copy
import math
import os
import random
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from tools.tiny_model.copy_guide import FADE_OUT
from tools.tiny_model.tasks import check_positions

WARMUP_STEPS = 100
LOG_EVERY = 50
SAVE_EVERY = 200

# The norms of queries and keys bound how sharply a token can look at one place: to copy, at the
# same place of the reference.  At the common rate they grow so slowly that all else waits.
SHARP_FACTOR = 12


class Training:
    """The models, their averages and the optimizer; can be stored and gone on with."""

    def __init__(self, args, models):
        self.models = models
        self.averages = copy.deepcopy(models)
        transformer, text_encoder = models
        inner = text_encoder.model
        sharp, rest = [], []
        for name, parameter in transformer.named_parameters():
            (sharp if ".attn.norm_" in name else rest).append(parameter)
        groups = [
            {"params": rest, "base": args.lr},
            {"params": sharp, "base": SHARP_FACTOR * args.lr},
            {"params": list(inner.language_model.parameters()), "base": 0.5 * args.lr},
            {"params": list(inner.visual.parameters()), "base": args.lr},
        ]
        self.parameters = [p for group in groups for p in group["params"]]
        for parameter in self.parameters:
            parameter.grad = torch.zeros_like(parameter)  # the last block's text is never used
        self.optimizer = torch.optim.AdamW(groups, lr=args.lr, betas=(0.9, 0.99), weight_decay=0.01)
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
        rates = [group["base"] for group in self.optimizer.param_groups]
        self.optimizer.load_state_dict(state["optimizer"])
        for group, rate in zip(self.optimizer.param_groups, rates):
            group["base"] = rate
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

    def share(self, values):
        """Average the gradients and some figures over the processes; returns the figures."""
        parts = [p.grad.flatten() for p in self.parameters] + [torch.tensor(values)]
        flat = torch.cat(parts)
        dist.all_reduce(flat)
        flat /= dist.get_world_size()
        place = 0
        for parameter in self.parameters:
            parameter.grad.copy_(flat[place : place + parameter.numel()].view_as(parameter))
            place += parameter.numel()
        return flat[place:].tolist()

    def update(self, factor):
        for group in self.optimizer.param_groups:
            group["lr"] = group["base"] * factor
            torch.nn.utils.clip_grad_norm_(group["params"], 1.0)
        self.optimizer.step()
        decay = min(0.997, (1 + self.step) / (10 + self.step))
        with torch.no_grad():
            for slow, fast in zip(self.averages, self.models):
                torch._foreach_lerp_(
                    list(slow.parameters()), list(fast.parameters()), 1 - decay
                )
        self.step += 1


def work(rank, args, tokenizer, models, tasks):
    """One process: its part of every batch.  All processes make the same updates."""
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{args.port}", rank=rank, world_size=args.processes
    )
    check_positions(models[1], tokenizer)
    # A copy: what was handed over is shared memory.
    training = Training(args, copy.deepcopy(models))
    torch.manual_seed(1000 * training.step + rank)
    rng = random.Random(1000 * training.step + rank)
    log, start, done = [], time.time() - training.seconds, 0.0
    while True:
        training.optimizer.zero_grad(set_to_none=False)
        losses, guide = [], max(0.0, 1 - done / FADE_OUT)
        for task in tasks:
            loss = task.loss(training.models, tokenizer, rng, args, guide)
            loss.backward()
            losses.append(loss.item())
        *losses, training.seconds = training.share(losses + [time.time() - start])
        # The cosine follows the steps or, on a busy machine, the clock.
        done = max(training.step / args.steps, training.seconds / (60 * args.max_minutes))
        if done >= 1:
            break
        warmup = min(1, (training.step + 1) / WARMUP_STEPS)
        training.update(warmup * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * done))))
        log.append(losses)
        if rank == 0 and training.step % LOG_EVERY == 0:
            means = np.mean(log[-LOG_EVERY:], 0)
            figures = " ".join(f"{task.name} {mean:.4f}" for task, mean in zip(tasks, means))
            print(f"step {training.step} loss: {figures} {training.seconds:.0f}s", flush=True)
        if rank == 0 and training.step % SAVE_EVERY == 0:
            training.save()
    if rank == 0:
        training.save()
        print(f"training: {training.step} steps, {training.seconds:.0f}s", flush=True)


def train(args, tokenizer, models, tasks):
    """tasks: Captions and Edits; every step has a batch of each."""
    mp.spawn(work, (args, tokenizer, models, tasks), nprocs=args.processes)
