"""What a step costs when several machines draw one picture: bytes, messages and seconds, computed from sizes.

A way of splitting is a function that returns the phases of a step (WAYS). In a phase each machine computes, then messages are
exchanged; a phase lasts as long as its slowest machine and its slowest link. Three things have a price: computing (Computing),
a message that is waited for (`latency`), and bytes (`rate`, in each direction of each machine's link).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

FLOAT = 4
# Open MPI's TCP transport asks before it sends more than this: request, answer and data are three messages one after the other.
EAGER_BYTES = 65536
# What a frame of 1,500 bytes carries of a message, and what it takes on the link: 52 bytes of TCP and IP, 14 of Ethernet.
FRAME_PAYLOAD, FRAME_BYTES = 1448, 1514


@dataclass(frozen=True)
class Sizes:
    """A model, a picture and the prompts of a step."""

    blocks: int
    heads: int
    head_dim: int
    channels: int  # of a token of the picture
    picture: int  # tokens
    prompts: tuple[int, ...]  # tokens of each; two with guidance

    @property
    def width(self) -> int:
        return self.heads * self.head_dim

    @property
    def latents(self) -> int:
        """Bytes of a step's latents, and of a velocity."""
        return self.picture * self.channels * FLOAT


def shares(total: int, parts: int) -> list[int]:
    """What src/machines/group.h cuts."""
    return [total * (part + 1) // parts - total * part // parts for part in range(parts)]


@dataclass(frozen=True)
class Work:
    """What a machine computes in a phase."""

    blocks: int = 0
    rows: int = 0  # tokens of which it computes what goes row by row
    pairs: float = 0  # tokens squared of a whole attention, times the share of heads


@dataclass
class Phase:
    """What happens `count` times in a step."""

    count: int
    work: list[Work] = field(default_factory=list)  # for each machine
    messages: int = 0  # that are waited for, one after the other
    # Bytes that each machine sends and receives. Both directions of a link are used at once.
    sent: list[int] = field(default_factory=list)
    received: list[int] = field(default_factory=list)
    # Bytes that are sent, but that nobody waits for.
    aside: int = 0


@dataclass(frozen=True)
class Computing:
    """Seconds of one block on one machine: fixed + row * rows + pair * pairs."""

    fixed: float
    row: float
    pair: float
    least: float = 0  # what it takes to read the block's weights from memory

    def seconds(self, work: Work) -> float:
        if work.blocks == 0:
            return 0.0
        return work.blocks * max(self.least, self.fixed + self.row * work.rows + self.pair * work.pairs)

    def with_cores(self, cores: int, least: float) -> Computing:
        """On a machine with more cores, as if all of them were used perfectly."""
        return Computing(self.fixed / cores, self.row / cores, self.pair / cores, least)


@dataclass(frozen=True)
class Network:
    latency: float  # seconds from a message's sending until its receiver goes on
    rate: float  # bytes of messages per second, in each direction


def payload_rate(bits_per_second: float) -> float:
    """Bytes of messages per second of a link with frames of 1,500 bytes."""
    return bits_per_second / 8 * FRAME_PAYLOAD / FRAME_BYTES


def hops(most_bytes: int) -> int:
    """Messages one after the other until one of so many bytes has arrived."""
    return 3 if most_bytes > EAGER_BYTES else 1


def computing_seconds(phases: list[Phase], computing: Computing) -> float:
    return sum(phase.count * max((computing.seconds(work) for work in phase.work), default=0.0) for phase in phases)


def exchange_seconds(phases: list[Phase], network: Network) -> float:
    total = 0.0
    for phase in phases:
        most = max([*phase.sent, *phase.received], default=0)
        total += phase.count * (phase.messages * network.latency + most / network.rate)
    return total


def step_seconds(phases: list[Phase], computing: Computing, network: Network) -> float:
    return computing_seconds(phases, computing) + exchange_seconds(phases, network)


def volume(phases: list[Phase]) -> int:
    """Bytes that all machines send together."""
    return sum(phase.count * (sum(phase.sent) + phase.aside) for phase in phases)


# ---- ways of splitting ----


def alone(sizes: Sizes, machines: int = 1) -> list[Phase]:
    del machines
    return [Phase(1, [whole(sizes, prompt)]) for prompt in sizes.prompts]


def whole(sizes: Sizes, prompt: int) -> Work:
    tokens = sizes.picture + prompt
    return Work(sizes.blocks, tokens, tokens * tokens)


def latents_to_all(sizes: Sizes, machines: int) -> Phase:
    """The first machine tells the others what a step starts from: a header of 16 bytes, then the latents."""
    others = machines - 1
    # Behind the latents' own sizes stand the timestep and whether a listener waits.
    message = sizes.latents + 4 * 8 + 4 + 1
    sent = [others * (16 + message)] + [0] * others
    received = [0] + [16 + message] * others
    return Phase(1, messages=hops(message), sent=sent, received=received)


def all_go_on(sizes: Sizes, machines: int, passes: int) -> Phase:
    """Before each block the first machine says by one byte whether all go on.

    It does not wait for an answer, so that the others are behind by one message once, not at each block.
    """
    return Phase(1, messages=1, aside=sizes.blocks * passes * (machines - 1))


def one_prompt_in_shares(sizes: Sizes, prompt: int, machines: int) -> list[Phase]:
    """A pass of which each machine has a share of the tokens and of the heads."""
    parts = [shares(prompt, machines), shares(sizes.picture, machines)]
    heads = shares(sizes.heads, machines)
    tokens = prompt + sizes.picture
    own = [parts[0][i] + parts[1][i] for i in range(machines)]
    head_bytes = sizes.head_dim * FLOAT
    # Queries, keys and values of a machine's tokens go to the machines of the heads, the results come back.
    away = [own[i] * (sizes.heads - heads[i]) * head_bytes for i in range(machines)]
    home = [(tokens - own[i]) * heads[i] * head_bytes for i in range(machines)]
    largest = max(parts[1]) * max(heads) * head_bytes if machines > 1 else 0
    row_work = [Work(sizes.blocks, own[i], tokens * tokens * heads[i] / sizes.heads) for i in range(machines)]
    velocity = [count * sizes.channels * FLOAT for count in parts[1]]
    return [
        Phase(1, row_work),
        Phase(sizes.blocks, messages=hops(largest), sent=[3 * size for size in away], received=[3 * size for size in home]),
        Phase(sizes.blocks, messages=hops(largest), sent=home, received=away),
        # All get the whole velocity.
        Phase(
            1,
            messages=hops(max(velocity)),
            sent=[size * (machines - 1) for size in velocity],
            received=[sum(velocity) - size for size in velocity],
        ),
    ]


def sequence(sizes: Sizes, machines: int) -> list[Phase]:
    """All machines share each prompt's tokens and heads."""
    phases = [latents_to_all(sizes, machines)]
    for prompt in sizes.prompts:
        phases += one_prompt_in_shares(sizes, prompt, machines)
    return [*phases, all_go_on(sizes, machines, len(sizes.prompts))]


def guidance(sizes: Sizes, machines: int) -> list[Phase]:
    """Two halves have a prompt each, which the machines of a half share."""
    if len(sizes.prompts) != 2 or machines % 2 != 0:
        raise ValueError("guidance in parallel needs two prompts and an even number of machines")
    half = machines // 2
    phases = [latents_to_all(sizes, machines), all_go_on(sizes, machines, 1)]
    if half == 1:
        phases.append(Phase(1, [whole(sizes, prompt) for prompt in sizes.prompts]))
    else:
        # Both halves do the same at the same time; the longer prompt's takes longer.
        longer, shorter = (one_prompt_in_shares(sizes, prompt, half) for prompt in sorted(sizes.prompts, reverse=True))
        for one, other in zip(longer, shorter):
            phases.append(
                replace(one, work=one.work + other.work, sent=one.sent + other.sent, received=one.received + other.received)
            )
    sent = [0] * machines
    sent[half] = sizes.latents
    phases.append(Phase(1, messages=hops(sizes.latents), sent=sent, received=[sizes.latents] + [0] * (machines - 1)))
    return phases


def layers(sizes: Sizes, machines: int) -> list[Phase]:
    """Each machine has some of the blocks. A prompt's state goes from each to the next one; the prompts follow each other."""
    blocks = shares(sizes.blocks, machines)
    states = [(sizes.picture + prompt) * sizes.width * FLOAT for prompt in sizes.prompts]
    phases = [latents_to_all(sizes, machines)]
    for tick in range(len(sizes.prompts) + machines - 1):
        phase = Phase(1, [Work()] * machines, sent=[0] * machines, received=[0] * machines)
        for machine in range(machines):
            prompt = tick - machine
            if not 0 <= prompt < len(sizes.prompts):
                continue
            phase.work[machine] = replace(whole(sizes, sizes.prompts[prompt]), blocks=blocks[machine])
            if machine + 1 < machines:
                # A byte that says that it comes, then the picture's part, and when that has arrived the prompt's.
                picture, text = (tokens * sizes.width * FLOAT for tokens in (sizes.picture, sizes.prompts[prompt]))
                phase.messages = max(phase.messages, hops(picture) + hops(text) - 1)
                phase.sent[machine] += states[prompt] + 1
                phase.received[machine + 1] += states[prompt] + 1
        phases.append(phase)
    # The last one has the velocities.
    velocities = len(sizes.prompts) * sizes.latents
    sent, received = [0] * machines, [0] * machines
    sent[-1] = received[0] = velocities
    return [*phases, Phase(1, messages=hops(sizes.latents), sent=sent, received=received)]


@dataclass(frozen=True)
class Way:
    name: str
    phases: Callable[[Sizes, int], list[Phase]]
    cfg: float  # with which it is measured
    arguments: tuple[str, ...] = ()  # of the program


WAYS = [Way("guidance", guidance, 4), Way("sequence", sequence, 1), Way("layers", layers, 4, ("--split", "layers"))]


def chosen_by_program(sizes: Sizes, machines: int) -> list[Phase]:
    """What the program does unless told otherwise (src/team/passes.cc)."""
    if machines == 1:
        return alone(sizes)
    return (guidance if len(sizes.prompts) == 2 and machines % 2 == 0 else sequence)(sizes, machines)


# ---- what one machine takes, from three measurements ----


def fit(measured: list[tuple[int, float]], blocks: int) -> Computing:
    """`measured`: tokens and seconds of a pass, for three numbers of tokens. No price is below zero."""
    (x0, y0), (x1, y1), (x2, y2) = sorted((tokens, seconds / blocks) for tokens, seconds in measured)
    slope = (y1 - y0) / (x1 - x0)
    pair = max(0.0, ((y2 - y0) / (x2 - x0) - slope) / (x2 - x1))
    row = max(0.0, slope - pair * (x0 + x1))
    return Computing(max(0.0, y0 - row * x0 - pair * x0 * x0), row, pair)
