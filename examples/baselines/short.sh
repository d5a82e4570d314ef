#!/usr/bin/env bash
# Train one system for a short time, at one rate. Started again, it goes on where it stopped.
#   short.sh BIN OUT ARCH [fairseq-train options]
set -euo pipefail
if [ $# -lt 3 ]; then echo "usage: short.sh BIN OUT ARCH [fairseq-train options]" >&2; exit 2; fi
data=$1 out=$2 arch=$3
shift 3
sizes=(--encoder-embed-dim 128 --decoder-embed-dim 128 --encoder-hidden-size 256 --decoder-hidden-size 256)
if [ "$arch" = lstm ]; then sizes+=(--encoder-bidirectional --decoder-out-embed-dim 128); fi
"$(dirname "$0")/../common/train.sh" "$data" "$out" --arch "$arch" "${sizes[@]}" --dropout 0.3 \
  --criterion label_smoothed_cross_entropy --label-smoothing 0.1 --optimizer adam --lr 1e-3 \
  --batch-size 80 --max-epoch 8 "$@"
