#!/usr/bin/env bash
# Make joint byte-pair encoding for fairseq from parallel text.
#   prepare_bpe.sh small|paper CORPUS OUT SOURCE TARGET       (text.sh explains these)
# small: lowercased, 4,000 merges
# paper: 30,000 merges, training sentences of up to 60 subwords
# Set in the environment:
#   MERGES=10000   number of merges
#   JOINED=yes     one dictionary for both languages
#   ALIGN=yes      also link the subwords of the training text (eflomal), for guided alignment
#   DROPOUT=0.1    BPE-dropout (Provilkov et al. 2020): each of SEGMENTATIONS=8 segmentations of the training text leaves merges out
#                  at random, with this probability. OUT/bin0, OUT/bin1 and so on have one each, and bin/ has the plain one. All have
#                  the same validation sets, test sets and dictionary. fairseq trains on bin0:bin1:..., another one in each epoch
#   SEED=1         seed of BPE-dropout
set -euo pipefail
fraction='^0*\.[0-9]*[1-9][0-9]*$' number='^[1-9][0-9]*$'
if [ -n "${DROPOUT-}" ]; then
  if [[ ! $DROPOUT =~ $fraction ]]; then
    echo "prepare_bpe.sh: DROPOUT=$DROPOUT is no probability between 0 and 1, such as 0.1" >&2; exit 2
  elif [[ ! ${SEGMENTATIONS:-8} =~ $number || ! ${SEED:-1} =~ $number ]]; then
    echo "prepare_bpe.sh: SEGMENTATIONS and SEED are numbers from 1 on" >&2; exit 2
  elif [ "${ALIGN-}" = yes ]; then
    echo "prepare_bpe.sh: links are of one segmentation: ALIGN=yes goes without DROPOUT" >&2; exit 2
  fi
elif [ -n "${SEGMENTATIONS-}${SEED-}" ]; then
  echo "prepare_bpe.sh: SEGMENTATIONS and SEED are of BPE-dropout: give DROPOUT=0.1, too" >&2; exit 2
fi
source "$(dirname "$0")/text.sh"
case $size in
  small) merges=${MERGES:-4000} ;;
  paper) merges=${MERGES:-30000} ;;
esac
begin 0
subword-nmt learn-joint-bpe-and-vocab --input "train.$source" "train.$target" -s "$merges" -o codes \
  --write-vocabulary "vocab.$source" "vocab.$target"
for language in "$source" "$target"; do
  for split in train valid "${tests[@]}"; do
    subword-nmt apply-bpe -c codes --vocabulary "vocab.$language" --vocabulary-threshold 1 \
      < "$split.$language" > "bpe.$split.$language"
  done
done
shorten() {  # shorten PREFIX: if the size is paper, keep pairs of up to 60 subwords per side
  [ "$size" = paper ] || return 0
  python "$common/clean.py" "$1" short "$source" "$target" --longest 60
  for language in "$source" "$target"; do mv "short.$language" "$1.$language"; done
}
shorten bpe.train
options=()
if [ "${ALIGN-}" = yes ]; then
  fairseq-attnvariants lexicon "bpe.train.$source" "bpe.train.$target" --output lexicon.tsv \
    --save-alignments bpe.train.align
  options+=(--align-suffix align)
fi
if [ "${JOINED-}" = yes ]; then options+=(--joined-dictionary); fi
if [ -n "${DROPOUT-}" ]; then
  count=${SEGMENTATIONS:-8}
  for ((k = 0; k < count; k++)); do
    for language in "$source" "$target"; do  # as a module, because the command ignores --seed
      python -m subword_nmt.apply_bpe -c codes --dropout "$DROPOUT" --seed $((${SEED:-1} * count + k)) \
        < "train.$language" > "dropped$k.train.$language"
    done
    shorten "dropped$k.train"
  done
  for language in "$source" "$target"; do
    cat "bpe.train.$language" dropped*.train."$language" > "all.train.$language"
  done
  binarise all. "${options[@]}" --dict-only --destdir dictionary
  options=(--srcdict "dictionary/dict.$source.txt" --tgtdict "dictionary/dict.$target.txt")
  for ((k = 0; k < count; k++)); do
    binarise bpe. "${options[@]}" --trainpref "dropped$k.train" --destdir "bin$k"
  done
fi
binarise bpe. "${options[@]}"
finish
