"""A convolutional network in PyTorch, on images in the format of MNIST.

python3 torch_cnn.py              trains with two workers on this machine
python3 torch_cnn.py HOST:PORT    is a worker of that server
pstrain server --process 'python3 torch_cnn.py -'
"""

import sys

import pstrain
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
# Each class is a blurred pattern of its own, in noise.
patterns = F.interpolate(torch.randn(10, 1, 7, 7), size=28, mode="bilinear")
labels = torch.randint(0, 10, (1000,))
images = patterns[labels] + torch.randn(1000, 1, 28, 28)

net = nn.Sequential(
    nn.Conv2d(1, 8, 5, stride=2),
    nn.ReLU(),
    nn.Conv2d(8, 16, 5, stride=2),
    nn.ReLU(),
    nn.Flatten(),
    nn.Linear(16 * 4 * 4, 10),
)


def evaluate(rows):
    rows = slice(None) if rows is None else rows
    scores = net(images[rows])
    right = scores.argmax(dim=1) == labels[rows]
    return F.cross_entropy(scores, labels[rows]), right.float().mean()


def loss(rows):
    return F.cross_entropy(net(images[rows]), labels[rows])


if __name__ == "__main__":
    if sys.argv[1:]:
        with pstrain.Worker(
            sys.argv[1], model=net, examples=len(images), evaluate=evaluate
        ) as worker:
            for step in worker:
                mean_loss = loss(step.rows)
                mean_loss.backward()
                step.push(mean_loss)
    else:
        print(pstrain.train(loss, net, examples=len(images), evaluate=evaluate, epochs=5))
