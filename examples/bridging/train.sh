#!/usr/bin/env bash
# Train one system. Run it again to continue.
#   train.sh small|paper BIN OUT ARCH [fairseq-train options]
# bridge_direct starts from a trained rnnsearch_star: give --warm-start CHECKPOINT.
set -euo pipefail
if [ $# -lt 4 ]; then echo "usage: train.sh small|paper BIN OUT ARCH [fairseq-train options]" >&2; exit 2; fi
size=$1 data=$2 out=$3 arch=$4
shift 4
common=$(dirname "$0")/../common
source "$common/small.sh"
case $size in
  small) small words "$arch" ;;
  paper)
    paper 10
    options+=(--optimizer adadelta --lr 1.0 --adadelta-rho 0.95 --adadelta-eps 1e-6 --patience 10) ;;
  *) echo "train.sh: '$size' is neither small nor paper" >&2; exit 2 ;;
esac
"$common/train.sh" "$data" "$out" "$arch" "${options[@]}" "$@"
