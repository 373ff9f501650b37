"""A script that is a worker, and a compute process: `linear.py ADDRESS|-`, for test_worker.py."""

import sys

import support
import pstrain

print("a print does not disturb the protocol")
with pstrain.Worker(
    sys.argv[1], params=support.PARAMS, examples=len(support.X), digest="linear"
) as worker:
    worker.evaluate(support.evaluate)
    for count, step in enumerate(worker):
        assert worker.number in (0, 1) and worker.workers == 2 and worker.seed == 1
        loss, gradients = support.gradient(step.params, step.rows)
        if sys.argv[2:] == ["fail"] and count == 3:
            raise ZeroDivisionError("on purpose")
        if sys.argv[2:] == ["break"] and count == 3:
            break
        if sys.argv[2:] == ["forget"] and count == 3:
            continue
        step.push(loss, gradients)
        if sys.argv[2:] == ["twice"]:
            step.push(loss, gradients)
