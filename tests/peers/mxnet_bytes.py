#!/usr/bin/env python3
"""Push-pulls of so many values between a worker and a server of MXNet's kvstore: how often a second."""

import argparse
import json

import common
import pslite

KEY = "values"


def push_pulls(args):
    mxnet, kv, others = pslite.join(args, "dist_sync", 1)
    vector, memory = pslite.array(mxnet, args.values)
    if args.apply:
        kv.set_optimizer(mxnet.optimizer.SGD(learning_rate=common.LEARNING_RATE))
    kv.init(KEY, vector)

    def turn():
        if args.apply:
            memory.fill(0)
        # The answer is written to where the values were.
        kv.pushpull(KEY, vector)
        vector.wait_to_read()

    return common.turns_per_s(turn, args.count), others


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    pslite.add_options(parser)
    common.add_bytes_options(
        parser,
        "push-pulls",
        "write the gradient before each one, and let the server take a step of SGD with it;"
        " without it the server stores what was pushed",
    )
    args = parser.parse_args()
    common.check_bytes_options(parser, args)
    per_s, others = push_pulls(args)
    pslite.leave(others)
    print(json.dumps({"per_s": per_s}))


if __name__ == "__main__":
    pslite.run(main)
