#!/usr/bin/env python3
"""Turns an NSL-KDD file into the 93 inputs and 5 classes of the reference task, as an .npz.

Reads the original files (43 columns, no header; plain, .gz or .xz) and the CSV of
`pstrain data synth --out`, which has the same columns.
"""

import argparse
import gzip
import lzma
import sys

import numpy as np

CLASSES = ("Normal", "DoS", "Probe", "R2L", "U2R")

# Every attack of the training and the test files, by the class whose counts are the published ones.
ATTACKS = {
    "Normal": "normal",
    "DoS": "apache2 back land mailbomb neptune pod processtable smurf teardrop udpstorm",
    "Probe": "ipsweep mscan nmap portsweep saint satan",
    "R2L": "ftp_write guess_passwd imap multihop named phf sendmail snmpgetattack snmpguess spy"
    " warezclient warezmaster worm xlock xsnoop",
    "U2R": "buffer_overflow httptunnel loadmodule perl ps rootkit sqlattack xterm",
}
CLASS_OF_ATTACK = {
    attack: CLASSES.index(name) for name, attacks in ATTACKS.items() for attack in attacks.split()
}

# Input order: these numeric columns (name: position in the file) come first, then the one-hot ones.
NUMERIC = {
    "count": 22,
    "logged_in": 11,
    "srv_serror_rate": 25,
    "serror_rate": 24,
    "dst_host_serror_rate": 37,
    "dst_host_same_srv_rate": 33,
    "dst_host_srv_serror_rate": 38,
    "dst_host_srv_count": 32,
    "same_srv_rate": 28,
}

# Written out, not collected from the file: a sample that lacks a service still has 93 inputs.
PROTOCOLS = "icmp tcp udp".split()
SERVICES = (
    "IRC X11 Z39_50 aol auth bgp courier csnet_ns ctf daytime discard domain domain_u echo eco_i"
    " ecr_i efs exec finger ftp ftp_data gopher harvest hostnames http http_2784 http_443 http_8001"
    " imap4 iso_tsap klogin kshell ldap link login mtp name netbios_dgm netbios_ns netbios_ssn"
    " netstat nnsp nntp ntp_u other pm_dump pop_2 pop_3 printer private red_i remote_job rje shell"
    " smtp sql_net ssh sunrpc supdup systat telnet tftp_u tim_i time urh_i urp_i uucp uucp_path"
    " vmnet whois"
).split()
FLAGS = "OTH REJ RSTO RSTOS0 RSTR S0 S1 S2 S3 SF SH".split()
ONE_HOT = {"protocol_type": (1, PROTOCOLS), "service": (2, SERVICES), "flag": (3, FLAGS)}

COLUMNS = 43
LABEL = 41


def read_rows(path):
    openers = {"gz": gzip.open, "xz": lzma.open}
    with openers.get(path.rsplit(".", 1)[-1], open)(path, "rt") as file:
        rows = [line.strip().split(",") for line in file if line.strip()]
    for number, row in enumerate(rows, 1):
        if len(row) != COLUMNS:
            sys.exit(f"{path}: record {number} has {len(row)} columns, an NSL-KDD record has {COLUMNS}")
    if not rows:
        sys.exit(f"{path}: no records")
    return rows


def codes(rows, column, table, what):
    """The number that `table` gives to each row's value."""
    try:
        return np.array([table[row[column]] for row in rows])
    except KeyError as error:
        sys.exit(f"unknown {what} {error}: not an NSL-KDD file?")


def encode(rows):
    numeric = np.array([[row[column] for column in NUMERIC.values()] for row in rows], dtype=np.float64)
    blocks = [numeric]
    for what, (column, values) in ONE_HOT.items():
        positions = codes(rows, column, {value: i for i, value in enumerate(values)}, what)
        blocks.append(np.eye(len(values))[positions])
    return np.hstack(blocks), codes(rows, LABEL, CLASS_OF_ATTACK, "attack")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", help="NSL-KDD records: .txt or .csv, .gz, .xz")
    parser.add_argument("npz", help="where to write the prepared arrays")
    parser.add_argument("--seed", type=int, default=1, help="of the split (default 1)")
    args = parser.parse_args()

    inputs, classes = encode(read_rows(args.file))
    # Shuffled once here, so that any stride over the training part is an IID partition of it.
    order = np.random.default_rng(args.seed).permutation(len(classes))
    inputs, classes = inputs[order], classes[order]
    train = round(len(classes) * 0.75)

    # Fitted on the training part alone: nothing about the held-out quarter may reach the model.
    numeric = slice(0, len(NUMERIC))
    mean = inputs[:train, numeric].mean(axis=0)
    deviation = inputs[:train, numeric].std(axis=0)
    inputs[:, numeric] = (inputs[:, numeric] - mean) / np.where(deviation > 0, deviation, 1)

    inputs, classes = inputs.astype(np.float32), classes.astype(np.int64)
    # Through a file handle, because numpy appends .npz to a name without it.
    with open(args.npz, "wb") as file:
        np.savez(
            file,
            train_inputs=inputs[:train],
            train_classes=classes[:train],
            test_inputs=inputs[train:],
            test_classes=classes[train:],
        )
    counts = dict(zip(CLASSES, np.bincount(classes, minlength=len(CLASSES)).tolist()))
    held_out = len(classes) - train
    print(f"{train} training and {held_out} held-out records, {inputs.shape[1]} inputs, {counts}", file=sys.stderr)


if __name__ == "__main__":
    main()
