#!/usr/bin/env python3
"""Turns the runs that compare.sh or all_reduce.sh noted into Markdown tables: medians, ranges, and ratios to pstrain as
processes.
"""

import json
import statistics
import sys
from collections import defaultdict

KINDS = {"sync": "synchronous", "async": "asynchronous"}
UNITS = {"KB": 2**10, "MB": 2**20}


# How compare.sh calls the row that says what one process makes without any other.
LOOP = "PyTorch loop, 1 process, no server"


def figures(kind, workers, run):
    """The figures of one run; None for what could not be measured."""
    result = run["result"]
    if kind in ("bytes", "all-reduce"):
        return {"rate": result["per_s"] if "per_s" in result else result["updates_per_s"]}
    return {
        "updates/s": result["updates_per_s"],
        "samples/s": result["samples_per_s"],
        "per worker": result["samples_per_s"] / workers,
        "memory": run["pss_mib"],
        # pstrain's name for it, and the peers'.
        "start": result["first_update_s"] if "first_update_s" in result else result["start_s"],
        "accuracy": result["accuracy"],
        "epochs": result["epochs"],
    }


def read(path):
    """(kind, size, ranks) to system to figure to its values, in the order of the repetitions."""
    runs = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    with open(path) as file:
        for line_number, line in enumerate(file, 1):
            try:
                noted = json.loads(line)
                # Only all-reduces are measured with several numbers of processes.
                kind, size, ranks = noted["kind"], noted["size"], noted.get("ranks")
                for name, value in figures(kind, noted["workers"], noted["run"]).items():
                    runs[kind, size, ranks][noted["system"]][name].append(value)
            except (ValueError, KeyError, TypeError) as error:
                sys.exit(f"{path}, line {line_number}: not a run ({error!r}): {line.strip()[:200]}")
    return runs


def number(value):
    """Three significant digits, thousands separated."""
    if value is None:
        return "-"
    if abs(value) >= 100:
        return f"{round(value):,}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.3g}"


def median(column):
    return None if None in column else statistics.median(column)


def with_range(column):
    return number(None) if None in column else f"{number(median(column))} ({number(min(column))} - {number(max(column))})"


def ratio(above, below):
    """Of medians."""
    above, below = median(above), median(below)
    return number(above / below if above is not None and below else None)


def reference(systems):
    """What the others are compared with: the first one measured, which is pstrain in processes that speak TCP."""
    return next(iter(systems.values()))


def job_table(runs):
    print(
        "| batch | consistency | system | updates/s | samples/s | pstrain / this | samples/s of a worker | this / loop"
        " | memory, MiB | this / pstrain | to the first update, s | this / pstrain | accuracy | epochs |"
    )
    print("|---" * 14 + "|")
    for (kind, size, _), systems in runs.items():
        if kind not in KINDS:
            continue
        ours = reference(systems)
        # It is noted once for each batch, among the synchronous systems.
        loop = runs.get(("sync", size, None), {}).get(LOOP, {"per worker": [None]})
        for system, its in systems.items():
            cells = [
                size,
                KINDS[kind],
                system,
                number(median(its["updates/s"])),
                with_range(its["samples/s"]),
                ratio(ours["samples/s"], its["samples/s"]),
                number(median(its["per worker"])),
                ratio(its["per worker"], loop["per worker"]),
                number(median(its["memory"])),
                ratio(its["memory"], ours["memory"]),
                number(median(its["start"])),
                ratio(its["start"], ours["start"]),
                f"{median(its['accuracy']):.4f}",
                number(median(its["epochs"])),
            ]
            print(f"| {' | '.join(cells)} |")


def bytes_of(size):
    """Bytes of a vector of a size such as 16MB; 8KB stands for the 2,084 values of the reference model."""
    return 2084 * 4 if size == "8KB" else int(size[:-2]) * UNITS[size[-2:]]


def bytes_table(runs):
    print("| size | system | a second | GB/s each way | pstrain / this |")
    print("|---" * 5 + "|")
    for (kind, size, _), systems in runs.items():
        if kind != "bytes":
            continue
        ours = reference(systems)
        for system, its in systems.items():
            each_way = median(its["rate"]) * bytes_of(size) / 1e9
            cells = [size, system, with_range(its["rate"]), number(each_way), ratio(ours["rate"], its["rate"])]
            print(f"| {' | '.join(cells)} |")


def all_reduce_table(runs):
    print("| ranks | size | system | all-reduces/s | GB/s that a rank sends | best pstrain / this |")
    print("|---" * 6 + "|")
    for (kind, size, ranks), systems in runs.items():
        if kind != "all-reduce":
            continue
        ours = [its for system, its in systems.items() if system.startswith("pstrain")]
        best = max(ours, key=lambda its: median(its["rate"]))
        for system, its in systems.items():
            # Of a ring, halving-doubling with a power of two, and all-to-all.
            sent = median(its["rate"]) * bytes_of(size) * 2 * (ranks - 1) / ranks / 1e9
            cells = [str(ranks), size, system, with_range(its["rate"]), number(sent), ratio(best["rate"], its["rate"])]
            print(f"| {' | '.join(cells)} |")


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: table.py RUNS.jsonl")
    runs = read(sys.argv[1])
    tables = [(KINDS, job_table), (["bytes"], bytes_table), (["all-reduce"], all_reduce_table)]
    tables = [table for kinds, table in tables if any(kind in kinds for kind, _, _ in runs)]
    for number, table in enumerate(tables):
        if number > 0:
            print()
        table(runs)


if __name__ == "__main__":
    main()
