#!/usr/bin/env python3
"""What becomes of small data files that are odd: trained on, read by an option, or refused.

    tests/measure/cases.py FOLDER BINARY [BINARY]

FOLDER has tables (*.csv), LIBSVM files (s_*.svm), arrays (n_*.npy, n_*.npz), images (i_im*, i_la*)
and tables of several nodes (local/*/part-*.csv). Prints a line for each: the exit code and the
accuracy, or the first line of the error. Of two binaries, the lines that differ have both results.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

JOB = ["--epochs", "20", "--batch-size", "16", "--json", "--quiet"]
# Options that read a table as its author means it.
OPTIONS = {
    "decimal_comma.csv": ["decimal=comma"],
    "mixed.csv": ["na=abc", "one-hot=alpha", "drop=alpha"],
    "miss_09.csv": ["na=inf"],
    "miss_22.csv": ["na=--"],
    "num_nbsp.csv": ["thousands=space"],
    "num_under.csv": ["thousands=underscore"],
    "dates.csv": ["date=when", "drop=when", "one-hot=when"],
    "epoch_s.csv": ["date=ts"],
    "epoch_ms.csv": ["date=ts"],
    "lab_NA.csv": ["keep=NA"],
    "lab_none.csv": ["keep=None"],
    "label_first.csv": ["label=y"],
    "lab_cont.csv": ["target=y"],
    "headerless.csv": ["header=no"],
    "headerless_text.csv": ["header=no"],
    "comment_first.csv": ["comment=#"],
    "comment_mid.csv": ["comment=#"],
    "pipe.csv": ["delimiter=|"],
}
SECONDS = 120


def run(binary, folder, words):
    """Runs a command; returns its exit code and the accuracy, error or RMSE in words."""
    command = [str(Path(binary).resolve()), *words]
    try:
        ended = subprocess.run(
            command, cwd=folder, capture_output=True, timeout=SECONDS, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired:
        return "-", f"no end after {SECONDS} s"
    said = {"warning": [], "error": ["(nothing)"]}
    for line in ended.stderr.decode(errors="replace").splitlines():
        try:
            line = json.loads(line)
        except ValueError:
            continue
        said.setdefault(line.get("level"), []).append(line.get("message", "").splitlines()[0])
    if ended.returncode:
        return ended.returncode, said["error"][-1]
    try:
        found = json.loads(ended.stdout)
    except ValueError:
        return 0, "done"
    if found.get("accuracy") is not None:
        told = f"{100 * found['accuracy']:.2f} %, {len(found.get('recall', {}))} classes"
    elif found.get("rmse") is not None:
        told = f"RMSE {found['rmse']:.4f}"
    else:
        told = "no figure"
    return 0, "; ".join([told, *said["warning"]])


def job(data, *more, model="softmax"):
    words = ["run", "--data", data, "--model", model, *JOB, *more]
    # A number to predict has another model and another step.
    if "target=" in data:
        words[words.index("--model") + 1] = "linear"
    return words


def inputs(folder):
    """Iterates over the name of each case and its commands, of which the last one counts."""
    names = sorted(path.name for path in folder.iterdir() if path.is_file())

    def those(begin, end=""):
        return [name for name in names if name.startswith(begin) and name.endswith(end)]

    for name in those("", ".csv"):
        if name.startswith("code_"):
            continue
        for option in ["", *OPTIONS.get(name, [])]:
            data = f"csv:{name}" + (f",{option}" if option else "")
            yield data, [job(data)]
    for test in those("code_test", ".csv"):
        train = "csv:code_train_txt.csv"
        if test.split("_")[2] in ("int.csv", "float.csv", "zero.csv"):
            train = "csv:code_train_int.csv,one-hot=kind"
        yield f"{train} on {test}", [job(train, "--evaluation-data", f"csv:{test}")]
    for name in those("s_", ".svm"):
        yield f"libsvm:{name}", [job(f"libsvm:{name}", model="linear")]
    for name in those("n_x", ".npy"):
        yield f"npy:{name},n_y.npy", [job(f"npy:{name},n_y.npy")]
    for name in those("n_y", ".npy"):
        yield f"npy:n_x.npy,{name}", [job(f"npy:n_x.npy,{name}")]
    for name in those("n_", ".npz"):
        yield f"npz:{name}", [job(f"npz:{name}")]
    for name in those("i_im"):
        yield f"idx:{name},i_la", [job(f"idx:{name},i_la")]
    for name in those("i_la"):
        yield f"idx:i_im.gz,{name}", [job(f"idx:i_im.gz,{name}")]
    for path in sorted(folder.glob("local/*")):
        parts = sorted(part.relative_to(folder) for part in path.glob("part-*.csv"))
        yield f"{path.relative_to(folder)} by merged profiles", parts, path.relative_to(folder)


def result(binary, folder, case):
    name, commands, *node = case
    if not node:
        return run(binary, folder, commands[-1])
    with tempfile.TemporaryDirectory() as scratch:
        profiles = []
        for number, part in enumerate(commands):
            written = subprocess.run(
                [str(Path(binary).resolve()), "data", "profile", f"csv:{part}"],
                cwd=folder, capture_output=True, check=False,
            )
            profile = Path(scratch) / f"{number}.toml"
            profile.write_bytes(written.stdout)
            profiles.append(str(profile))
        merged = subprocess.run(
            [str(Path(binary).resolve()), "data", "profile", *profiles],
            cwd=folder, capture_output=True, text=True, check=False,
        )
        if merged.returncode:
            told = merged.stderr.replace(scratch, "").strip().splitlines()
            return merged.returncode, told[0].removeprefix("pstrain: ")
        profile = Path(scratch) / "all.toml"
        profile.write_text(merged.stdout)
        data = f"csv:{node[0]}/part-{{worker}}.csv,profile={profile}"
        test = ["--partition", "local", "--evaluation-data", f"csv:{node[0]}/test.csv"]
        code, told = run(binary, folder, job(data, *test))
        return code, told.replace(scratch, "")


def main():
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__.strip())
    folder, binaries = Path(sys.argv[1]).resolve(), sys.argv[2:]
    print("| input | exit code | result |\n|---|---|---|")
    changed = count = 0
    for case in inputs(folder):
        found = [result(binary, folder, case) for binary in binaries]
        count += 1
        changed += len(set(found)) > 1
        for number, (code, told) in enumerate(dict.fromkeys(found)):
            told = told.replace("|", "\\|")[:300]
            name = f"`{case[0]}`" if number == 0 else "now"
            print(f"| {name} | {code} | {told} |", flush=True)
    print(f"\n{count} inputs" + (f", {changed} with another result" if binaries[1:] else ""))


if __name__ == "__main__":
    main()
