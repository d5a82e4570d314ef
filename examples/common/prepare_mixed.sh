#!/usr/bin/env bash
# Make data for bpe2char: subwords of the source and characters of the target.
#   prepare_mixed.sh BPE CHARACTERS OUT SOURCE TARGET
# BPE was made by prepare_bpe.sh and CHARACTERS by prepare_characters.sh, from the same text. OUT appears when it is complete.
set -euo pipefail
if [ $# -ne 5 ]; then echo "usage: prepare_mixed.sh BPE CHARACTERS OUT SOURCE TARGET" >&2; exit 2; fi
bpe=$1 characters=$2 out=${3%/} source=$4 target=$5
source "$(dirname "$0")/lock.sh"
source "$(dirname "$0")/settings.sh"
lock "$(dirname "$out")"
kept_text "$out" "$source-$target" "$bpe/bpe.train.$source" "$characters/train.$target"
tests=()
readarray -t paths < <(printf '%s\n' "$characters"/{train,valid,test*}."$target" | LC_ALL=C sort -V) # test2 before test10
for path in "${paths[@]}"; do
  split=${path##*/} split=${split%".$target"}
  for file in "$path" "$path"[1-9]; do [ ! -e "$file" ] || cp "$file" "$out.part/"; done # and further references
  cp "$bpe/bpe.$split.$source" "$out.part/$split.$source"
  if [ "$(wc -l < "$path")" != "$(wc -l < "$out.part/$split.$source")" ]; then
    echo "prepare_mixed.sh: $split has other sentences in $bpe than in $characters: prepare both as small" >&2; exit 2
  fi
  case $split in test*) tests+=("$out.part/$split") ;; esac
done
fairseq-preprocess --source-lang "$source" --target-lang "$target" --trainpref "$out.part/train" \
  --validpref "$out.part/valid" --testpref "$(IFS=,; echo "${tests[*]}")" --destdir "$out.part/bin" \
  --srcdict "$bpe/bin/dict.$source.txt" --user-dir "$(fairseq-attnvariants user-dir)" --task char_translation
mv "$out.part" "$out"
