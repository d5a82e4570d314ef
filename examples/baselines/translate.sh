#!/usr/bin/env bash
# Translate with one model or an ensemble, and score the result. The beam is 5; a translation has at most twice the source's
# subwords, and ten more.
#   translate.sh PREPARED OUT TARGET PATH
# PREPARED  English and TARGET, made by ../common/prepare_bpe.sh
# PATH      a checkpoint, or several with colons between them
# OUT       gets valid.csv (the validation set's BLEU with several length penalties), test.txt and test.scores
# Set in the environment:
#   LENPEN=1.2    another length penalty than fairseq's 1
#   SUBSET=train  translate another text than test; SUBSET=valid makes only valid.csv
#   TUNE=no       make no valid.csv, if PREPARED has no validation set (../common/prepare_test.sh)
set -euo pipefail
if [ $# -ne 4 ]; then echo "usage: translate.sh PREPARED OUT TARGET PATH" >&2; exit 2; fi
prepared=$1 out=$2 target=$3 path=$4
limits=(--beam 5 --max-len-a 2 --max-len-b 10)
mkdir -p "$out"
IFS=: read -ra models <<< "$path"
tuned=yes # yes if valid.csv is newer than all models
for model in "${models[@]}"; do [ "$out/valid.csv" -nt "$model" ] || tuned=no; done
if [ "${SUBSET:-test}" != train ] && [ "${TUNE-}" != no ] && [ "$tuned" = no ]; then
  fairseq-attnvariants tune "$prepared/bin" ${USER_DIR:+--user-dir "$USER_DIR"} --path "$path" --gen-subset valid \
    --remove-bpe "${limits[@]}" \
    --coverage-penalty 0 --lenpen 0.4 0.6 0.8 1.0 1.2 1.4 1.6 1.8 --table "$out/valid.csv"
fi
if [ "${SUBSET-}" = valid ]; then cat "$out/valid.csv"; exit; fi
"$(dirname "$0")/../common/evaluate.sh" bpe "$prepared" "$out" en "$target" "${limits[@]}" --path "$path" \
  --lenpen "${LENPEN:-1}"
