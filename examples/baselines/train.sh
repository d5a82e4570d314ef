#!/usr/bin/env bash
# Train one system with a full schedule. Run it again to continue.
#   train.sh BIN OUT ARCH [fairseq-train options]
# BIN has one dictionary for both languages (JOINED=yes prepare_bpe.sh). UPDATES=2000 in the environment changes the number of
# updates, 7264. The best checkpoint is the one with the highest greedy BLEU after an epoch.
set -euo pipefail
if [ $# -lt 3 ]; then echo "usage: train.sh BIN OUT ARCH [fairseq-train options]" >&2; exit 2; fi
data=$1 out=$2 arch=$3
shift 3
export UPDATES=${UPDATES:-7264}
"$(dirname "$0")/short.sh" "$data" "$out" "$arch" --share-all-embeddings --lr 3e-3 --batch-size 64 \
  --eval-bleu --eval-bleu-remove-bpe --eval-tokenized-bleu --eval-bleu-args '{"beam": 1, "max_len_a": 2, "max_len_b": 10}' \
  --best-checkpoint-metric bleu --maximize-best-checkpoint-metric "$@"
