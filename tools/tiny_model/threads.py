"""Choice of the number of threads on a machine which others use as well."""
import time

import torch


class AdaptiveThreads:
    """Now and then time a few steps with all threads and with one; go on with what is faster.

    Two OpenMP threads which wait for each other on a busy machine can be ten times slower than
    one thread.
    """

    PERIOD = 100
    TRIAL = 4

    def __init__(self):
        self.all = torch.get_num_threads()
        self.times = {}
        self.last = time.time()

    def tick(self, step):
        count, now, i = torch.get_num_threads(), time.time(), step % self.PERIOD
        if i == 0:
            self.times = {}
            torch.set_num_threads(self.all)
        elif i <= 2 * self.TRIAL:
            self.times.setdefault(count, []).append(now - self.last)
        if i == self.TRIAL:
            torch.set_num_threads(1)
        if i == 2 * self.TRIAL:
            # The first step after a change pays for it.
            best = min(self.times, key=lambda n: min(self.times[n][1:]))
            torch.set_num_threads(best)
        self.last = now
