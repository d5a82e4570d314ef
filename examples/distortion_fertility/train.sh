#!/usr/bin/env bash
# Train one system. Started again, it goes on where it stopped.
#   train.sh small|paper BIN OUT ARCH [fairseq-train options]
set -euo pipefail
if [ $# -lt 4 ]; then echo "usage: train.sh small|paper BIN OUT ARCH [fairseq-train options]" >&2; exit 2; fi
size=$1 data=$2 out=$3 arch=$4
shift 4
common=$(dirname "$0")/../common
case $size in
  small)
    source "$common/small.sh"
    small words "$arch" ;;
  paper)
    options=(--optimizer adagrad --lr 0.01 --sentence-avg --max-update 400000
             --validate-interval-updates 5000 --save-interval-updates 5000 --keep-interval-updates 1
             --eval-bleu --eval-tokenized-bleu --eval-bleu-args '{"beam": 12, "unnormalized": true}'
             --best-checkpoint-metric bleu --maximize-best-checkpoint-metric) ;;
  *) echo "train.sh: '$size' is neither small nor paper" >&2; exit 2 ;;
esac
"$common/train.sh" "$data" "$out" "$arch" --batch-size 80 "${options[@]}" "$@"
