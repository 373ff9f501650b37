#!/usr/bin/env python3
"""Push-pulls of so many values between a worker and a server of MXNet's kvstore: how often a second."""

import argparse
import json
import time

import pslite

KEY = "values"


def push_pulls(args):
    mxnet, kv, others = pslite.join(args, "dist_sync", 1)
    vector, memory = pslite.array(mxnet, args.values)
    if args.apply:
        kv.set_optimizer(mxnet.optimizer.SGD(learning_rate=0.1))
    kv.init(KEY, vector)

    def turn():
        if args.apply:
            memory.fill(0)
        # The answer is written to where the values were.
        kv.pushpull(KEY, vector)
        vector.wait_to_read()

    turn()  # the first one touches the memory
    began = time.perf_counter()
    for _ in range(args.count):
        turn()
    return args.count / (time.perf_counter() - began), others


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    pslite.add_options(parser)
    parser.add_argument("--values", type=int, required=True, help="of 4 bytes, of one key")
    parser.add_argument("--count", type=int, required=True, help="of push-pulls")
    parser.add_argument(
        "--apply",
        action="store_true",
        help="write the gradient before each one, and let the server take a step of SGD with it;"
        " without it the server stores what was pushed",
    )
    args = parser.parse_args()
    if args.values < 1 or args.count < 1:
        parser.error("--values and --count must be at least 1")
    per_s, others = push_pulls(args)
    pslite.leave(others)
    print(json.dumps({"per_s": per_s}))


if __name__ == "__main__":
    pslite.run(main)
