#!/usr/bin/env python3
"""The bytes of a ring all-reduce over bare sockets, by so many processes: how often a second.

Nothing is summed: it is a limit for an all-reduce over TCP on this machine. As in a ring, each process sends its own
share of the vector to the next one, and passes on all that it receives, but for the last share; bytes are passed on as
soon as they are here.
"""

import argparse
import json
import os
import select
import socket

import common

# The most bytes of one call: they stay in the processor's cache between the calls of sender and receiver.
MOST_BYTES = 256 * 1024


class Ring:
    """One process of the ring."""

    def __init__(self, rank, ranks, values, before, after):
        self.rank, self.ranks, self.before, self.after = rank, ranks, before, after
        self.share = -(-values // ranks) * 4
        self.steps = 2 * (ranks - 1)
        self.shares = memoryview(bytearray(self.share * ranks))
        for link in (before, after):
            link.setblocking(False)
        self.poll = select.poll()

    def place(self, done, share):
        """Memory of the next bytes, `done` bytes after the first one of the share with this number."""
        step, offset = divmod(done, self.share)
        begin = (share - step) % self.ranks * self.share
        return self.shares[begin + offset : begin + min(self.share, offset + MOST_BYTES)]

    def turn(self):
        sent = received = 0
        total = self.steps * self.share
        while sent < total or received < total:
            known = min(total, self.share + received)
            moved = 0
            if sent < known:
                try:
                    moved = self.after.send(self.place(sent, self.rank)[: known - sent])
                except BlockingIOError:
                    pass
                sent += moved
            if received < total:
                try:
                    read = self.before.recv_into(self.place(received, self.rank - 1))
                    if read == 0:
                        raise SystemExit("the process before has ended")
                    received += read
                    moved += read
                except BlockingIOError:
                    pass
            if moved == 0:
                self.wait(writes=sent < known, reads=received < total)

    def wait(self, writes, reads):
        for link, event, is_due in ((self.after, select.POLLOUT, writes), (self.before, select.POLLIN, reads)):
            if is_due:
                self.poll.register(link, event)
        self.poll.poll()
        for link, is_due in ((self.after, writes), (self.before, reads)):
            if is_due:
                self.poll.unregister(link)


def link():
    """The two ends of a TCP connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        here = socket.create_connection(listener.getsockname())
        there, _ = listener.accept()
    for end in (here, there):
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return here, there


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--values", type=int, required=True, help="of 4 bytes, in a vector")
    parser.add_argument("--count", type=int, required=True, help="of all-reduces")
    parser.add_argument("--ranks", type=int, default=2, help="how many processes take part")
    args = parser.parse_args()
    common.check_bytes_options(parser, args)
    if args.ranks < 2:
        parser.error("--ranks must be at least 2")

    # Link i is from process i to the next one.
    links = [link() for _ in range(args.ranks)]
    others = []
    rank = 0
    for other in range(1, args.ranks):
        pid = os.fork()
        if pid == 0:
            rank, others = other, []
            break
        others.append(pid)
    ring = Ring(rank, args.ranks, args.values, links[rank - 1][1], links[rank][0])
    for number, (here, there) in enumerate(links):
        if number != rank:
            here.close()
        if number != (rank - 1) % args.ranks:
            there.close()
    per_s = common.turns_per_s(ring.turn, args.count)
    if rank == 0:
        for pid in others:
            os.waitpid(pid, 0)
        print(json.dumps({"per_s": per_s}))


if __name__ == "__main__":
    main()
