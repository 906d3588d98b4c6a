"""What is measured: lines, the contestants of each, and how often. The runs of a line's contestants alternate, so that
whatever changes on the machine in the meantime meets all of them."""

from dataclasses import dataclass

from tools.peers import diffusers_peer, openvino_peer, outliers, rivals, rotated, sdcpp_peer
from tools.peers.bench import BLOCK_COUNTS, BLOCKS, GROWTH_BLOCKS
from tools.peers.contestants import BEFORE, DIFFUSERS, ENGINE, EXACT_BF16, FAST, FAST_OUTLIERS, OPENVINO, ROTATED, SDCPP

RESOLUTIONS = (256, 512, 768, 1024, 1536)
AVX2 = "avx2"
AVX2_KINDS = sdcpp_peer.KINDS[:3]  # the others are converted number by number without newer instructions


@dataclass
class Variant:
    name: str
    measure: object  # () -> Measured


@dataclass
class Contestant:
    who: str
    variants: list
    seconds: float  # about how long a run takes, with what has to be loaded; for the estimate only
    # (measurements) -> names of the variants that are measured at all; by default all.
    candidates: object = None
    # (measurements) -> names of those whose fastest is measured as often as the line asks for; by default all.
    choices: object = None

    def candidates_of(self, measurements):
        wanted = self.candidates(measurements) if self.candidates else self.names()
        return [variant for variant in self.variants if variant.name in wanted]

    def fastest(self, measurements, line, figure):
        """The variant that is repeated, or None."""
        choices = self.choices(measurements) if self.choices else self.names()
        name = measurements.fastest(line, self.who, figure, choices)
        return next((variant for variant in self.variants if variant.name == name), None)

    def names(self):
        return [variant.name for variant in self.variants]


@dataclass
class Line:
    name: str
    title: str
    repeats: int
    contestants: list
    figure: str = "step"
    needs: tuple = ()  # lines whose figures say who takes part in this one


def engine_blocks(bench, variant, seconds, count=BLOCKS, side=512, who=ENGINE, **options):
    bf16 = variant == EXACT_BF16

    def measure():
        weights = bench.models.transformer_bf16(count) if bf16 else bench.models.transformer(count)
        return bench.run_engine(
            bench.engine.blocks, weights, side, **{"precision": "exact" if bf16 else "fast"} | options
        )

    return Contestant(who, [Variant(variant, measure)], seconds)


def engine_with(bench, variant, seconds, transformer, who=ENGINE):
    """The 512×512 line with another transformer, which is written when it is needed."""
    measure = lambda: bench.run_engine(bench.engine.blocks, transformer(), 512, precision="fast")  # noqa: E731
    return Contestant(who, [Variant(variant, measure)], seconds)


def before_blocks(bench, seconds, side, steps):
    measure = lambda: bench.run_before(bench.models.transformer(BLOCKS), side, "fast", steps)  # noqa: E731
    return Contestant(BEFORE, [Variant(FAST, measure)], seconds)


def sd_blocks(bench, seconds, side, who=SDCPP, candidates=None, variants=sdcpp_peer.VARIANTS, program="sd"):
    def variant(name):
        run = lambda: bench.run_sd(getattr(bench, program), lambda sd: sd.blocks, BLOCKS, name, side)  # noqa: E731
        return Variant(name, run)

    return Contestant(who, [variant(name) for name in variants], seconds, candidates)


def openvino_blocks(bench, seconds, side, candidates=None):
    made = [Variant(v, lambda v=v: bench.openvino_blocks(v, side)) for v in openvino_peer.VARIANTS]
    return Contestant(OPENVINO, made, seconds, candidates, choices=lambda m: rivals.of(m, OPENVINO))


def diffusers_blocks(bench, seconds, side):
    made = [Variant(v, lambda v=v: bench.diffusers_blocks(side, v)) for v in diffusers_peer.VARIANTS]
    return Contestant(DIFFUSERS, made, seconds, choices=lambda m: rivals.of(m, DIFFUSERS))


def errors(bench):
    openvino = [Variant(v, lambda v=v: bench.openvino_error(v)) for v in openvino_peer.VARIANTS]
    diffusers = [Variant(v, lambda v=v: bench.diffusers_error(v)) for v in diffusers_peer.VARIANTS]
    return Line(
        rivals.LINE,
        "a block with outliers, 512×512: NMSE against diffusers in fp32",
        1,
        [
            Contestant(ENGINE, [Variant(FAST, bench.engine_error)], 10),
            Contestant(OPENVINO, openvino, 15),
            Contestant(DIFFUSERS, diffusers, 20),
        ],
        figure="nmse",
    )


def depth(bench):
    return Line(
        "depth",
        f"{outliers.DEPTH} blocks with outliers, 512×512: NMSE of the velocity, fast against exact",
        1,
        [Contestant(ENGINE, [Variant(FAST, bench.depth_error)], 90)],
        figure="nmse",
    )


def blocks_512(bench):
    return Line(
        "blocks512",
        "4 blocks, 512×512 (1024 + 23 tokens): seconds of a step",
        5,
        [
            engine_blocks(bench, FAST, 8),
            engine_with(bench, FAST_OUTLIERS, 8, lambda: outliers.transformer(bench.models)),
            engine_blocks(bench, EXACT_BF16, 14),
            sd_blocks(bench, 13, 512),
            diffusers_blocks(bench, 20, 512),
            openvino_blocks(bench, 8, 512),
        ],
        needs=(rivals.LINE,),
    )


def blocks_1024(bench):
    fastest_sd = lambda m: rivals.fastest_two(m, "blocks512", SDCPP, sdcpp_peer.VARIANTS)  # noqa: E731
    # The fastest of all, too, where it is no rival: so that it can be said how much its errors would gain.
    openvino = lambda m: [*rivals.of(m, OPENVINO), m.fastest("blocks512", OPENVINO, "step")]  # noqa: E731
    return Line(
        "blocks1024",
        "4 blocks, 1024×1024 (4096 + 23 tokens): seconds of a step",
        3,
        [
            engine_blocks(bench, FAST, 15, side=1024, steps=2),
            sd_blocks(bench, 50, 1024, candidates=fastest_sd),
            openvino_blocks(bench, 15, 1024, candidates=openvino),
        ],
        needs=(rivals.LINE, "blocks512"),
    )


def blocks_1328(bench):
    return Line(
        "blocks1328",
        "4 blocks, 1328×1328 (6889 + 23 tokens): seconds of a step",
        3,
        [engine_blocks(bench, FAST, 30, side=1328, steps=2), before_blocks(bench, 50, 1328, 2)],
    )


def rest_512(bench):
    ours = lambda: bench.run_engine(bench.engine.rest, bench.models.transformer(BLOCKS), 512)  # noqa: E731
    theirs = lambda: bench.run_before(bench.models.transformer(BLOCKS), 512, work="rest")  # noqa: E731
    return Line(
        "rest512",
        "4 blocks, 512×512, all that is neither product nor attention: seconds of a step",
        3,
        [Contestant(ENGINE, [Variant(FAST, ours)], 8), Contestant(BEFORE, [Variant(FAST, theirs)], 8)],
        figure="rest",
    )


def blocks_avx2(bench, side, repeats, seconds, sd_seconds):
    fastest = lambda m: rivals.fastest_two(m, "avx2-512", SDCPP, AVX2_KINDS)  # noqa: E731
    candidates = None if side == 512 else fastest
    return Line(
        f"avx2-{side}",
        f"4 blocks, {side}×{side}, AVX2 alone: seconds of a step",
        repeats,
        [
            engine_blocks(bench, FAST, seconds, side=side, steps=2, only_set=AVX2),
            sd_blocks(bench, sd_seconds, side, variants=AVX2_KINDS, program="sd_avx2", candidates=candidates),
        ],
        needs=() if side == 512 else ("avx2-512",),
    )


def convrot_512(bench):
    return Line(
        "convrot512",
        "4 blocks, 512×512, int8 ConvRot against 4 bits: seconds of a step",
        3,
        [
            engine_with(bench, ROTATED, 10, lambda: rotated.transformer(bench.models, BLOCKS)),
            engine_blocks(bench, FAST, 8, who=f"{ENGINE}, 4-bit"),
        ],
    )


def vae_512(bench):
    as_it_is = lambda: bench.run_sd(bench.sd, lambda sd: sd.vae, 512)  # noqa: E731
    return Line(
        "vae512",
        "VAE, 512×512, fp32: seconds",
        3,
        [
            Contestant(ENGINE, [Variant("fp32", lambda: bench.engine_vae(512))], 16),
            Contestant(DIFFUSERS, [Variant(diffusers_peer.VARIANT, lambda: bench.diffusers_vae(512))], 36),
            Contestant(SDCPP, [Variant("as it loads it", as_it_is)], 120),
        ],
        figure="decode",
    )


def text_encoder(bench):
    theirs = lambda: bench.run_sd(bench.sd, lambda sd: sd.text_encoder, "q4_0")  # noqa: E731
    return Line(
        "text57",
        "text encoder, 28 layers, 57 tokens: seconds",
        5,
        [
            Contestant(ENGINE, [Variant(FAST, lambda: bench.run_engine(bench.engine.text_encoder))], 6),
            Contestant(SDCPP, [Variant("q4_0", theirs)], 14),
        ],
        figure="encode_prompt",
    )


def scaling(bench):
    """The last: more threads than processors, as many as a careless setting asks for."""
    counts = {"1 thread": 1, "2 threads": 2, "16 threads": 16}
    return Line(
        "threads",
        "4 blocks, 512×512, 1, 2 and 16 threads: seconds of a step",
        3,
        [engine_blocks(bench, FAST, 7, who=who, threads=count) for who, count in counts.items()],
    )


def growth_with_resolution(bench):
    engine = [engine_blocks(bench, FAST, 6, GROWTH_BLOCKS, side, f"{side}", steps=2) for side in RESOLUTIONS]
    peers = [
        Contestant(f"{DIFFUSERS} 256", [Variant(diffusers_peer.VARIANT, lambda: bench.diffusers_blocks(256))], 12),
        sd_blocks(bench, 6, 256, who=f"{SDCPP} 256", variants=("q4_0",)),
    ]
    return Line(
        "resolutions", f"growth with the resolution, {GROWTH_BLOCKS} blocks: seconds of a step", 1, engine + peers
    )


def growth_with_blocks(bench):
    contestants = [engine_blocks(bench, FAST, 6, count, 512, f"{count}", steps=2) for count in BLOCK_COUNTS]
    return Line("blocks", "growth with the number of blocks, 512×512: seconds of a step", 1, contestants)


def all_lines(bench):
    first_step = Variant(FAST, lambda: bench.run_engine(bench.engine.first_step))
    return [
        Line(
            "kernels",
            "kernels against the machine's peaks",
            1,
            [Contestant(ENGINE, [Variant("", bench.kernels)], 40)],
            "peak_gflops",
        ),
        errors(bench),
        depth(bench),
        blocks_512(bench),
        blocks_1024(bench),
        blocks_1328(bench),
        rest_512(bench),
        blocks_avx2(bench, 512, 3, 8, 20),
        blocks_avx2(bench, 1024, 2, 25, 80),
        convrot_512(bench),
        vae_512(bench),
        text_encoder(bench),
        scaling(bench),
        growth_with_resolution(bench),
        growth_with_blocks(bench),
        Line(
            "full", "20 B model, 4-bit, 512×512, 4 steps", 1, [Contestant(ENGINE, [Variant(FAST, bench.full_run)], 240)]
        ),
        Line("start", "20 B model: start to first step", 5, [Contestant(ENGINE, [first_step], 3)], "start"),
    ]
