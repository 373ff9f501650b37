#!/usr/bin/env bash
# deploy/kubernetes.yaml: its objects are what Kubernetes takes, by the schemas that come with the Python package
# kubernetes-validate; and the commands of its containers, run here, come to the parameters of `pstrain run`.
# Usage: tests/deploy/kubernetes.sh [PSTRAIN]
# PYTHON: a Python that has kubernetes-validate [python3]
set -euo pipefail
# shellcheck source=tests/deploy/common.sh
. "$(dirname "$0")/common.sh"

manifest=$checkout/deploy/kubernetes.yaml
python=${PYTHON:-python3}
if ! "$python" -c 'import kubernetes_validate, yaml' 2>/dev/null; then
    skip "Kubernetes: $python has no kubernetes-validate; pip install kubernetes-validate, and set PYTHON"
    exit 0
fi

step "Kubernetes: schemas"
"$python" -m kubernetes_validate --strict "$manifest"
sed 's/completionMode/completionmode/' "$manifest" >wrong.yaml
if "$python" -m kubernetes_validate --strict --quiet wrong.yaml >/dev/null 2>&1; then
    fail "the validation takes a field that does not exist"
fi

step "Kubernetes: what the containers run"
"$python" - "$manifest" <<'EOF'
import json, pathlib, sys, yaml
objects = {(o["kind"], o["metadata"]["name"]): o for o in yaml.safe_load_all(open(sys.argv[1]))}
for name in ["pstrain-server", "pstrain-worker"]:
    container = objects["Job", name]["spec"]["template"]["spec"]["containers"][0]
    pathlib.Path(name).write_text("\n".join(container["args"]) + "\n")
job = objects["ConfigMap", "pstrain"]["data"]["job.toml"]
pathlib.Path("job.toml").write_text(job)
workers = objects["Job", "pstrain-worker"]["spec"]
assert f"workers = {workers['completions']}" in job, "completions are not the job's workers"
assert workers["parallelism"] == workers["completions"], "all workers must be there at once"
pathlib.Path("workers").write_text(str(workers["completions"]))
EOF
"$PSTRAIN" cert psk key 2>/dev/null
# here NAME: the arguments of a container, with this folder's files and this machine's address
here() { sed -e "s|/key/key|key|; s|/job/||; s|/results/||; s|0\.0\.0\.0:7070|127.0.0.1:17071|; s|pstrain-server:7070|127.0.0.1:17071|" "$1"; }
mapfile -t server < <(here pstrain-server)
mapfile -t worker < <(here pstrain-worker)
workers=$(cat workers)
"$PSTRAIN" "${server[@]}" &
for index in $(seq 0 $((workers - 1))); do
    JOB_COMPLETION_INDEX=$index "$PSTRAIN" "${worker[@]}" &
done
wait
job=(--job job.toml)
same run
