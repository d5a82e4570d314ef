#!/usr/bin/env bash
# Train one system on Multi30k, from text to scores: prepare, train, average the last ten checkpoints, translate and score the test
# sets. Run it again to continue.
#   multi30k.sh TEXT OUT TARGET SYSTEM [fairseq-train options]
# TEXT    made by ../common/fetch_multi30k.sh TEXT en TARGET; TARGET is de, fr or cs
# SYSTEM  an architecture of this package, or fairseq's lstm or transformer_iwslt_de_en (../common/small.sh has their sizes)
# OUT     gets the text in subwords, and TARGET-SYSTEM-SEED/ with the checkpoints, average.pt and the files of translate.sh.
#         This folder has the scores of test_2016_flickr; test_2017_flickr/ and test_2017_mscoco/ in it have those of these sets,
#         if TEXT has them. If TEXT gets them later, they are scored without another training.
# Set in the environment:
#   NAME=plain     another name for TARGET-SYSTEM-SEED/; needed for other settings
#   SEED=1, UPDATES=7264, MERGES=10000
#   DROPOUT=0.1    BPE-dropout, with SEGMENTATIONS=8
#   LENPEN=1       length penalty; another one translates the test set again
#   SUBSET=valid   stop after the validation set's scores, which a choice may use
set -euo pipefail
if [ $# -lt 4 ]; then echo "usage: multi30k.sh TEXT OUT TARGET SYSTEM [fairseq-train options]" >&2; exit 2; fi
text=$1 out=$2 target=$3 system=$4 here=$(dirname "$0")
shift 4
source "$here/../common/lock.sh"
source "$here/../common/settings.sh"
seed=${SEED:-1} merges=${MERGES:-10000}
export UPDATES=${UPDATES:-7264} OMP_NUM_THREADS=1
unset SEED # the seed of the training is not for the text
if [[ ! $UPDATES =~ ^[0-9]+$ || $UPDATES -lt 24 ]]; then
  echo "multi30k.sh: UPDATES=$UPDATES is no number of 24 or more" >&2; exit 2
fi
case ${SUBSET-} in
  "" | valid) ;;
  *) echo "multi30k.sh: SUBSET=$SUBSET: only SUBSET=valid is another set" >&2; exit 2 ;;
esac

mkdir -p "$out"
prepared=$out/$target-$merges${DROPOUT:+-$DROPOUT-${SEGMENTATIONS:-8}}
run=$out/${NAME:-$target-$system-$seed}

settings="SEED=$seed UPDATES=$UPDATES PREPARED=${prepared##*/} $system${*:+ $*}"
lock "$run" # wait for another process that trains this system
same_settings "$run" "$settings" "has a training" NAME "$run/checkpoint_last.pt"

MERGES=$merges JOINED=yes TEST=test_2016_flickr "$here/../common/prepare_bpe.sh" small "$text" "$prepared" en "$target"
bins=("$prepared/bin")
if [ -n "${DROPOUT-}" ]; then bins=("$prepared"/bin[0-9]*); fi

# Updates between checkpoints: a 24th of UPDATES or a little less. So none of the last ten is at the end of an epoch,
# where fairseq keeps no numbered checkpoint. The sentences of a batch are a multiple of 8, except in the last batch.
every=$(python - "$UPDATES" "$(wc -l < "$prepared/train.en")" "$@" << 'END'
import argparse
parser = argparse.ArgumentParser(allow_abbrev=False)
parser.add_argument("updates", type=int)
parser.add_argument("pairs", type=int)
parser.add_argument("--batch-size", "--max-sentences", type=int, default=64)
parser.add_argument("--update-freq", type=int, default=1)
options, _ = parser.parse_known_args()
batches, rest = divmod(options.pairs, options.batch_size // 8 * 8 or options.batch_size)
epoch = -(-(batches + (rest >= 8) + (rest % 8 > 0)) // options.update_freq)
longest = options.updates // 24
print(next((every for every in range(longest, 0, -1) if all(k * every % epoch for k in range(15, 25))), longest))
END
)
"$here/short.sh" "$(IFS=:; echo "${bins[*]}")" "$run" "$system" --share-all-embeddings --lr 3e-3 --batch-size 64 \
  --seed "$seed" --save-interval-updates "$every" --keep-interval-updates 10 --validate-after-updates $((14 * every)) "$@"
if [ "$run/finished" -nt "$run/average.pt" ]; then
  fairseq-attnvariants average --folder "$run" --last 10 --by updates --output "$run/average.pt"
fi
score() {  # score PREPARED OUT: score a test set, unless it has scores of this model and length penalty
  if [ "$2/lenpen" -nt "$run/average.pt" ] && [ "$(< "$2/lenpen")" = "${LENPEN:-1}" ]; then
    cat "$2/test.scores"
  else
    rm -f "$2/lenpen" # until the scores are complete
    "$here/translate.sh" "$1" "$2" "$target" "$run/average.pt"
    echo "${LENPEN:-1}" > "$2/lenpen"
  fi
}
if [ "${SUBSET-}" = valid ]; then "$here/translate.sh" "$prepared" "$run" "$target" "$run/average.pt"; exit; fi
score "$prepared" "$run"
for name in test_2017_flickr test_2017_mscoco; do
  if [ ! -e "$text/$name.$target" ]; then continue; fi
  "$here/../common/prepare_test.sh" "$text" "$prepared" "$name" en "$target"
  echo "== $name"
  TUNE=no score "$prepared/$name" "$run/$name"
done
