#!/usr/bin/env bash
# The image of deploy/Containerfile: built as a whole where its base image can be had, else its last stage around a
# static binary that is built here. A server and a worker in it, which are not root, come to the parameters of
# `pstrain run`; the key is root's, and readable by their group, as in a pod.
# Usage: tests/deploy/container.sh [PSTRAIN] [STATIC PSTRAIN]
set -euo pipefail
binary=${2:+$(realpath "$2")}
# shellcheck source=tests/deploy/common.sh
. "$(dirname "$0")/common.sh"

if ! has buildah || [ "$(id -u)" != 0 ]; then
    skip "container: needs buildah, and root"
    exit 0
fi
# No daemon, no namespaces, and nothing outside this folder.
buildah() { command buildah --root "$folder/store" --runroot "$folder/run" --storage-driver vfs "$@"; }

step "container image"
if buildah pull --quiet docker.io/library/rust:1-alpine >/dev/null 2>&1; then
    buildah build --isolation chroot --layers=false --tag pstrain --file "$checkout/deploy/Containerfile" "$checkout"
elif [ -n "$binary" ]; then
    skip "the image's own build: docker.io/library/rust:1-alpine is not to be had; only its last stage"
    mkdir -p context/pstrain/target/dist
    cp "$binary" context/pstrain/target/dist/pstrain
    sed -e '1,/^FROM scratch/ { /^FROM scratch/!d }' -e 's/--from=build //' "$checkout/deploy/Containerfile" >last
    buildah build --isolation chroot --tag pstrain --file last context
else
    skip "container: neither docker.io/library/rust:1-alpine nor a static binary"
    exit 0
fi
buildah inspect --type image --format '{{.OCIv1.Config.User}}' localhost/pstrain | grep -qx 65532:65532 || fail "it runs as root"

step "a run in containers"
mkdir shared shared/results
"$PSTRAIN" cert psk shared/key 2>/dev/null
chmod 440 shared/key
chown 0:65532 shared/key
chown 65532:65532 shared/results
container=$(buildah from localhost/pstrain)
inside() { buildah run --isolation chroot --volume "$folder/shared:/shared" "$container" -- /pstrain "$@"; }
inside server --listen 0.0.0.0:17072 --psk /shared/key --group-readable-key --workers 1 "${job[@]}" --out /shared/results/run &
inside worker --server localhost:17072 --psk /shared/key --group-readable-key --id 1 --data server &
wait
workers=1
same shared/results/run
