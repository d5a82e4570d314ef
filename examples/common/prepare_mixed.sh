#!/usr/bin/env bash
# Subwords of the source and characters of the target for fairseq, for bpe2char.
#   prepare_mixed.sh BPE CHARACTERS OUT SOURCE TARGET
# BPE was made by prepare_bpe.sh and CHARACTERS by prepare_characters.sh, of the same texts. OUT is made in one go.
set -euo pipefail
if [ $# -ne 5 ]; then echo "usage: prepare_mixed.sh BPE CHARACTERS OUT SOURCE TARGET" >&2; exit 2; fi
bpe=$1 characters=$2 out=${3%/} source=$4 target=$5
if [ -e "$out" ]; then echo "$out is there and stays as it is"; exit; fi
rm -rf "$out.part"
mkdir -p "$out.part"
tests=()
for path in "$characters"/{train,valid,test*}."$target"; do
  split=${path##*/} split=${split%".$target"}
  cp "$path" "$out.part/"
  cp "$bpe/bpe.$split.$source" "$out.part/$split.$source"
  case $split in test*) tests+=("$out.part/$split") ;; esac
done
fairseq-preprocess --source-lang "$source" --target-lang "$target" --trainpref "$out.part/train" \
  --validpref "$out.part/valid" --testpref "$(IFS=,; echo "${tests[*]}")" --destdir "$out.part/bin" \
  --srcdict "$bpe/bin/dict.$source.txt" --user-dir "$(fairseq-attnvariants user-dir)" --task char_translation
mv "$out.part" "$out"
