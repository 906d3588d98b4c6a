#!/usr/bin/env python3
"""The arithmetic of tools/machines/cost.py: bytes, messages and seconds of a step over several machines.

    tests/network_cost_test.py
"""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tools.machines import cost

# 512x512 with the full model's width, and a prompt of 16 tokens.
WIDE = cost.Sizes(blocks=4, heads=24, head_dim=128, channels=64, picture=1024, prompts=(16,))
GUIDED = cost.Sizes(blocks=4, heads=24, head_dim=128, channels=64, picture=1024, prompts=(16, 6))
FREE = cost.Computing(0, 0, 0)


class Bytes(unittest.TestCase):
    def test_shares_are_those_of_the_program(self):
        self.assertEqual(cost.shares(10, 3), [3, 3, 4])
        self.assertEqual(cost.shares(2, 4), [0, 1, 0, 1])
        self.assertEqual(sum(cost.shares(1047, 7)), 1047)

    def test_two_machines_exchange_half_of_four_arrays_in_each_block(self):
        arrays = 4 * 1040 * 3072 * 4 // 2 * 4  # queries, keys, values, results; half of each; four blocks
        latents = 1024 * 64 * 4
        told = 16 + 37 + latents
        self.assertEqual(cost.volume(cost.sequence(WIDE, 2)), arrays + told + latents + 4)

    def test_more_machines_send_more_together_and_less_each(self):
        together = [cost.volume(cost.sequence(WIDE, machines)) for machines in (2, 3, 4, 8)]
        self.assertEqual(together, sorted(together))
        each = [cost.exchange_seconds(cost.sequence(WIDE, machines), cost.Network(0, 1e8)) for machines in (2, 4, 8)]
        self.assertEqual(each, sorted(each, reverse=True))

    def test_what_is_sent_is_received(self):
        for machines in (2, 3, 4, 5, 8):
            for phase in cost.one_prompt_in_shares(WIDE, 16, machines):
                self.assertEqual(sum(phase.sent), sum(phase.received))

    def test_machines_without_heads_send_all_they_have(self):
        narrow = cost.Sizes(blocks=1, heads=2, head_dim=8, channels=4, picture=9, prompts=(3,))
        phases = cost.one_prompt_in_shares(narrow, 3, 3)
        self.assertEqual(cost.shares(2, 3), [0, 1, 1])
        self.assertEqual(phases[1].sent[0], 3 * 4 * 2 * 8 * 4)

    def test_guidance_on_two_machines_sends_latents_and_a_velocity(self):
        latents = 1024 * 64 * 4
        self.assertEqual(cost.volume(cost.guidance(GUIDED, 2)), 2 * latents + 16 + 37 + 4)

    def test_guidance_on_four_machines_splits_both_prompts(self):
        halves = sum(cost.volume(cost.one_prompt_in_shares(GUIDED, prompt, 2)) for prompt in (16, 6))
        latents = 1024 * 64 * 4
        self.assertEqual(cost.volume(cost.guidance(GUIDED, 4)), halves + 3 * (latents + 16 + 37) + 3 * 4 + latents)

    def test_an_odd_number_shares_both_prompts(self):
        with self.assertRaises(ValueError):
            cost.guidance(GUIDED, 3)
        self.assertEqual(cost.volume(cost.chosen_by_program(GUIDED, 3)), cost.volume(cost.sequence(GUIDED, 3)))

    def test_layers_hand_each_state_over_once(self):
        state = 1040 * 3072 * 4 + 1, 1030 * 3072 * 4 + 1
        latents = 1024 * 64 * 4
        for machines in (2, 3, 4):
            told = (machines - 1) * (latents + 16 + 37)
            self.assertEqual(cost.volume(cost.layers(GUIDED, machines)), told + (machines - 1) * sum(state) + 2 * latents)


class Seconds(unittest.TestCase):
    def test_both_directions_of_a_link_are_used_at_once(self):
        phase = cost.Phase(2, messages=3, sent=[100, 50], received=[50, 100])
        self.assertAlmostEqual(cost.exchange_seconds([phase], cost.Network(0.5, 100)), 2 * (3 * 0.5 + 1))

    def test_nobody_waits_for_what_is_sent_aside(self):
        phase = cost.Phase(1, aside=1000)
        self.assertEqual(cost.exchange_seconds([phase], cost.Network(1, 1)), 0)
        self.assertEqual(cost.volume([phase]), 1000)

    def test_the_slowest_machine_counts(self):
        computing = cost.Computing(fixed=1, row=2, pair=3)
        phase = cost.Phase(2, [cost.Work(1, 1, 1), cost.Work(1, 2, 1), cost.Work()])
        self.assertEqual(cost.computing_seconds([phase], computing), 2 * (1 + 2 * 2 + 3))

    def test_machines_share_rows_and_heads_but_not_what_is_fixed(self):
        computing = cost.Computing(fixed=0.1, row=1e-4, pair=1e-8)
        alone = cost.computing_seconds(cost.alone(WIDE), computing)
        split = cost.computing_seconds(cost.sequence(WIDE, 2), computing)
        self.assertAlmostEqual(alone, 4 * (0.1 + 0.104 + 1e-8 * 1040**2))
        self.assertAlmostEqual(split, 4 * 0.1 + (alone - 4 * 0.1) / 2)

    def test_guidance_takes_the_longer_prompt(self):
        computing = cost.Computing(fixed=0.1, row=1e-4, pair=1e-8)
        self.assertAlmostEqual(
            cost.computing_seconds(cost.guidance(GUIDED, 2), computing), cost.computing_seconds(cost.alone(WIDE), computing)
        )

    def test_prompts_follow_each_other_through_the_layers(self):
        computing = cost.Computing(fixed=1, row=0, pair=0)
        # Four blocks: two machines take three times two of them, for one prompt as long as one machine.
        self.assertEqual(cost.computing_seconds(cost.layers(GUIDED, 2), computing), 3 * 2)
        self.assertEqual(cost.computing_seconds(cost.layers(WIDE, 2), computing), 4)
        # The largest share counts wherever it is busy.
        self.assertEqual(cost.computing_seconds(cost.layers(GUIDED, 3), computing), 1 + 1 + 2 + 2)

    def test_large_messages_are_asked_for_first(self):
        self.assertEqual([cost.hops(size) for size in (1, 65536, 65537)], [1, 1, 3])

    def test_without_prices_only_latency_is_left(self):
        tiny = cost.Sizes(blocks=4, heads=4, head_dim=32, channels=64, picture=16, prompts=(16,))
        # Latents, two messages in each block, the velocity, and once the byte before a block.
        self.assertEqual(cost.step_seconds(cost.sequence(tiny, 2), FREE, cost.Network(1, float("inf"))), 1 + 2 * 4 + 1 + 1)

    def test_frames_take_their_part_of_a_link(self):
        self.assertAlmostEqual(cost.payload_rate(1e8) * 8 / 1e6, 95.64, 2)


class Fit(unittest.TestCase):
    def test_finds_the_prices_again(self):
        points = [(tokens, 3 * (0.01 + 2e-4 * tokens + 5e-9 * tokens**2)) for tokens in (4112, 80, 1040)]
        found = cost.fit(points, 3)
        for price, expected in ((found.fixed, 0.01), (found.row, 2e-4), (found.pair, 5e-9)):
            self.assertAlmostEqual(price, expected, 12)

    def test_no_price_is_negative(self):
        found = cost.fit([(10, 1.0), (20, 3.0), (30, 4.0)], 1)
        self.assertEqual((found.fixed, found.pair), (0, 0))
        self.assertGreater(found.row, 0)

    def test_memory_bounds_many_cores(self):
        machine = cost.Computing(0.1, 1e-3, 0).with_cores(64, 0.01)
        self.assertEqual(machine.seconds(cost.Work(2, 10, 100)), 2 * 0.01)


if __name__ == "__main__":
    unittest.main()
