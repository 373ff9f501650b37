"""What the peers with PyTorch share: the model, and data as tensors. Of `common` they see all through this module."""

import torch

import common

# For those who import this module.
from common import LEARNING_RATE, Budget, add_options, check_options, count_samples  # noqa: F401
from common import now, process_started  # noqa: F401


def load(path, part, stride=slice(None)):
    inputs, classes = common.load(path, part, stride)
    return torch.from_numpy(inputs), torch.from_numpy(classes)


def network(seed):
    torch.manual_seed(seed)
    # PyTorch's own initialisation is uniform in +-1/sqrt(fan_in), which is the job's too.
    return torch.nn.Sequential(
        torch.nn.Linear(common.INPUTS, common.HIDDEN),
        torch.nn.ReLU(),
        torch.nn.Linear(common.HIDDEN, common.CLASSES),
        torch.nn.LogSoftmax(dim=1),
    )


def batches(inputs, classes, size, seed):
    """Mini-batches without end, reshuffled at each pass; what does not fill a batch waits for another pass."""
    common.check_batch(size, len(classes))
    generator = torch.Generator().manual_seed(seed)
    while True:
        order = torch.randperm(len(classes), generator=generator)
        for chosen in order[: len(order) // size * size].split(size):
            yield inputs[chosen], classes[chosen]


def accuracy(model, inputs, classes):
    with torch.no_grad():
        return (model(inputs).argmax(dim=1) == classes).float().mean().item()
