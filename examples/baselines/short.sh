#!/usr/bin/env bash
# Train one system for a short time: eight epochs at one rate or, with UPDATES=2000 in the environment, so many updates
# during which the rate falls to 0, after 300 in which it rises. Started again, it goes on where it stopped.
#   short.sh BIN OUT ARCH [fairseq-train options]
set -euo pipefail
if [ $# -lt 3 ]; then echo "usage: short.sh BIN OUT ARCH [fairseq-train options]" >&2; exit 2; fi
data=$1 out=$2 arch=$3
shift 3
sizes=(--encoder-embed-dim 128 --decoder-embed-dim 128 --encoder-hidden-size 256 --decoder-hidden-size 256)
if [ "$arch" = lstm ]; then sizes+=(--encoder-bidirectional --decoder-out-embed-dim 128); fi
length=(--max-epoch 8)
if [ "${UPDATES-}" ]; then
  length=(--lr-scheduler polynomial_decay --warmup-updates 300 --total-num-update "$UPDATES" --max-update "$UPDATES")
fi
"$(dirname "$0")/../common/train.sh" "$data" "$out" "$arch" "${sizes[@]}" --dropout 0.3 --label-smoothing 0.1 \
  --optimizer adam --lr 1e-3 --batch-size 80 "${length[@]}" "$@"
