"""ResNet-18 of full size in PyTorch, on CUDA, MPS or the CPU, whichever is there.

python3 torch_resnet18.py --width 2 --epochs 1      trains with two workers in this process
python3 torch_resnet18.py HOST:PORT                 is a worker of that server
pstrain server --process 'python3 torch_resnet18.py --width 2 -'

Without --width the network has the 64 channels of the paper: 11,173,962 parameters. --data FOLDER
reads the binary version of CIFAR-10; without it each class is a blurred pattern in noise.
"""

import argparse
import pathlib

import pstrain
import torch
import torch.nn.functional as F
from torch import nn

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("server", nargs="?", help="the server's address, or - for a compute process")
parser.add_argument("--data", type=pathlib.Path, help="folder of CIFAR-10, the binary version")
parser.add_argument("--width", type=int, default=64, help="channels of the first stage")
parser.add_argument("--epochs", type=int, default=10, help="of training without a server")


def normed(inputs, outputs, size, stride=1):
    conv = nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs))


class Block(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        stride = 1 if inputs == outputs else 2
        first, second = normed(inputs, outputs, 3, stride), normed(outputs, outputs, 3)
        self.way = nn.Sequential(first, nn.ReLU(), second)
        self.short = nn.Identity() if inputs == outputs else normed(inputs, outputs, 1, stride)

    def forward(self, x):
        return F.relu(self.way(x) + self.short(x))


def resnet18(width):
    """Starts with a 3x3 convolution and no pooling, as pictures of 32x32 pixels want it."""
    layers, inputs = [normed(3, width, 3), nn.ReLU()], width
    for outputs in (width, 2 * width, 4 * width, 8 * width):
        layers += [Block(inputs, outputs), Block(outputs, outputs)]
        inputs = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 10))


def cifar10(paths):
    """Pictures of bytes, (ROWS, 3, 32, 32), and their classes."""
    data = bytearray(b"".join(path.read_bytes() for path in paths))
    rows = torch.frombuffer(data, dtype=torch.uint8).reshape(-1, 3073)
    return rows[:, 1:].reshape(-1, 3, 32, 32), rows[:, 0].long()


def synthetic(count):
    labels = torch.randint(10, (count,))
    pictures = patterns[labels] + 40 * torch.randn(count, 3, 32, 32)
    return pictures.clamp(0, 255).byte(), labels


def changed(rows, seed):
    """Pictures of a mini-batch, moved by up to 4 pixels over zeros, every second one mirrored.

    BatchNorm's count of mini-batches comes with the parameters, so the draws are the same where the
    mini-batch is computed again, and others in the next pass.
    """
    count = int(net[0][1].num_batches_tracked)
    draws = torch.Generator().manual_seed(hash((seed, count, *rows.tolist())))
    padded = F.pad(scaled(images[rows]), (4, 4, 4, 4))
    down, right = torch.randint(9, (2, len(rows), 1), generator=draws) + torch.arange(32)
    mirrored = torch.rand(len(rows), 1, generator=draws) < 0.5
    right = torch.where(mirrored, right.flip(1), right)
    picture = torch.arange(len(rows)).reshape(-1, 1, 1)
    return padded[picture, :, down[:, :, None], right[:, None]].permute(0, 3, 1, 2).contiguous()


def scaled(pictures):
    return pictures / 127.5 - 1


def loss(rows, seed=1):
    return F.cross_entropy(net(changed(rows, seed).to(device)), labels[rows].to(device))


def evaluate(rows):
    """On the test pictures, or on the rows that `--evaluation-share` holds out."""
    pictures, classes = test if rows is None else (images[rows], labels[rows])
    scores = torch.cat([net(scaled(part).to(device)).cpu() for part in pictures.split(250)])
    right = (scores.argmax(dim=1) == classes).float().mean()
    return {"loss": F.cross_entropy(scores, classes), "accuracy": right, "examples": len(classes)}


if __name__ == "__main__":
    args = parser.parse_args()
    torch.manual_seed(0)
    if args.data:
        images, labels = cifar10(sorted(args.data.glob("data_batch_*.bin")))
        test = cifar10([args.data / "test_batch.bin"])
    else:
        patterns = 255 * F.interpolate(torch.rand(10, 3, 8, 8), size=32, mode="bilinear")
        (images, labels), test = synthetic(1000), synthetic(250)
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    device = next((name for name, is_there in there.items() if is_there), "cpu")
    net = resnet18(args.width).to(device)
    print(f"{sum(p.numel() for p in net.parameters()):,} parameters on {device}", flush=True)
    settings = dict(examples=len(images), evaluate=evaluate)
    if args.server:
        with pstrain.Worker(args.server, model=net, **settings) as worker:
            for step in worker:
                mean_loss = loss(step.rows, worker.seed)
                mean_loss.backward()
                step.push(mean_loss)
    else:
        settings.update(epochs=args.epochs, optimizer="momentum", learning_rate=0.05)
        print(pstrain.train(loss, net, **settings))
