"""What the scripts with MXNet's kvstore share: the processes that ps-lite wants, and memory that numpy sees too."""

import ctypes
import os
import signal
import socket
import subprocess
import sys
import threading
import traceback

import numpy as np

PR_SET_PDEATHSIG = 1

# Before MXNet is loaded. One thread a process for the arithmetic, as everywhere here.
SETTINGS = {"OMP_NUM_THREADS": "1"}
# This engine runs an operation at once, where the default one hands it to a thread. A server, which has one operation
# to do in each update, is a little quicker with it; workers are not.
SERVER_SETTINGS = {"MXNET_ENGINE_TYPE": "NaiveEngine"}


def add_options(parser):
    # For the further workers, which this script starts as itself.
    parser.add_argument("--number", type=int, default=0, help="of a further worker; not for use by hand")


def join(args, kind, workers):
    """Makes this process a worker, the first of which starts the others, a server and a scheduler.

    Returns MXNet, the kvstore and the started processes. MXNet looks for its role when it is imported; with another
    role than a worker's it never returns from there.
    """
    others = []
    if args.number == 0:
        os.environ.update({**SETTINGS, **os.environ})
        os.environ.update(
            DMLC_NUM_WORKER=str(workers),
            DMLC_NUM_SERVER="1",
            DMLC_NODE_HOST="127.0.0.1",
            DMLC_PS_ROOT_URI="127.0.0.1",
            DMLC_PS_ROOT_PORT=str(free_port()),
        )
        others.append(start("scheduler", ["-c", "import mxnet"], {}))
        others.append(start("server", ["-c", "import mxnet"], SERVER_SETTINGS))
        for number in range(1, workers):
            others.append(start("worker", [*sys.argv, "--number", str(number)], {}))
        for other in others:
            threading.Thread(target=watch, args=(other,), daemon=True).start()
    os.environ["DMLC_ROLE"] = "worker"
    import mxnet

    return mxnet, mxnet.kv.create(kind), others


def free_port():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


def start(role, arguments, settings):
    prctl = ctypes.CDLL(None).prctl
    return subprocess.Popen(
        [sys.executable, *arguments],
        env={**settings, **os.environ, "DMLC_ROLE": role},
        # The result is printed by the first worker alone.
        stdout=sys.stderr,
        # However the first worker ends: without it the others would wait for ever.
        preexec_fn=lambda: prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0),
    )


def watch(other):
    """Ends the run when a process of it fails, for ps-lite would wait for that one."""
    if other.wait() != 0:
        print(f"{' '.join(map(str, other.args))} ended with status {other.returncode}", file=sys.stderr, flush=True)
        os._exit(1)


def leave(others):
    """To be called with no reference to the kvstore left: its end is a barrier, after which the server stops."""
    for other in others:
        other.wait()


def run(main):
    """Ends the process with `main`, also when that fails: a proper exit would wait for the other workers."""
    status = 1
    try:
        main()
        status = 0
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else 1
        if isinstance(error.code, str):
            print(error.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def array(mxnet, *shape):
    """Zeros as an array of MXNet, and the same memory as one of numpy: what is copied there costs no operation."""
    memory = np.zeros(shape, dtype=np.float32)
    # Of a view, because MXNet makes the given array read-only.
    return mxnet.nd.from_numpy(memory[:], zero_copy=True), memory
