#!/usr/bin/env bash
# Train one system of the table and translate the test set.  Started again, it goes on where it stopped.
#   train.sh BIN OUT ARCH [fairseq-train options]
set -euo pipefail
data=$1 out=$2 arch=$3
shift 3
mkdir -p "$out"
if [ "$arch" = lstm ]; then
  sizes=(--encoder-bidirectional --encoder-embed-dim 128 --decoder-embed-dim 128 --encoder-hidden-size 256
         --decoder-hidden-size 256 --decoder-out-embed-dim 128)
else
  sizes=(--encoder-embed-dim 128 --decoder-embed-dim 128 --encoder-hidden-size 256 --decoder-hidden-size 256)
fi
fairseq-train "$data" --user-dir "$(fairseq-attnvariants user-dir)" --arch "$arch" "${sizes[@]}" --dropout 0.3 \
  --criterion label_smoothed_cross_entropy --label-smoothing 0.1 \
  --optimizer adam --lr 1e-3 --clip-norm 1.0 --batch-size 80 --max-epoch 8 --seed 1 \
  --save-dir "$out" --no-epoch-checkpoints --log-format simple --log-interval 100 "$@" 2>&1 | tee -a "$out/train.log"
fairseq-generate "$data" --user-dir "$(fairseq-attnvariants user-dir)" --path "$out/checkpoint_best.pt" \
  --gen-subset test --beam 5 --batch-size 100 --remove-bpe > "$out/generate.txt"
grep ^H- "$out/generate.txt" | sort -V | cut -f3 > "$out/hypotheses.txt"
grep ^T- "$out/generate.txt" | sort -V | cut -f2 > "$out/references.txt"
sacrebleu "$out/references.txt" -i "$out/hypotheses.txt" -m bleu chrf ter --tokenize none | tee "$out/scores.json"
