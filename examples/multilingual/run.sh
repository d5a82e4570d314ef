#!/usr/bin/env bash
# Compare one model of several language pairs with one model per pair: prepare, train, translate, score. Run it again to continue.
#   run.sh CORPUS OUT SOURCE TARGET TARGET...      such as: run.sh text many en de fr cs
# CORPUS has train.*, val.* and test.* in words, in every language (common/fetch_multi30k.sh). Set in the environment:
#   ARCH     architecture (default: dl4mt)
#   TEST     name of the test set, such as test_2016_flickr (default: test)
#   MERGES   merges of the byte-pair encoding that all languages share (default: 6000)
#   OPTIONS  further options of fairseq-train
# OUT/scores has the scores of the model of all pairs and of the pair's model, for each target language.
set -euo pipefail
if [ $# -lt 4 ]; then echo "usage: run.sh CORPUS OUT SOURCE TARGET TARGET..." >&2; exit 2; fi
corpus=$1 out=${2%/} source=$3
targets=("${@:4}") common=$(cd "$(dirname "$0")/../common" && pwd) arch=${ARCH:-dl4mt}
read -ra more <<< "${OPTIONS-}"

source "$common/lock.sh"
source "$common/settings.sh"
source "$common/generate.sh"
lock "$out"
settings="CORPUS=$(realpath "$corpus") $source ${targets[*]} ARCH=$arch TEST=${TEST:-test} MERGES=${MERGES:-6000} OPTIONS=${more[*]}"
trained=$(find "$out" -name '*.pt' -print -quit)
if [ -z "$trained" ] && [ -e "$out/settings" ] && [ "$(< "$out/settings")" != "$settings" ]; then rm -rf "$out/text"; fi
same_settings "$out" "$settings" is OUT "${trained:-$out/none}"

files=()
for language in "$source" "${targets[@]}"; do files+=("$corpus"/{train,val,"${TEST:-test}"}."$language"); done
(kept_text "$out/text" "$source ${targets[*]}" "${files[@]}")
if [ ! -e "$out/text" ]; then
  part=$out/text.part
  for target in "${targets[@]}"; do
    for split in "train train" "val valid" "${TEST:-test} test"; do
      read -r name here <<< "$split"
      python "$common/clean.py" "$corpus/$name" "$part/$here.$source-$target" "$source" "$target" --lower
    done
  done
  cat "$part"/train.*.* > "$part/all"
  subword-nmt learn-bpe -s "${MERGES:-6000}" -o "$part/codes" < "$part/all"
  for file in "$part"/{train,valid,test}."$source"-*; do
    subword-nmt apply-bpe -c "$part/codes" < "$file" > "$part/bpe.${file##*/}"
  done
  cat "$part"/bpe.train.* > "$part/bpe.all.$source"
  fairseq-preprocess --source-lang "$source" --only-source --trainpref "$part/bpe.all" --dict-only --destdir "$part/dictionary"
  for target in "${targets[@]}"; do
    pair=$source-$target
    fairseq-preprocess --source-lang "$source" --target-lang "$target" --srcdict "$part/dictionary/dict.$source.txt" \
      --tgtdict "$part/dictionary/dict.$source.txt" --trainpref "$part/bpe.train.$pair" --validpref "$part/bpe.valid.$pair" \
      --testpref "$part/bpe.test.$pair" --destdir "$part/bin"
  done
  mv "$part" "$out/text"
fi

source "$common/small.sh"
small subwords "$arch"
options+=(--share-all-embeddings)
pairs=$(printf ",$source-%s" "${targets[@]}")
many=(--task translation_multi_simple_epoch --lang-pairs "${pairs#,}" --encoder-langtok tgt)
"$common/train.sh" "$out/text/bin" "$out/together" "$arch" "${options[@]}" "${many[@]}" "${more[@]}"
for target in "${targets[@]}"; do
  alone=(--source-lang "$source" --target-lang "$target")
  "$common/train.sh" "$out/text/bin" "$out/$target" "$arch" "${options[@]}" "${alone[@]}" "${more[@]}"
done

translate() {  # translate FOLDER TARGET [fairseq-generate options]
  generate "$out/text/bin" "$1/$2" --path "$1/checkpoint_best.pt" --beam 5 --source-lang "$source" --target-lang "$2" \
    --batch-size 40 --remove-bpe --max-len-a 2 --max-len-b 10 "${@:3}"
}

for target in "${targets[@]}"; do
  translate "$out/together" "$target" "${many[@]}"
  translate "$out/$target" "$target"
  echo "== $source-$target: of all pairs, of this pair"
  sacrebleu "$out/text/test.$source-$target.$target" -i "$out/together/$target.txt" "$out/$target/$target.txt" \
    -m bleu chrf -w 2 -f text --tokenize none --force
done | tee "$out/scores"
