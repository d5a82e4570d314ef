#!/usr/bin/env bash
# Run a task of the laboratory: make its corpus, train its systems with several seeds, print the table of their differences, draw.
#   run.sh order|twins|counts|length|sides|rare|cipher|facts
# tasks/TASK.yaml has the predictions. Run it again to continue. Set in the environment:
#   ARCHS     "recatt mine": train only these, and the task's baseline. Each is a system of the task or of SYSTEMS, or an
#             architecture (default: all of SYSTEMS, or without SYSTEMS all of the task)
#   SYSTEMS   a file with further systems, in the form of tasks/TASK.yaml, one per line:
#               NAME: model._name=ARCHITECTURE further options of fairseq-hydra-train, such as a criterion
#             NAME is the name of a folder and of the system in the tables
#   SEEDS     "1 2 3 4 5"
#   UPDATES   of each run; the learning rate falls to 0 during them (default: the task's)
#   OUT       folder (default: laboratory/TASK)
#   USER_DIR  --user-dir, for custom architectures (default: this package's). If you edit it after a training, remove its runs
#   JOBS      runs at a time (default: 1; more need pip install "fairseq-attnvariants[sweep]")
#   TRAIN     training sentences (default: the task's); TEST: test sentences for each value of the dial (default: 200)
# Another UPDATES, TRAIN or TEST needs another OUT.
# OUT/TASK.md and OUT/TASK.json are the table, OUT/finer.md and OUT/finer.json have further measures, OUT/seeds.csv has both for every
# seed, and OUT/TASK.png is the plot.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
name=${1-}
if [ $# -ne 1 ] || [ ! -e "$here/tasks/$name.yaml" ]; then
  echo "usage: run.sh $(cd "$here/tasks" && ls | sed 's/.yaml//' | paste -sd'|')" >&2; exit 2
fi
declare -A systems added task
all=() default=()
described=$(python - "$here" "$name" "${SYSTEMS-}" <<'END'
import re, sys, yaml
here, name, more = sys.argv[1:]
sys.path.insert(0, here)
from make_corpus import TASKS
from measure import measures
def refuse(why, where=f"SYSTEMS: {more}"):
    print("run.sh:", where, *why.split(), file=sys.stderr)
    sys.exit(2)
file = f"tasks/{name}.yaml"
try:
    task = yaml.safe_load(open(f"{here}/{file}"))
except yaml.YAMLError as error:
    refuse(f"cannot be read: {error}", file)
needed = "dial measure finer margin baseline control systems train updates"
lacking = [key for key in needed.split() if key not in (task or {})]
if lacking:
    refuse(f"lacks {', '.join(lacking)}: the other tasks show the form", file)
if name not in TASKS:
    refuse(f"has no function for {name}: add it to TASKS", "make_corpus.py")
values = ",".join(map(str, TASKS[name].dial))
if str(task["dial"]).partition("=")[2] != values:
    refuse(f"has dial: {task['dial']}, but make_corpus.py has the values {values}", file)
for key in [task["measure"], *task["finer"]]:
    if key not in measures([], [], []):
        refuse(f"has the measure {key}, which measure.py lacks", file)
for key in ("baseline", "control"):
    if task[key] not in task["systems"]:
        refuse(f"has the {key} {task[key]}, which is none of its systems", file)
systems, added = task.pop("systems"), {}
if more:
    try:
        text = open(more, encoding="utf-8").read()
        added = yaml.safe_load(text)
    except (OSError, ValueError, yaml.YAMLError) as error:
        refuse(f"cannot be read: {error}")
    if not isinstance(added, dict) or not added:
        refuse("names no system: each is a line, NAME: model._name=ARCHITECTURE and further options")
    names = [name.value for name, _ in yaml.compose(text).value] # of equal names, added has only the last
for system, options in added.items():
    if not isinstance(system, str) or not re.fullmatch(r"\w[\w.-]*", system):
        refuse(f"has a system called {system}: a name has letters, digits, _, - and .")
    if names.count(system) > 1:
        refuse(f"has {system} twice: give each line another name")
    if system in ("corpus", "part", "settings"):
        refuse(f"has {system}, which is a name in OUT: give it another one")
    if system in systems:
        refuse(f"has {system}, which the task has already: give it another name")
    if not isinstance(options, str) or not re.search(r"(^|\s)model\._name=\w", options):
        refuse(f"does not say model._name=ARCHITECTURE of {system}")
for kind, several in (("system", systems), ("added", added)):
    for system, options in several.items():
        print(kind, system, " ".join(options.split()), sep="\t")
for key, value in task.items():
    print("task", key, " ".join(value) if isinstance(value, list) else str(value).strip(), sep="\t")
END
)
while IFS=$'\t' read -r kind key value; do
  case $kind in
    system) systems[$key]=$value all+=("$key") ;;
    added) added[$key]=$value default+=("$key") ;;
    task) task[$key]=$value ;;
  esac
done <<< "$described"
baseline=${task[baseline]}
out=${OUT:-laboratory/$name}
updates=${UPDATES:-${task[updates]}}
user_dir=$(realpath -m "${USER_DIR:-$(fairseq-attnvariants user-dir)}")
chosen=("$baseline")
if [ ${#default[@]} = 0 ]; then default=("${all[@]}"); fi
IFS=', ' read -ra asked <<< "${ARCHS:-${default[*]}}"
for system in "${asked[@]}"; do case " ${chosen[*]} " in *" $system "*) ;; *) chosen+=("$system") ;; esac; done
IFS=', ' read -ra seeds <<< "${SEEDS:-1 2 3 4 5}"
if ! [[ ${seeds[*]} =~ ^[0-9]+(\ [0-9]+)*$ ]]; then
  echo "run.sh: SEEDS=\"$SEEDS\" are no numbers: give such as SEEDS=\"1 2 3\"" >&2; exit 2
fi
mapfile -t seeds < <(printf '%s\n' "${seeds[@]}" | sed 's/^0*\(.\)/\1/' | sort -un) # 01 is 1
for value in "UPDATES=$updates" "TRAIN=${TRAIN:-1}" "TEST=${TEST:-1}" "JOBS=${JOBS:-1}"; do
  [[ $value =~ =[1-9][0-9]*$ ]] || { echo "run.sh: $value is no number from 1 on" >&2; exit 2; }
done
[ -d "$user_dir" ] || { echo "run.sh: USER_DIR=$USER_DIR is no folder" >&2; exit 2; }
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}

others=() pairs=() # those that are no systems of the task, with their options
for system in "${chosen[@]}"; do
  if [ -n "${systems[$system]-}" ]; then continue; fi
  others+=("$system") pairs+=("$system" "${added[$system]-}") systems[$system]=${added[$system]:-model._name=$system}
done
if [ ${#others[@]} -gt 0 ]; then
  python -W ignore - "$user_dir" "$name" "${pairs[@]}" <<'END'
import argparse, logging, sys
logging.disable(logging.INFO)
from fairseq.criterions import CRITERION_REGISTRY
from fairseq.models import ARCH_MODEL_REGISTRY
from fairseq.utils import import_user_module
from fairseq_attnvariants.registry import nearest
user_dir, task, *pairs = sys.argv[1:]
import_user_module(argparse.Namespace(user_dir=user_dir))
for system, options in zip(pairs[::2], pairs[1::2]):
    values = dict(option.partition("=")[::2] for option in options.split())
    where = f"SYSTEMS: {system} has" if options else f"ARCHS: {system} is no system of {task} and"
    for key, known, what in (("model", ARCH_MODEL_REGISTRY, "architecture"), ("criterion", CRITERION_REGISTRY, "criterion")):
        name = values.get(f"{key}._name", system if key == "model" else None)
        if name is not None and name not in known:
            called = f" {name}" if options else ""
            print(f"run.sh: {where} no {what}{called} in {user_dir}{nearest(name, known)}", file=sys.stderr)
            sys.exit(2)
END
fi
mkdir -p "$out"
out=$(cd "$out" && pwd)

source "$here/../common/lock.sh"
source "$here/../common/settings.sh"
lock "$out"
same_settings "$out" "TASK=$name UPDATES=$updates TRAIN=${TRAIN:-${task[train]}} TEST=${TEST:-200}" "has runs" OUT "$out/corpus"
for system in "${others[@]}"; do
  mkdir -p "$out/$system"
  trained=$(find "$out/$system" -name "*.pt" -print -quit)
  same_settings "$out/$system" "${systems[$system]}" "has runs" "OUT, or remove this folder" "${trained:-$out/$system/none}"
done

# systems that are not the task's must have been trained with the present source in USER_DIR
if [ -n "${USER_DIR-}" ]; then
  source=$(cd "$user_dir" && find -L . -name '*.py' -type f -exec sha256sum {} + | LC_ALL=C sort | sha256sum | cut -d ' ' -f 1)
  for system in "${others[@]}"; do
    kept=$out/$system.source
    if [ -e "$kept" ] && [ "$(< "$kept")" != "$source" ] && compgen -G "$out/$system/*/checkpoints/*.pt" > /dev/null; then
      echo "run.sh: $user_dir has changed since $system was trained: remove $out/$system and $kept, or give another OUT" >&2
      exit 2
    fi
    echo "$source" > "$kept"
  done
fi

if [ ! -e "$out/corpus" ]; then
  rm -rf "$out/part"
  python "$here/make_corpus.py" "$name" "$out/part" --train "${TRAIN:-${task[train]}}" --test "${TEST:-200}"
  tests=$(printf '%s\n' "$out"/part/test*.src | sed 's/.src$//' | LC_ALL=C sort -V | paste -sd,)
  preprocess=(--source-lang src --target-lang tgt --trainpref "$out/part/train" --validpref "$out/part/valid")
  if [ "$name" = cipher ]; then
    preprocess+=(--user-dir "$(fairseq-attnvariants user-dir)" --task char_translation)
  else
    preprocess+=(--align-suffix links)
    if [ "$name" = facts ]; then preprocess+=(--joined-dictionary); fi
  fi
  fairseq-preprocess "${preprocess[@]}" --testpref "$tests" --destdir "$out/part/bin" > "$out/preprocess.log"
  mv "$out/part" "$out/corpus"
fi

sizes=(model.encoder_embed_dim=48 model.encoder_hidden_size=48 model.decoder_embed_dim=48 model.decoder_hidden_size=64
  model.dropout=0.1)
lstm=(model.encoder_layers=1 model.decoder_layers=1 model.{en,de}coder_dropout_{in,out}=0.1
  model.decoder_out_embed_dim=48 model.share_decoder_input_output_embed=false +model.encoder_bidirectional=true
  +model.decoder_attention=true +model.criterion=cross_entropy)
training=(dataset.batch_size=40 "optimization.lr=[0.004]" optimization.max_update="$updates"
  lr_scheduler._name=polynomial_decay +lr_scheduler.total_num_update="$updates"
  checkpoint.no_epoch_checkpoints=true dataset.disable_validation=true)
if [ "${JOBS:-1}" -gt 1 ]; then training+=(hydra/launcher=joblib hydra.launcher.n_jobs="$JOBS"); fi
if command -v nvidia-smi > /dev/null; then training+=(dataset.required_seq_len_multiple=4); else training+=(common.cpu=true); fi
# a run keeps its folder if these differ: OUT may move, and a run may continue with or without a GPU
unlike=model._name,common.seed,common.user_dir,common.cpu,task.data,dataset.required_seq_len_multiple

folders=() names=()
for system in "${chosen[@]}"; do
  own=${systems[$system]//TWICE/$((2 * updates))}
  read -ra options <<< "${task[options]-}"
  case " $own " in
    *" model._name=lstm "*) options+=("${lstm[@]}") ;;
    *" model._name=ava"[\ _]*) read -ra more <<< "${task[ava]-}"; options+=("${more[@]}") ;;
  esac
  if [[ $own != *criterion._name=* || $own == *criterion._name=label_smoothed_* ]]; then # others may lack the option
    options+=(criterion.label_smoothing=0)
  fi
  read -ra more <<< "$own"
  options+=("${more[@]}") # of several values of a key, the last counts
  fairseq-hydra-train -m --config-dir "$(fairseq-attnvariants config-dir)" --config-name sweep \
    common.user_dir="'$user_dir'" task.data="'$out/corpus/bin'" hydra.sweep.dir="'$out/$system'" \
    common.seed="$(IFS=,; echo "${seeds[*]}")" hydra.job.config.override_dirname.exclude_keys="[$unlike]" "${sizes[@]}" \
    "${training[@]}" model.init_std=0.1 "${options[@]}" \
    >> "$out/$system.log" 2>&1 || {
      tail -n 5 "$out/$system.log" >&2
      echo "run.sh: a training of $system failed: see $out/$system.log" >&2
      exit 1
    }
  for seed in "${seeds[@]}"; do
    for run in "$out/$system"/*-"$seed"-??????; do folders+=("$run") names+=(--name "$system"); done
  done
done

IFS=, read -ra values <<< "${task[dial]#*=}"
subsets=(test)
for ((k = 1; k < ${#values[@]}; k++)); do subsets+=("test$k"); done
results=(fairseq-attnvariants results "${folders[@]}" "${names[@]}" --user-dir "$user_dir" --cpu
  --checkpoint checkpoint_last.pt --beam 1 --max-len-a 2 --max-len-b 10 --batch-size 200 --gen-subset "${subsets[@]}"
  --dial "${task[dial]}" --baseline "$baseline")
"${results[@]}" --measure accuracy > "$out/accuracy.txt"  # translates
python "$here/measure.py" "$out/corpus" "$out"/*/*/translations/*.hypothesis.txt
finer=()
for measure in ${task[finer]}; do finer+=(--measure "$measure={translations}.$measure"); done
"${results[@]}" "${finer[@]}" --table "$out/finer.md" --seed-table "$out/finer.csv" --json > "$out/finer.json"
picture=()
if python -c 'import sys, importlib.util as u; sys.exit(not u.find_spec("matplotlib"))'; then picture=(--plot "$out/$name.png"); fi
results+=(--measure "${task[measure]}={translations}.${task[measure]}" --margin "${task[margin]}" "${picture[@]}")
"${results[@]}" --table "$out/$name.md" --seed-table "$out/$name.csv" --json > "$out/$name.json"
paste -d , "$out/$name.csv" <(cut -d , -f 4- "$out/finer.csv") > "$out/seeds.csv"
cat "$out/$name.md"
