#!/usr/bin/env bash
# Train one system until more would bring little. Started again, it goes on where it stopped.
#   train.sh BIN OUT ARCH [fairseq-train options]
# BIN has one dictionary for both languages (JOINED=yes prepare_bpe.sh). UPDATES=7264 in the environment says how many,
# during which the rate falls from --lr to 0. The best checkpoint is the one with the best greedy BLEU after an epoch.
set -euo pipefail
if [ $# -lt 3 ]; then echo "usage: train.sh BIN OUT ARCH [fairseq-train options]" >&2; exit 2; fi
data=$1 out=$2 arch=$3 updates=${UPDATES:-7264}
shift 3
options=()
if [ "$arch" != lstm ]; then options+=(--init-std 0.1); fi
"$(dirname "$0")/short.sh" "$data" "$out" "$arch" "${options[@]}" --share-all-embeddings --lr 3e-3 --batch-size 64 \
  --lr-scheduler polynomial_decay --warmup-updates 300 --total-num-update "$updates" --max-update "$updates" \
  --max-epoch 0 --eval-bleu --eval-bleu-remove-bpe --eval-tokenized-bleu --eval-bleu-args '{"beam": 1}' \
  --best-checkpoint-metric bleu --maximize-best-checkpoint-metric "$@"
