"""What the scripts with torch.distributed share: processes that find each other, and vectors of a whole model."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

# Before Gloo looks for a network of its own choice.
os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
# One thread a process, as everywhere here; PyTorch would take one a core.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
import torch.distributed as dist


def add_options(parser):
    # For the further processes, which this script starts as itself.
    parser.add_argument("--rank", type=int, default=0, help="of a further process; not for use by hand")
    parser.add_argument("--meet", help="the file where processes find each other; not for use by hand")


def join(args, size):
    """Makes this process one of `size`, the first of which starts the others. Returns these: to be ended with `leave`."""
    torch.set_num_threads(1)
    others = []
    if args.rank == 0:
        args.meet = os.path.join(tempfile.mkdtemp(), "meet")
        for rank in range(1, size):
            options = ["--rank", str(rank), "--meet", args.meet]
            others.append(subprocess.Popen([sys.executable, *sys.argv, *options]))
    dist.init_process_group("gloo", init_method=f"file://{args.meet}", rank=args.rank, world_size=size)
    return others


def leave(args, others):
    dist.destroy_process_group()
    for other in others:
        if other.wait() != 0:
            sys.exit(f"a further process ended with status {other.returncode}")
    if args.rank == 0:
        Path(args.meet).unlink(missing_ok=True)
        os.rmdir(os.path.dirname(args.meet))


class Flat:
    """A model whose parameters, and whose gradients, are parts of one vector each.

    So a message is one tensor without copies, as PyTorch's own data parallelism has it. Both vectors have one
    place more, in which the process that counts tells the others that the run is over.
    """

    def __init__(self, model):
        self.model = model
        values = sum(parameter.numel() for parameter in model.parameters())
        self.weights, self.gradients = torch.zeros(values + 1), torch.zeros(values + 1)
        at = 0
        for parameter in model.parameters():
            end = at + parameter.numel()
            self.weights[at:end] = parameter.detach().flatten()
            parameter.data = self.weights[at:end].view_as(parameter)
            parameter.grad = self.gradients[at:end].view_as(parameter)
            at = end

    def compute(self, loss, inputs, classes):
        """The gradient of a mini-batch, into `gradients`."""
        self.gradients.zero_()
        loss(self.model(inputs), classes).backward()


def say_over(vector):
    vector[-1] = 1


def is_over(vector):
    return vector[-1].item() > 0
