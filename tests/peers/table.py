#!/usr/bin/env python3
"""Turns the runs that compare.sh noted into a Markdown table: medians, ranges and ratios to pstrain over TCP."""

import json
import statistics
import sys
from collections import defaultdict

REFERENCE = "pstrain-tcp"


def figures(run):
    """The figures of one run; None for what its system does not report."""
    result = run["result"]
    updates_per_s = result.get("updates_per_s")
    return {
        "samples/s": result["samples_per_s"],
        "updates/s": result["updates"] / result["time_s"] if updates_per_s is None else updates_per_s,
        "epochs": result.get("epochs", run["epochs"]),
        "accuracy": result["accuracy"],
        # From outside, so that it means the same for all: start, loading, evaluation, shutdown.
        "rest": run["ended"] - run["started"] - result["time_s"],
        "memory": result.get("pss_mib") or result.get("peak_rss_mib"),
    }


def number(value):
    """Three significant digits, thousands separated."""
    if value is None:
        return "-"
    return f"{round(value):,}" if abs(value) >= 100 else f"{value:.3g}"


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: table.py RUNS.jsonl")
    runs = defaultdict(lambda: defaultdict(list))
    with open(sys.argv[1]) as file:
        for line_number, line in enumerate(file, 1):
            try:
                run = json.loads(line)
                for name, value in figures(run).items():
                    runs[run["batch"], run["system"]][name].append(value)
            except (ValueError, KeyError, TypeError) as error:
                sys.exit(f"{sys.argv[1]}, line {line_number}: not a run ({error!r}): {line.strip()}")

    print(
        f"| batch | system | samples/s (min - max) | to {REFERENCE} | updates/s"
        " | accuracy | epochs | rest of the command, s | memory, MiB |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for (batch, system), values in runs.items():
        middle = {name: None if None in column else statistics.median(column) for name, column in values.items()}
        rates = values["samples/s"]
        reference = runs[batch, REFERENCE]["samples/s"] if (batch, REFERENCE) in runs else None
        ratio = number(middle["samples/s"] / statistics.median(reference)) if reference else "-"
        print(
            f"| {batch} | {system} | {number(middle['samples/s'])} ({number(min(rates))} - {number(max(rates))})"
            f" | {ratio} | {number(middle['updates/s'])} | {middle['accuracy']:.4f} | {number(middle['epochs'])}"
            f" | {number(middle['rest'])} | {number(middle['memory'])} |"
        )


if __name__ == "__main__":
    main()
