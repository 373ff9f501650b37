"""What all peers share, in whatever they compute: options, data, the budget and the way they are measured."""

import os
import time

import numpy as np

LEARNING_RATE = 0.1
INPUTS, HIDDEN, CLASSES = 93, 21, 5


def add_options(parser):
    parser.add_argument("--data", required=True, help="the .npz of prepare.py")
    parser.add_argument("--batch", type=int, default=128, help="samples of a mini-batch, per worker")
    parser.add_argument("--epochs", type=float, help="stop after so many passes, all workers together")
    parser.add_argument("--seconds", type=float, help="stop so long after the first update")
    parser.add_argument("--seed", type=int, default=1)


def check_options(parser, args):
    if args.epochs is None and args.seconds is None:
        parser.error("give --epochs, --seconds or both")
    if args.batch < 1:
        parser.error("--batch must be at least 1")
    if not os.path.exists(args.data):
        parser.error(f"{args.data} does not exist; make it with prepare.py")


def load(path, part, stride=slice(None)):
    with np.load(path) as arrays:
        inputs, classes = arrays[f"{part}_inputs"][stride], arrays[f"{part}_classes"][stride]
    return np.ascontiguousarray(inputs), np.ascontiguousarray(classes)


def count_samples(path, part):
    with np.load(path) as arrays:
        return len(arrays[f"{part}_classes"])


def check_batch(size, samples):
    if samples < size:
        raise SystemExit(f"a batch of {size} needs more than the {samples} samples of this partition")


class Budget:
    """Counts gradients and updates, says when the run is over and how fast it was.

    The clock starts when the first update is done: PyTorch and MXNet load much of themselves during that one
    (a second in Ray's actors), which is start-up and would drown the rate of a short run.
    """

    def __init__(self, args, train_samples):
        self.batch = args.batch
        self.samples_wanted = float("inf") if args.epochs is None else args.epochs * train_samples
        self.seconds = float("inf") if args.seconds is None else args.seconds
        self.train_samples = train_samples
        self.gradients = self.updates = 0
        self.clock_started = None

    def goes_on(self):
        return self.gradients * self.batch < self.samples_wanted and self.elapsed() < self.seconds

    def count(self, gradients):
        self.gradients += gradients
        self.updates += 1

    def reached(self, updates, gradients):
        """For who sees the count of others."""
        self.updates, self.gradients = updates, gradients

    def first_update_done(self):
        self.gradients_before_clock, self.updates_before_clock = self.gradients, self.updates
        self.start_s = now() - process_started()
        self.clock_started = time.perf_counter()

    def elapsed(self):
        return 0.0 if self.clock_started is None else time.perf_counter() - self.clock_started

    def results(self):
        """To be called right after the last update: it reads the clock."""
        time_s = self.elapsed()
        updates = self.updates - self.updates_before_clock
        if updates < 1:
            raise SystemExit("the run ended with its first update: there is no rate; give more epochs or seconds")
        return {
            "samples_per_s": (self.gradients - self.gradients_before_clock) * self.batch / time_s,
            "updates_per_s": updates / time_s,
            "updates": self.updates,
            "epochs": self.gradients * self.batch / self.train_samples,
            "time_s": time_s,
            "start_s": self.start_s,
        }


def add_bytes_options(parser, counted, applied):
    """Options of the scripts that move bytes: `counted` is what they count, `applied` what --apply adds."""
    parser.add_argument("--values", type=int, required=True, help="of 4 bytes, in a vector")
    parser.add_argument("--count", type=int, required=True, help=f"of {counted}")
    parser.add_argument("--apply", action="store_true", help=applied)


def check_bytes_options(parser, args):
    if args.values < 1 or args.count < 1:
        parser.error("--values and --count must be at least 1")


def turns_per_s(turn, count):
    """How often a second `turn` is done. One more comes first: it makes connections and touches the memory."""
    turn()
    began = time.perf_counter()
    for _ in range(count):
        turn()
    return count / (time.perf_counter() - began)


def now():
    """Seconds since the machine's start: the same clock in all processes."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def process_started():
    """When this process started, as `now` counts."""
    # From the kernel: the interpreter's own start and the imports are part of what a user waits for.
    with open("/proc/self/stat") as file:
        ticks = int(file.read().rpartition(")")[2].split()[19])
    return ticks / os.sysconf("SC_CLK_TCK")
