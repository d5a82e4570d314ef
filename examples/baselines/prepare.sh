#!/usr/bin/env bash
# Tokenised parallel text -> lowercased, joint BPE, binarised for fairseq.
#   prepare.sh TEXT OUT [MERGES]
# TEXT holds train.en train.de val.en val.de test_2016_flickr.en test_2016_flickr.de, tokenised
# (Multi30k task 1: https://github.com/multi30k/dataset).
set -euo pipefail
text=$1 out=$2 merges=${3:-4000}
mkdir -p "$out"
for split in train val test_2016_flickr; do
  for language in en de; do
    python -c 'import sys; sys.stdout.writelines(line.lower() for line in open(sys.argv[1], encoding="utf-8"))' \
      "$text/$split.$language" > "$out/$split.$language"
  done
done
subword-nmt learn-joint-bpe-and-vocab --input "$out/train.en" "$out/train.de" -s "$merges" \
  -o "$out/codes" --write-vocabulary "$out/vocab.en" "$out/vocab.de"
for split in train val test_2016_flickr; do
  for language in en de; do
    subword-nmt apply-bpe -c "$out/codes" --vocabulary "$out/vocab.$language" --vocabulary-threshold 1 \
      < "$out/$split.$language" > "$out/bpe.$split.$language"
  done
done
fairseq-preprocess --source-lang en --target-lang de --trainpref "$out/bpe.train" --validpref "$out/bpe.val" \
  --testpref "$out/bpe.test_2016_flickr" --destdir "$out/bin" --workers 2
