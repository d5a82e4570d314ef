#!/usr/bin/env bash
# Translate the test set and score it before and after the UNKs are replaced.
#   evaluate.sh PREPARED OUT SOURCE TARGET
# PREPARED was written by prepare.sh, OUT by train.sh.
set -euo pipefail
prepared=$1 out=$2 source=$3 target=$4
fairseq-generate "$prepared/bin" --user-dir "$(fairseq-attnvariants user-dir)" --path "$out/checkpoint_best.pt" \
  --gen-subset test --beam 12 --batch-size 40 --print-alignment > "$out/generated.txt"
grep ^H- "$out/generated.txt" | sort -V | cut -f 3 > "$out/before.txt"
fairseq-attnvariants replace-unk "$out/generated.txt" --source "$prepared/test.$source" \
  --lexicon "$prepared/lexicon.tsv" --output "$out/after.txt"
for text in before after; do
  sacrebleu "$prepared/test.$target" -i "$out/$text.txt" -m bleu chrf ter -w 2 --force --tokenize none > "$out/$text.json"
done
python - "$out" <<'PYTHON'
import json, sys
scores = {text: json.load(open(f"{sys.argv[1]}/{text}.json")) for text in ("before", "after")}
(bleu, *_), (after, chrf, ter) = scores["before"], scores["after"]
print(f"BLEU {bleu['score']:.2f}, after UNK replacement {after['score']:.2f} "
      f"({after['score'] - bleu['score']:+.2f}), chrF2 {chrf['score']:.2f}, TER {ter['score']:.2f}")
PYTHON
