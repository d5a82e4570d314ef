#!/usr/bin/env bash
# Compare the parts of bridging on a text with gold links. For each seed, train rnnsearch_star and continue it once per system.
# Run it again to continue. You can start it twice with other SYSTEMS: both share the starts, and the last one to end writes the
# tables of all systems.
#   apart.sh PREPARED OUT GOLD SOURCE TARGET
# PREPARED was made by ALIGN=yes ../common/prepare_bpe.sh small, with the sentences of GOLD as its test set. Embeddings are not
# tied. Set in the environment:
#   SEEDS="1 2 3"
#   SYSTEMS        (default: all)
#   START=5700     updates of the start
#   UPDATES=2000   updates of each system
#   START_SEED=1   one start for all seeds, so that intervals show only what the later trainings vary
# Another START, UPDATES or START_SEED needs another OUT.
#
# We wrote these predictions after one training of control and direct, and before all others. control continues the start without
# a bridge:
#   direct   has a lower AER and SAER, and ends more often where the source does (Kuang et al. 2018, tables 2 and 4). If annotations
#            with embeddings cause this, direct is no better than source; if the loss causes it, no better than alone
#   alone    is worse than direct, and than control (section 2.3: the loss alone hurts)
#   soft     has no relevant difference from direct, by 0.02 AER (section 2.3)
#   unit     gains as much as direct, unless the gain comes from short target embeddings
# tenth, direct with a tenth of the loss's weight, has no prediction.
# OUT/SYSTEM/SEED/ gets the scores: aer, saer, eos (beam 5, in %), repeated (greedy, in %) and loss (validation, bits per token).
# OUT/links.md and OUT/rest.md have the differences to control, and OUT/direct.md those of AER and SAER to direct. Differences in AER
# and SAER within 0.02 are not relevant. In the recipe, the training text includes the sentences of GOLD.
set -euo pipefail
if [ $# -ne 5 ]; then echo "usage: apart.sh PREPARED OUT GOLD SOURCE TARGET" >&2; exit 2; fi
prepared=$1 out=$2 gold=$3 source=$4 target=$5 here=$(dirname "$0")
base=(--init-std 0.1 --dropout 0.1 --batch-size 24)
loss=(--criterion label_smoothed_cross_entropy_with_costs)
declare -A systems=(
  [control]="rnnsearch_star"
  [source]="bridge_source"
  [direct]="bridge_direct ${loss[*]}"
  [tenth]="bridge_direct --bridging-weight 0.1 ${loss[*]}"
  [alone]="rnnsearch_star --bridge-direct hard --bridge-direct-alone ${loss[*]}"
  [soft]="bridge_direct --bridge-direct soft ${loss[*]}"
  [unit]="bridge_direct --bridging-unit-length ${loss[*]}"
)
order="control source direct alone soft unit tenth" # in the tables
IFS=', ' read -ra chosen <<< "${SYSTEMS:-$order}"
IFS=', ' read -ra seeds <<< "${SEEDS:-1 2 3}"
for system in "${chosen[@]}"; do
  if [ -z "${systems[$system]-}" ]; then
    echo "apart.sh: SYSTEMS=$system is none of $order" >&2; exit 2
  fi
done
for path in "$prepared/bin" "$gold"; do [ -e "$path" ] || { echo "apart.sh: there is no $path" >&2; exit 2; }; done
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
updates=${UPDATES:-2000}
source "$here/../common/lock.sh"
source "$here/../common/settings.sh"
source "$here/../common/generate.sh"
lock "$out" # if started twice, one process writes the settings
same_settings "$out" "PREPARED=$(realpath "$prepared") GOLD=$(realpath "$gold") START=${START:-5700} UPDATES=$updates \
START_SEED=${START_SEED:-each}" "has runs" OUT
unlock

cell() {  # cell ROW COLUMN: print a cell of the JSON table on standard input
  python -c 'import json, sys; print(json.load(sys.stdin)[int(sys.argv[1])][sys.argv[2]])' "$@"
}
for seed in "${seeds[@]}"; do
  start=$out/start-${START_SEED:-$seed}
  UPDATES=${START:-5700} "$here/../baselines/short.sh" "$prepared/bin" "$start" rnnsearch_star "${base[@]}" --lr 3e-3 \
    --seed "${START_SEED:-$seed}"
  for system in "${chosen[@]}"; do
    run=$out/$system/$seed model=$run/checkpoint_best.pt
    if [ -e "$run/loss" ]; then continue; fi
    # shellcheck disable=SC2086  # a system is several words
    UPDATES=$updates "$here/../baselines/short.sh" "$prepared/bin" "$run" ${systems[$system]} "${base[@]}" --lr 1e-3 \
      --seed "$seed" --warm-start "$start/checkpoint_best.pt"
    "$here/../alignment/errors.sh" "$prepared" "$run" "$gold" "$source" "$target" --json > "$run/aer.json"
    cell 0 "error rate" < "$run/aer.json" > "$run/aer"
    cell 1 "error rate" < "$run/aer.json" > "$run/saer"
    fairseq-attnvariants eos "$prepared/bin" ${USER_DIR:+--user-dir "$USER_DIR"} --path "$model" --json | cell 0 % > "$run/eos"
    generate "$prepared/bin" "$run/test" --path "$model" --beam 1 --max-len-a 2 --max-len-b 10
    sed 's/@@ //g' "$run/test.txt" > "$run/out.$target"
    fairseq-attnvariants align "$prepared/bin" ${USER_DIR:+--user-dir "$USER_DIR"} --path "$model" --remove-bpe \
      --source "$prepared/bpe.test.$source" --reference "$run/test.txt" --output "$run/out.align"
    fairseq-attnvariants overtranslation "$prepared/test.$source" "$run/out.$target" --alignments "$run/out.align" --json |
      cell 0 % > "$run/repeated"
    sed -nE 's/.*valid on .* \| loss ([0-9.]+) .*nll_loss ([0-9.]+).*/\1 \2/p' "$run/train.log" | sort -g | head -n 1 |
      cut -d " " -f 2 > "$run/loss.part" # the loss of the best checkpoint
    mv "$run/loss.part" "$run/loss"
  done
done

folders=() names=()
for system in $order; do # all that are trained, by any process
  for seed in "${seeds[@]}"; do [ -e "$out/$system/$seed/loss" ] || continue 2; done
  folders+=("$out/$system"); names+=(--name "$system")
done
if [ "${names[1]-}" != control ]; then echo "apart.sh: no tables without the system control" >&2; exit; fi
compare() {  # compare BASELINE TABLE MEASURES [options of fairseq-attnvariants results]
  local measure options=()
  for measure in $3; do options+=(--measure "$measure={folder}/$measure"); done
  fairseq-attnvariants results "${folders[@]}" "${names[@]}" "${options[@]}" --baseline "$1" --table "$out/$2" "${@:4}"
}
compare control links.md "aer saer" --less-is-better aer saer --margin 0.02 --digits 3
compare control rest.md "eos repeated loss" --less-is-better repeated loss
case " ${names[*]} " in *" direct "*) compare direct direct.md "aer saer" --less-is-better aer saer --margin 0.02 --digits 3 ;; esac
