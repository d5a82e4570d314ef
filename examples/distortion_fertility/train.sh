#!/usr/bin/env bash
# Train one system. Run it again to continue.
#   train.sh small|paper BIN OUT ARCH [fairseq-train options]
set -euo pipefail
if [ $# -lt 4 ]; then echo "usage: train.sh small|paper BIN OUT ARCH [fairseq-train options]" >&2; exit 2; fi
size=$1 data=$2 out=$3 arch=$4
shift 4
common=$(dirname "$0")/../common
source "$common/small.sh"
case $size in
  small) small words "$arch" ;;
  paper)
    paper 12
    options+=(--optimizer adagrad --lr 0.01 --max-update 400000) ;;
  *) echo "train.sh: '$size' is neither small nor paper" >&2; exit 2 ;;
esac
"$common/train.sh" "$data" "$out" "$arch" "${options[@]}" "$@"
