#!/usr/bin/env python3
"""How fast files become arrays: pstrain (read, encode, split, standardise) beside pandas and numpy, which only read. A
Markdown table. Build first: cargo build --profile dist -p pstrain-data --example loading"""

import argparse
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas


def best(work):
    """The shortest of three times, in seconds."""
    times = []
    for _ in range(3):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return min(times)


def table(folder, rows):
    random = np.random.default_rng(1)
    columns = {f"x{column}": random.normal(size=rows).round(5) for column in range(10)}
    columns["place"] = random.choice(["north", "south", "east", "west"], size=rows)
    columns["state"] = random.choice(["ok", "worn", "broken"], size=rows)
    file = folder / "table.csv"
    pandas.DataFrame(columns).to_csv(file, index=False)
    return "CSV, 10 numbers and 2 texts", f"csv:{file}", [file], lambda: pandas.read_csv(file)


def images(folder, rows):
    random = np.random.default_rng(2)
    files = [folder / "images", folder / "labels"]
    pixels = random.integers(256, size=(rows, 28, 28), dtype=np.uint8)
    labels = random.integers(10, size=rows, dtype=np.uint8)
    for file, values in zip(files, [pixels, labels]):
        header = bytes([0, 0, 8, values.ndim]) + np.array(values.shape, ">u4").tobytes()
        file.write_bytes(header + values.tobytes())

    def read():
        return np.fromfile(files[0], np.uint8, offset=16).reshape(-1, 784).astype(np.float32) / 255

    return "IDX, 28 x 28", f"idx:{files[0]},{files[1]}", files, read


def cifar(folder, rows):
    random = np.random.default_rng(3)
    files = [folder / f"data_batch_{batch}.bin" for batch in range(1, 6)]
    for file in files:
        records = random.integers(256, size=(rows // 5, 3073), dtype=np.uint8)
        records[:, 0] %= 10
        file.write_bytes(records.tobytes())
    (folder / "test_batch.bin").write_bytes(records[:100].tobytes())

    def read():
        parts = [np.fromfile(file, np.uint8).reshape(-1, 3073)[:, 1:] for file in files]
        return np.concatenate(parts).astype(np.float32) / 255

    return "CIFAR-10", f"cifar10:{folder}", files, read


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("loading", type=Path, help="the built example")
    parser.add_argument("--rows", type=int, default=2_000_000, help="of the table (default 2,000,000)")
    args = parser.parse_args()
    print("| file | MB | pstrain, into rows | pandas or numpy, into an array |")
    print("|---" * 4 + "|")
    for make, rows in [(table, args.rows), (images, 60_000), (cifar, 50_000)]:
        with tempfile.TemporaryDirectory() as name:
            title, data, files, read = make(Path(name), rows)
            size = sum(file.stat().st_size for file in files)
            ours = subprocess.run([args.loading, str(size), data], check=True, stdout=subprocess.PIPE, text=True)
            theirs = best(read)
            print(
                f"| {title} | {size / 1e6:.0f} | {ours.stdout.strip()} | {theirs:.3f} s, {size / theirs / 1e9:.3f} GB/s |",
                flush=True,
            )


if __name__ == "__main__":
    main()
