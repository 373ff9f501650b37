#!/usr/bin/env python3
"""MXNet's distributed kvstore, which is ps-lite: SGD at the server, workers that push gradients and pull parameters."""

import argparse
import json

import numpy as np

import common
import pslite

KEY = "model"
SHAPES = {
    "hidden_weight": (common.HIDDEN, common.INPUTS),
    "hidden_bias": (common.HIDDEN,),
    "output_weight": (common.CLASSES, common.HIDDEN),
    "output_bias": (common.CLASSES,),
}
VALUES = sum(int(np.prod(shape)) for shape in SHAPES.values())
# Two further parameters. Each gradient is such that the server's SGD adds 1 to the first one in each update, which so
# counts them for all workers to see. The second is above 0 when the first worker has said that the run is over.
UPDATES, OVER = VALUES, VALUES + 1
ONE_STEP = -1 / common.LEARNING_RATE


def parts(vector):
    """The parameters, by name, as views of one vector."""
    views, at = {}, 0
    for name, shape in SHAPES.items():
        end = at + int(np.prod(shape))
        views[name] = vector[at:end].reshape(shape)
        at = end
    return views


def initial(seed):
    """Uniform in +-1/sqrt(fan_in), as PyTorch has it."""
    vector = np.zeros(VALUES + 2, dtype=np.float32)
    generator = np.random.default_rng(seed)
    for name, part in parts(vector).items():
        fan_in = common.INPUTS if name.startswith("hidden") else common.HIDDEN
        part[...] = generator.uniform(-1, 1, part.shape) / np.sqrt(fan_in)
    return vector


def orders(samples, size, seed):
    """Rows of mini-batches without end, reshuffled at each pass; what does not fill a batch waits for another pass."""
    common.check_batch(size, samples)
    generator = np.random.default_rng(seed)
    while True:
        order = generator.permutation(samples)
        for at in range(0, samples - size + 1, size):
            yield order[at : at + size]


class Model:
    """The symbolic network, bound to one vector of parameters and one of gradients."""

    def __init__(self, mxnet, batch):
        self.weights, self.weights_memory = pslite.array(mxnet, VALUES + 2)
        self.gradients, self.gradients_memory = pslite.array(mxnet, VALUES + 2)
        inputs, self.inputs_memory = pslite.array(mxnet, batch, common.INPUTS)
        classes, self.classes_memory = pslite.array(mxnet, batch)
        sym = mxnet.sym
        named = {name: sym.Variable(name) for name in SHAPES}
        layer = sym.FullyConnected(
            sym.Variable("inputs"), named["hidden_weight"], named["hidden_bias"], num_hidden=common.HIDDEN
        )
        layer = sym.Activation(layer, act_type="relu")
        layer = sym.FullyConnected(layer, named["output_weight"], named["output_bias"], num_hidden=common.CLASSES)
        # Its gradient is that of the mean negative log-likelihood.
        layer = sym.SoftmaxOutput(layer, sym.Variable("classes"), normalization="batch")
        self.executor = layer.bind(
            mxnet.cpu(),
            {**parts(self.weights), "inputs": inputs, "classes": classes},
            args_grad=parts(self.gradients),
            grad_req={name: "write" if name in SHAPES else "null" for name in layer.list_arguments()},
        )

    def compute(self, inputs, classes, chosen):
        """The gradient of a mini-batch, into `gradients`."""
        # Straight into MXNet's memory; `clip` because with other modes numpy goes by a buffer.
        np.take(inputs, chosen, axis=0, out=self.inputs_memory, mode="clip")
        np.take(classes, chosen, out=self.classes_memory, mode="clip")
        self.executor.forward(is_train=True)
        self.executor.backward()

    def accuracy(self, inputs, classes):
        part = parts(self.weights_memory)
        hidden = np.maximum(inputs @ part["hidden_weight"].T + part["hidden_bias"], 0)
        output = hidden @ part["output_weight"].T + part["output_bias"]
        return float((output.argmax(axis=1) == classes).mean())


def work(kv, model, args, budget):
    """Pushes and pulls until the run is over. The first worker has a budget, and says when that is."""
    inputs, classes = common.load(args.data, "train", slice(args.number, None, args.workers))
    classes = classes.astype(np.float32)
    weights, gradients = model.weights_memory, model.gradients_memory
    gradients_an_update = args.workers if args.mode == "sync" else 1
    for chosen in orders(len(classes), args.batch, args.seed + args.number):
        gradients[UPDATES], gradients[OVER] = ONE_STEP, 0
        if budget is not None:
            # Another update at least, with the gradient that is computed now.
            updates = round(float(weights[UPDATES])) + 1
            budget.reached(updates, updates * gradients_an_update)
            if not budget.goes_on():
                gradients[OVER] = ONE_STEP
        model.compute(inputs, classes, chosen)
        # The answer is written to where the gradient was: so MXNet does it, whatever one gives as `out`.
        kv.pushpull(KEY, model.gradients)
        model.gradients.wait_to_read()
        weights[:] = gradients
        if budget is not None:
            updates = round(float(weights[UPDATES]))
            budget.reached(updates, updates * gradients_an_update)
            if budget.clock_started is None:
                budget.first_update_done()
        if weights[OVER] > 0:
            return


def train(args):
    mxnet, kv, others = pslite.join(args, f"dist_{args.mode}", args.workers)
    model = Model(mxnet, args.batch)
    kv.set_optimizer(
        mxnet.optimizer.SGD(
            learning_rate=common.LEARNING_RATE,
            # The server adds up the gradients of a synchronous update.
            rescale_grad=1 / args.workers if args.mode == "sync" else 1,
        )
    )
    # The same everywhere. The server gets one worker's, and no worker goes on before that.
    model.weights_memory[:] = initial(args.seed)
    kv.init(KEY, model.weights)
    budget = common.Budget(args, common.count_samples(args.data, "train")) if args.number == 0 else None
    work(kv, model, args, budget)
    results = budget.results() if budget is not None else None
    return model, results, others


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    common.add_options(parser)
    pslite.add_options(parser)
    parser.add_argument("--mode", choices=("sync", "async"), default="sync", help="dist_sync or dist_async")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    common.check_options(parser, args)
    model, results, others = train(args)
    pslite.leave(others)
    if args.number == 0:
        results["accuracy"] = model.accuracy(*common.load(args.data, "test"))
        print(json.dumps(results))


if __name__ == "__main__":
    pslite.run(main)
