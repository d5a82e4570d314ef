#!/usr/bin/env bash
# Measure one processor's figures for README.md on one core, and write each output to a file in OUT. Run it again to continue.
#   all.sh DATA TABLE OUT
# DATA    FOLDER/bin, made by TEST=test_2016_flickr MERGES=10000 JOINED=yes ../examples/common/prepare_bpe.sh small TEXT FOLDER en de
# TABLE   made by fairseq-attnvariants lexicon FOLDER/bpe.train.en FOLDER/bpe.train.de --candidates 100
set -euo pipefail
if [ $# -ne 3 ]; then echo "usage: all.sh DATA TABLE OUT" >&2; exit 2; fi
data=$(realpath "$1") table=$(realpath "$2")
mkdir -p "$3"
out=$(cd "$3" && pwd)
cd "$(dirname "$0")"
source ../examples/common/settings.sh
same_settings "$out" "DATA=$data TABLE=$table$(lscpu | sed -n 's/^Model name: */ /p')" "has figures" OUT
export OMP_NUM_THREADS=1

figure() {  # figure NAME PROGRAM [options]
  if [ ! -e "$out/$1.txt" ]; then
    echo "$1" >&2
    python "${@:2}" > "$out/part" 2> "$out/log" || { tail -n 5 "$out/log" >&2; exit 1; }
    mv "$out/part" "$out/$1.txt"
  fi
}

paper=(--paper-size --length 25 --cpu-time --rounds 3)
lscpu > "$out/processor.txt"
figure search search.py "$data" --shortlist "$table" --batch 40 --rounds 5 --cpu-time --ways lstm lstm+list rnnsearch \
  rnnsearch+list dl4mt dl4mt+list
figure search-paper search.py "${paper[@]}" --batch 20 --ways lstm rnnsearch rnnsearch+list dl4mt dl4mt+list
figure speed speed.py "$data" --cpu-time --rounds 5 --batches 1
figure speed-paper speed.py "${paper[@]}" --batches 1 --train-only --archs rnnsearch dl4mt
figure speed-12 speed.py "$data" --cpu-time --rounds 3 --batches 1 --beam 12 --archs rnnsearch dl4mt
figure speed-characters speed.py --characters --cpu-time --embed 64 --hidden 256 --length 65 --batches 1 --rounds 3 \
  --train-only --archs ava --more "lstm=--decoder-out-embed-dim 128" \
  --more "ava=--encoder-char-hidden-size 128 --attention-dim 128 --attention-via-dim 64 --decoder-out-embed-dim 128"
figure ablation ablation.py --cpu-time --rounds 5 --batches 1 --length 15 --archs rnnsearch dl4mt recatt adaptive_both
figure ablation-characters ablation.py --cpu-time --rounds 3 --batches 1 --train-only --characters --length 65 --archs ava
figure floor floor.py "$data" --cpu-time --rounds 3 --batches 1 --archs rnnsearch recatt dl4mt adaptive_both
figure memory memory.py --lengths 300
figure memory-recomputed memory.py --lengths 300 --flags "--recompute-steps 20"
figure floor-paper floor.py "${paper[@]}" --batches 1 --archs rnnsearch dl4mt
figure growth growth.py --archs rnnsearch dl4mt ava lstm --source 10 20 40 80 --target 10 20 40 80 --batch 20 40 80 160 \
  --middle 20 20 40 256 --rounds 2 --plot "$out/growth.png"
