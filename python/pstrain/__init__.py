"""Data-parallel training with pstrain: any model, in any library, on any data.

`Worker` and `run` work for a server, `train` and `simulate` are a whole cluster, `partial_fit` is
for estimators of scikit-learn, and `Results` reads what a run wrote. docs/python.md has examples.
"""

from .cluster import simulate, train
from .estimator import partial_fit
from .program import ProgramError
from .protocol import ProtocolError, is_process, reserve
from .results import Results
from .session import Step
from .task import Task
from .worker import Worker, run

__all__ = [
    "ProgramError",
    "ProtocolError",
    "Results",
    "Step",
    "Task",
    "Worker",
    "partial_fit",
    "run",
    "simulate",
    "train",
]

if is_process():
    # Before code of the user: a print is no answer, and no child takes a request.
    reserve()
