#!/usr/bin/env bash
# Parallel text, cut into words -> binarised for fairseq, and the word table for UNKs.
#   prepare.sh small CORPUS OUT SOURCE TARGET     lowercased, words seen at least 3 times
#   prepare.sh paper CORPUS OUT SOURCE TARGET     the 30,000 most frequent words a side, sentences of up to 50 words
# CORPUS holds train.SOURCE, train.TARGET, the same for val and test; TRAIN, VALID and TEST in the environment
# name other files, as in TEST=test_2016_flickr.  Needs the extra "align" (eflomal).
set -euo pipefail
size=$1 corpus=$2 out=$3 source=$4 target=$5
train=${TRAIN:-train} valid=${VALID:-val} test=${TEST:-test}
mkdir -p "$out"

case $size in
  small) vocabulary=(--thresholdsrc 3 --thresholdtgt 3) longest=100 lower='print(line.lower(), end="")' ;;
  paper) vocabulary=(--nwordssrc 30000 --nwordstgt 30000) longest=50 lower='print(line, end="")' ;;
  *) echo "prepare.sh: '$size' is neither small nor paper" >&2; exit 2 ;;
esac
for language in "$source" "$target"; do
  for split in train valid test; do
    PYTHONIOENCODING=utf-8 python -c "for line in open('$corpus/${!split}.$language', encoding='utf-8', newline='\n'): $lower" \
      > "$out/$split.$language"
  done
done
# only training pairs whose sides both have 1 to $longest words
paste -d '\t' "$out/train.$source" "$out/train.$target" | awk -F '\t' -v most="$longest" -v out="$out" \
  -v source="$source" -v target="$target" '
  { s = split($1, _, / +/); t = split($2, _, / +/) }
  s && t && s <= most && t <= most { print $1 > (out "/short." source); print $2 > (out "/short." target) }'

fairseq-preprocess --source-lang "$source" --target-lang "$target" --trainpref "$out/short" --validpref "$out/valid" \
  --testpref "$out/test" --destdir "$out/bin" --workers 2 "${vocabulary[@]}"
fairseq-attnvariants lexicon "$out/short.$source" "$out/short.$target" --output "$out/lexicon.tsv" \
  --save-alignments "$out/short.align"
