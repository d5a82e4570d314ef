#!/usr/bin/env bash
# Make a model of one direction to ship: prepare the corpus, train, average, export, score. Run it again to continue.
#   train.sh CORPUS OUT SOURCE TARGET [fairseq-train options]
# CORPUS  made by fetch.sh. SOURCE and TARGET are ja and en, or en and ja
# OUT     gets SOURCE-TARGET/ with text/, the checkpoints and average.pt, package/ (the model to ship) and scores
# Set in the environment:
#   UPDATES=4000  length of the training
#   LENPEN=1      length penalty
#   PAGE=yes      add the page, which needs onnxruntime-web (npm install onnxruntime-web --ignore-scripts)
# To export with other settings, remove package/ first.
set -euo pipefail
if [ $# -lt 4 ]; then echo "usage: train.sh CORPUS OUT SOURCE TARGET [fairseq-train options]" >&2; exit 2; fi
corpus=$1 out=$2/$3-$4 source=$3 target=$4 here=$(dirname "$0")
shift 4
export UPDATES=${UPDATES:-4000} OMP_NUM_THREADS=1
case "$source $target" in "ja en" | "en ja") ;; *) echo "train.sh: not 'ja en' or 'en ja': $source $target" >&2; exit 2 ;; esac
if [[ ! $UPDATES =~ ^[0-9]+$ || $UPDATES -lt 24 ]]; then
  echo "train.sh: UPDATES=$UPDATES is no number of 24 or more" >&2; exit 2
fi
source "$here/../common/lock.sh"
source "$here/../common/settings.sh"
source "$here/../common/yes.sh"
yes_or_no PAGE
lock "$out"
same_settings "$out" "CORPUS=$(realpath "$corpus") UPDATES=$UPDATES${*:+ $*}" "has a training" OUT "$out/checkpoint_last.pt"
"$here/prepare.sh" "$corpus" "$out/text" "$source" "$target"
task=()
if [ "$target" = ja ]; then task=(--task char_translation --source-subwords); fi
every=$((UPDATES / 24)) # updates between checkpoints; the last ten are averaged
"$here/../baselines/short.sh" "$out/text/bin" "$out" rnnsearch_star "${task[@]}" --share-decoder-input-output-embed \
  --dropout 0.2 --lr 3e-3 --batch-size 96 --num-workers 0 --save-interval-updates $every --keep-interval-updates 10 \
  --validate-after-updates $((14 * every)) "$@"
if [ "$out/finished" -nt "$out/average.pt" ]; then
  fairseq-attnvariants average --folder "$out" --last 10 --by updates --output "$out/average.pt"
fi
if [ "$out/average.pt" -nt "$out/package" ]; then
  page=()
  if [ "${PAGE-}" = yes ]; then page=(--page); fi
  rm -rf "$out/package"
  fairseq-attnvariants export "$out/text/bin" --path "$out/average.pt" --output "$out/package" --int8 "${page[@]}" \
    --lowercase --tokenizer moses --moses-no-dash-splits --moses-no-escape --bpe-codes "$out/text/codes" \
    --beam 5 --lenpen "${LENPEN:-1}" --max-len-a 3 --max-len-b 10 --title "$source to $target, small_parallel_enja" \
    --license "text: CC BY 2.0 FR, Tanaka corpus (Tatoeba)" --trained "on 50,000 sentence pairs of small_parallel_enja"
fi
python "$here/score.py" "$corpus" "$out/package" "$source" "$target" | tee "$out/scores"
