#!/usr/bin/env bash
# Train one system. Run it again to continue.
#   train.sh small|en-de|zh-en BIN OUT ARCH [fairseq-train options]
# small has the options of ../common/small.sh; en-de and zh-en are the paper's two settings.
set -euo pipefail
if [ $# -lt 4 ]; then echo "usage: train.sh small|en-de|zh-en BIN OUT ARCH [fairseq-train options]" >&2; exit 2; fi
size=$1 data=$2 out=$3 arch=$4
shift 4
examples=$(dirname "$0")/..
source "$examples/common/small.sh"
case $size in
  small) exec "$examples/baselines/short.sh" "$data" "$out" "$arch" "$@" ;;
  en-de) paper; options+=(--max-update 600000) ;;
  zh-en) paper 10; options+=(--max-update 150000) ;;
  *) echo "train.sh: '$size' is none of small, en-de and zh-en" >&2; exit 2 ;;
esac
"$examples/common/train.sh" "$data" "$out" "$arch" --criterion cross_entropy --optimizer adam --lr 2e-4 --weight-decay 1e-6 \
  "${options[@]}" "$@"
