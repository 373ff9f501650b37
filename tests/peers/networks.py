#!/usr/bin/env python3
"""Networks of pictures in PyTorch.

Usage: tests/peers/networks.py > core/compute/src/model/net/oracle.txt
       tests/peers/networks.py time [THREADS]
       tests/peers/networks.py train CIFAR10 SEED...
       tests/peers/networks.py ddp CIFAR10 [WORKERS [BATCH]]

The first prints one step of each network in double precision: the values that the tests of the
networks hold. The second prints the least time of a step, gradient and update, in both layouts, as
in the rows `network` of

    cargo bench -p pstrain-compute --features std --bench step network

The third trains resnet:8 for 5 epochs on a folder with the binary version of CIFAR-10, plain or packed
by xz, as

    pstrain run --workers 1 --data cifar10:FOLDER --evaluation-data cifar10:FOLDER/test_batch.bin \
        --model resnet:8 --batch-size 64 --optimizer momentum --learning-rate 0.05 --epochs 5 --seed SEED

The fourth trains resnet:8 for 100 steps with DistributedDataParallel over Gloo, a process of one thread
for each worker, in both layouts. It prints the mean time of a step without the first, and the peak of
a process's resident memory in the steps. The same by pstrain is, with FILE of 100 x WORKERS x BATCH rows,

    pstrain run --workers WORKERS --batch-size BATCH --data cifar10:FILE --evaluation-share 0 --epochs 1 \
        --model resnet:8 --optimizer momentum --learning-rate 0.05 --json

with (started_s + time_s - first_update_s) / (updates - 1) and peak_rss_mib, of all workers together.

Parameters and pictures are drawn by a generator of whole numbers. A line has a network, the number
of a tensor in key order, the square root of the sum of the squares of its gradient, and the sum of
its gradient times further numbers of the generator. State has its change in place of a gradient.
The line "loss" has the mean loss twice. Needs torch.
"""

import lzma
import pathlib
import re
import sys
import tempfile
import time

import torch
import torch.distributed as dist
from torch import multiprocessing, nn

ROWS, CLASSES = 6, 5


class Numbers:
    """Numbers from -1 to 1, each exact in single precision."""

    def __init__(self, seed):
        self.state = seed

    def take(self, count):
        values = []
        for _ in range(count):
            self.state = (self.state * 1664525 + 1013904223) % 2**32
            values.append((self.state >> 8) / 2**23 - 1)
        return torch.tensor(values, dtype=torch.float64)


def conv(inputs, outputs, size, stride=1):
    layers = [nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False)]
    return nn.Sequential(*layers, nn.BatchNorm2d(outputs), nn.ReLU())


class Residual(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.first = conv(inputs, outputs, 3, stride)
        self.second = conv(outputs, outputs, 3)[:2]
        same = stride == 1 and inputs == outputs
        self.short = None if same else conv(inputs, outputs, 1, stride)[:2]

    def forward(self, x):
        way = self.second(self.first(x))
        return torch.relu(way + (x if self.short is None else self.short(x)))


def resnet(depth, width):
    blocks = {18: [2, 2, 2, 2]}.get(depth) or [(depth - 2) // 6] * 3
    layers, channels = [conv(3, width, 3)], width
    for stage, count in enumerate(blocks):
        for block in range(count):
            stride = 2 if stage > 0 and block == 0 else 1
            layers.append(Residual(channels, width << stage, stride))
            channels = width << stage
    pool = [nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, *pool, nn.Linear(channels, CLASSES))


class Mixed(nn.Module):
    def __init__(self, inputs, narrow, wide):
        super().__init__()
        self.narrow, self.wide = conv(inputs, narrow, 1), conv(inputs, wide, 3)

    def forward(self, x):
        return torch.cat([self.narrow(x), self.wide(x)], 1)


class Smaller(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.conv, self.pool = conv(inputs, outputs, 3, 2), nn.MaxPool2d(3, 2, 1)

    def forward(self, x):
        return torch.cat([self.conv(x), self.pool(x)], 1)


def inception(width):
    def part(channels):
        return max(channels * width // 96, 1)

    layers, channels = [conv(3, width, 3)], width
    stages = [[(32, 32), (32, 48), 80], [(112, 48), (96, 64), (80, 80), (48, 96), 96]]
    for block in [*stages[0], *stages[1], (176, 160), (176, 160)]:
        if isinstance(block, tuple):
            narrow, wide = part(block[0]), part(block[1])
            layers.append(Mixed(channels, narrow, wide))
            channels = narrow + wide
        else:
            layers.append(Smaller(channels, part(block)))
            channels += part(block)
    pool = [nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, *pool, nn.Linear(channels, CLASSES))


def lenet():
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, CLASSES),
    )


def windows():
    """Strides, paddings and pools that the known networks do not have."""
    return nn.Sequential(
        nn.Conv2d(3, 5, 7, 3, 3), nn.Tanh(), nn.AvgPool2d(3, 1, 1),
        nn.Conv2d(5, 17, 4, 2, 1, bias=False), nn.BatchNorm2d(17), nn.MaxPool2d(2, 1), nn.Flatten(),
        nn.Linear(34, 9), nn.BatchNorm1d(9), nn.ReLU(), nn.Linear(9, CLASSES),
    )


def to_keys(values):
    """The values of a PyTorch tensor in the order of keys."""
    if values.dim() == 4:
        values = values.permute(2, 3, 1, 0)
    elif values.dim() == 2:
        values = values.t()
    return values.reshape(-1)


def from_keys(values, like):
    if like.dim() == 4:
        out, inside, height, width = like.shape
        return values.reshape(height, width, inside, out).permute(3, 2, 0, 1)
    if like.dim() == 2:
        return values.reshape(like.shape[1], like.shape[0]).t()
    return values.reshape(like.shape)


def step(name, net, picture):
    net, numbers = net.double().train(), Numbers(1)
    height, width, channels = picture
    with torch.no_grad():
        for tensor in net.parameters():
            fan = tensor[0].numel() if tensor.dim() > 1 else 4
            values = numbers.take(tensor.numel()) * 2.0 ** -int((fan // 2).bit_length() / 2)
            tensor.copy_(from_keys(values, tensor))
    rows = numbers.take(ROWS * height * width * channels)
    rows = rows.reshape(ROWS, height, width, channels).permute(0, 3, 1, 2)
    labels = torch.tensor([row % CLASSES for row in range(ROWS)])
    before = [state.clone().double() for state in net.buffers()]
    loss = nn.functional.cross_entropy(net(rows), labels)
    loss.backward()
    changes = [tensor.grad for tensor in net.parameters()]
    changes += [after - first for after, first in zip(net.buffers(), before)]
    print(name, "loss", f"{loss.item():.12e} {loss.item():.12e}")
    for place, change in enumerate(changes):
        values = to_keys(change.double())
        along = (values * numbers.take(values.numel())).sum().item()
        print(name, place, f"{values.norm().item():.12e} {along:.12e}")


def times(name, net, picture):
    height, width, channels = picture
    for layout in (torch.contiguous_format, torch.channels_last):
        for batch in (32, 128):
            model = net().train().to(memory_format=layout)
            rows = torch.rand(batch, channels, height, width) - 0.5
            rows = rows.contiguous(memory_format=layout)
            labels = torch.randint(CLASSES, (batch,))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            least, begun, steps = float("inf"), time.perf_counter(), 0
            while steps < 4 or time.perf_counter() - begun < 4:
                before = time.perf_counter()
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(rows), labels).backward()
                optimizer.step()
                least, steps = min(least, time.perf_counter() - before), steps + 1
            word = str(layout).removeprefix("torch.")
            print(f"{name:22} {word:18} batch {batch:4} {least * 1e3:9.2f} ms", flush=True)


def images(folder, names):
    parts = []
    for name in names:
        path = pathlib.Path(folder, name)
        data = path.read_bytes() if path.exists() else lzma.open(f"{path}.xz").read()
        parts.append(torch.frombuffer(bytearray(data), dtype=torch.uint8).reshape(-1, 3073))
    rows = torch.cat(parts)
    return rows[:, 1:].reshape(-1, 3, 32, 32) / 127.5 - 1, rows[:, 0].long()


def train(folder, seed):
    torch.manual_seed(seed)
    rows, labels = images(folder, [f"data_batch_{number}.bin" for number in range(1, 6)])
    net = resnet(8, 16)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    for _ in range(5):
        for chosen in torch.randperm(len(rows)).split(64):
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(rows[chosen]), labels[chosen]).backward()
            optimizer.step()
    net.eval()
    rows, labels = images(folder, ["test_batch.bin"])
    with torch.no_grad():
        right = [(net(a).argmax(1) == b).sum() for a, b in zip(rows.split(500), labels.split(500))]
    print(f"seed {seed}: accuracy {100 * sum(right).item() / len(rows):.2f} %", flush=True)


def ddp(rank, folder, workers, batch, layout, meeting):
    torch.set_num_threads(1)
    torch.manual_seed(1)
    dist.init_process_group("gloo", f"file://{meeting}", rank=rank, world_size=workers)
    steps, own = 100, slice(rank, None, workers)
    rows, labels = (part[own].clone() for part in images(folder, ["data_batch_1.bin"]))
    net = nn.parallel.DistributedDataParallel(
        resnet(8, 16).to(memory_format=layout), gradient_as_bucket_view=True
    )
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    pathlib.Path("/proc/self/clear_refs").write_text("5")  # The peak of memory begins here.
    for number in range(steps):
        if number == 1:
            begun = time.perf_counter()
        chosen = torch.randint(len(rows), (batch,))
        pictures = rows[chosen].contiguous(memory_format=layout)
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(pictures), labels[chosen]).backward()
        optimizer.step()
    took = (time.perf_counter() - begun) / (steps - 1)
    peak = re.search(r"VmHWM:\s+(\d+)", pathlib.Path("/proc/self/status").read_text())[1]
    if rank == 0:
        word = str(layout).removeprefix("torch.")
        rate = f"{workers * batch / took:7.1f} images/s {int(peak) / 1024:7.1f} MiB"
        print(f"{workers} x {batch:4} {word:18} {took * 1e3:8.2f} ms {rate}", flush=True)
    dist.destroy_process_group()


if sys.argv[1:2] == ["ddp"]:
    CLASSES = 10
    workers, batch = int((sys.argv[3:] or [2])[0]), int((sys.argv[4:] or [32])[0])
    for layout in (torch.contiguous_format, torch.channels_last):
        with tempfile.TemporaryDirectory() as meeting:
            arguments = sys.argv[2], workers, batch, layout, f"{meeting}/file"
            multiprocessing.start_processes(ddp, arguments, workers, start_method="fork")
    sys.exit()
if sys.argv[1:2] == ["train"]:
    CLASSES = 10
    torch.set_num_threads(1)
    for number in sys.argv[3:]:
        train(sys.argv[2], int(number))
    sys.exit()
if sys.argv[1:2] == ["time"]:
    CLASSES = 10
    torch.set_num_threads(int((sys.argv[2:] or [1])[0]))
    small, coloured = (28, 28, 1), (32, 32, 3)
    times("lenet", lenet, small)
    times("resnet:8", lambda: resnet(8, 16), coloured)
    times("resnet:18,64", lambda: resnet(18, 64), coloured)
    times("inception-bn-small", lambda: inception(96), (28, 28, 3))
    sys.exit()
for name, net, picture in [
    ("lenet", lenet, (28, 28, 1)),
    ("resnet:8,4", lambda: resnet(8, 4), (12, 12, 3)),
    ("resnet:18,3", lambda: resnet(18, 3), (16, 16, 3)),
    ("inception-bn-small,12", lambda: inception(12), (12, 12, 3)),
    ("windows", windows, (13, 20, 3)),
]:
    step(name, net(), picture)
