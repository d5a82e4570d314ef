#!/usr/bin/env bash
# Train one system for a short time: eight epochs with a constant learning rate. With UPDATES=2000 in the environment it trains for
# 2,000 updates: the learning rate rises in the first 300 and then falls to 0. Run it again to continue.
#   short.sh BIN OUT ARCH [fairseq-train options]
set -euo pipefail
if [ $# -lt 3 ]; then echo "usage: short.sh BIN OUT ARCH [fairseq-train options]" >&2; exit 2; fi
data=$1 out=$2 arch=$3
shift 3
common=$(dirname "$0")/../common
source "$common/small.sh"
small subwords "$arch"
if [ "${UPDATES-}" ]; then
  options+=(--lr-scheduler polynomial_decay --warmup-updates 300 --total-num-update "$UPDATES" --max-update "$UPDATES"
            --max-epoch 0)
fi
"$common/train.sh" "$data" "$out" "$arch" "${options[@]}" "$@"
