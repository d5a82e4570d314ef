#!/usr/bin/env bash
# Make words and subwords from raw parallel text, train small models with several seeds each, and write a table and two pictures.
#   sweep.sh CORPUS OUT SOURCE TARGET [overrides of fairseq-hydra-train]
# CORPUS  folder with train.SOURCE and train.TARGET, one sentence per line, and the same for val (or valid) and test
# OUT     gets the text in words/ and bpe/, the runs in sweep/, and table.md, scores.png and curves.png
# Run it again to continue. Other overrides, other or edited text, or another MERGES or TOKENISE need another OUT.
# Set in the environment:
#   ARCHS="rnnsearch recatt conddec"   architectures; the others are compared with the first
#   SEEDS="1 2 3"
#   MERGES=4000
#   TRAIN, VALID, TEST                 names of other files
#   TOKENISE=no                        the text is in words already
#   USER_DIR=FOLDER                    a folder with custom components
set -euo pipefail
if [ $# -lt 4 ]; then
  echo "usage: sweep.sh CORPUS OUT SOURCE TARGET [overrides of fairseq-hydra-train]" >&2; exit 2
fi
corpus=$1 source=$3 target=$4 common=$(cd "$(dirname "$0")/../common" && pwd)
mkdir -p "$2"
out=$(cd "$2" && pwd)
shift 4
source "$common/settings.sh"
VALID=${VALID:-$(valid_name "$corpus" "$source")}
settings="CORPUS=$(realpath "$corpus") MERGES=${MERGES:-4000} TRAIN=${TRAIN:-train} VALID=$VALID TEST=${TEST:-test} \
TOKENISE=${TOKENISE:-yes}"
source "$common/lock.sh"
source "$common/yes.sh"
yes_or_no TOKENISE
lock "$out"
same_settings "$out" "$settings" "has text" OUT "$out/words"
mkdir -p "$out/sweep"
if [ -e "$out/overrides" ]; then # a file of an earlier version
  echo "'$(< "$out/overrides")'" > "$out/sweep/settings"
  rm "$out/overrides"
fi
trained=$(find "$out/sweep" -name '*.pt' -print -quit)
same_settings "$out/sweep" "'$*'" "has runs" OUT "${trained:-$out/sweep/none}"
IFS=', ' read -ra archs <<< "${ARCHS:-rnnsearch recatt conddec}"
IFS=', ' read -ra seeds <<< "${SEEDS:-1 2 3}"
user_dir=$(realpath -m "${USER_DIR:-$(fairseq-attnvariants user-dir)}")
[ -d "$user_dir" ] || { echo "sweep.sh: USER_DIR=$USER_DIR is no folder" >&2; exit 2; }
if [ "${TOKENISE-}" != no ] && ! python -c 'import sacremoses' 2> /dev/null; then
  echo "sweep.sh: no sacremoses here: pip install sacremoses, or TOKENISE=no for text in words" >&2; exit 1
fi

words() {  # words LANGUAGE: split standard input into words
  if [ "${TOKENISE-}" = no ]; then cat; else python "$common/tokenise.py" "$1"; fi
}

(kept_text "$out/words" "$source-$target" "$corpus"/{"${TRAIN:-train}","$VALID","${TEST:-test}"}.{"$source","$target"})
if [ ! -e "$out/words" ]; then
  for language in "$source" "$target"; do
    for pair in "train ${TRAIN:-train}" "val $VALID" "test ${TEST:-test}"; do
      words "$language" < "$corpus/${pair#* }.$language" > "$out/words.part/${pair%% *}.$language"
    done
  done
  mv "$out/words.part" "$out/words"
fi
TRAIN='' VALID='' TEST='' "$common/prepare_bpe.sh" small "$out/words" "$out/bpe" "$source" "$target"

# pad sentences to few lengths, for the override model.cuda_graphs=true
if command -v nvidia-smi > /dev/null; then padding=(dataset.required_seq_len_multiple=4); else padding=(); fi
# the criterion with costs gives each model the costs of its paper
list() { local IFS=,; echo "$*"; }
fairseq-hydra-train -m --config-dir "$(fairseq-attnvariants config-dir)" --config-name sweep \
  hydra.sweep.dir="'$out/sweep'" common.user_dir="'$user_dir'" task.data="'$out/bpe/bin'" \
  task.source_lang="$source" task.target_lang="$target" \
  model._name="$(list "${archs[@]}")" common.seed="$(list "${seeds[@]}")" \
  criterion._name=label_smoothed_cross_entropy_with_costs checkpoint.no_epoch_checkpoints=true \
  model.encoder_embed_dim=128 model.decoder_embed_dim=128 model.encoder_hidden_size=256 model.decoder_hidden_size=256 \
  model.init_std=0.1 model.dropout=0.3 optimization.max_epoch=8 "${padding[@]}" "$@"
fairseq-attnvariants results "$out/sweep" --user-dir "$user_dir" --remove-bpe --max-len-a 2 --max-len-b 10 --reference "$out/bpe/test.$target" \
  --baseline "${archs[0]}" --table "$out/table.md" --plot "$out/scores.png" --curves "$out/curves.png"
