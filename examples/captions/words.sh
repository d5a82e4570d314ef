#!/usr/bin/env bash
# Train one system of the captions' table on words, translate test_2016_flickr, and replace UNKs through attention. Words that occur
# less than three times are UNKs, and embeddings are not tied. Run it again to continue. Seeds of several systems:
#   RUN=words.sh ./queue.sh TEXT OUT
#   words.sh TEXT OUT SYSTEM SEED
# The arguments are those of run.sh, with another OUT. OUT/SYSTEM/SEED/measured/score.json gets the scores of test.txt and, with the
# UNKs replaced, of test.replaced.txt.
set -euo pipefail
if [ $# -ne 4 ]; then echo "usage: words.sh TEXT OUT SYSTEM SEED" >&2; exit 2; fi
text=$1 out=$2 system=$3 seed=$4 here=$(dirname "$0") updates=${UPDATES:-3632} prepared=$2/words
source "$here/systems.sh"
source "$here/../common/lock.sh"
source "$here/../common/settings.sh"
known "$system" "$seed"
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
TEST=test_2016_flickr "$here/../common/prepare_words.sh" small "$text" "$prepared" en de
train() {  # train UPDATES SYSTEM [fairseq-train options]
  local run=$out/$2/$seed every=$(($1 / 24)) # on Multi30k no multiple is at the end of an epoch
  lock "$run"
  same_settings "$run" "WORDS SEED=$seed UPDATES=$1" "has a training" OUT "$run/checkpoint_last.pt"
  UPDATES=$1 "$here/../baselines/short.sh" "$prepared/bin" "$run" "${systems[$2]}" --lr 3e-3 --batch-size 64 --seed "$seed" \
    --compute-dtype bfloat16 --save-interval-updates "$every" --keep-interval-updates 10 \
    --validate-after-updates $((14 * every)) "${@:3}"
  if [ "$run/finished" -nt "$run/average.pt" ]; then
    fairseq-attnvariants average --folder "$run" --last 10 --by updates --output "$run/average.pt"
  fi
  unlock
}
trainings
run=$out/$system/$seed
if [ "$run/measured" -nt "$run/average.pt" ]; then exit; fi
rm -rf "$run/measured" "$run/measured.part"
CHECKPOINT=average.pt "$here/../common/evaluate.sh" words "$prepared" "$run" en de --beam 5
mkdir "$run/measured.part"
fairseq-attnvariants score "$run"/test{,.replaced}.txt --reference "$prepared/test.de" --tokenize none --json \
  > "$run/measured.part/score.json"
mv "$run/measured.part" "$run/measured"
