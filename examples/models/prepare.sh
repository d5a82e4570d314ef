#!/usr/bin/env bash
# Make OUT/bin for fairseq from Japanese and English text: English in subwords of 4,000 merges, Japanese in characters without spaces.
#   prepare.sh CORPUS OUT SOURCE TARGET
# CORPUS was made by fetch.sh. OUT gets codes, the text in train.*, valid.* and test.*, the symbols in bpe.*, and bin/; it appears when
# it is complete. A Japanese source is one word per clause, which the merges of English leave in characters: 猫@@ が@@ 好@@ き. The
# runtime of an exported model splits raw text in the same way. A Japanese target has its own symbols (--task char_translation).
set -euo pipefail
if [ $# -ne 4 ]; then echo "usage: prepare.sh CORPUS OUT SOURCE TARGET" >&2; exit 2; fi
corpus=$1 out=${2%/} source=$3 target=$4 here=$(cd "$(dirname "$0")" && pwd)
source "$here/../common/lock.sh"
source "$here/../common/settings.sh"
lock "$(dirname "$out")"
kept_text "$out" "$source-$target" "$corpus/train.$source" "$corpus/train.$target"
python "$here/text.py" "$corpus" "$out.part" "$source" "$target"
cd "$out.part"
subword-nmt learn-bpe -s 4000 < train.en > codes
for split in train valid test; do
  subword-nmt apply-bpe -c codes < $split.en > bpe.$split.en # the corpus has English in Moses' words
  if [ "$target" = ja ]; then
    cp $split.ja bpe.$split.ja
  else
    python "$here/../common/tokenise.py" ja < $split.ja | subword-nmt apply-bpe -c codes > bpe.$split.ja
  fi
done
options=(--source-lang "$source" --target-lang "$target" --trainpref bpe.train)
if [ "$target" = ja ]; then
  fairseq-preprocess "${options[@]}" --destdir subwords --only-source --dict-only
  options+=(--srcdict subwords/dict.en.txt --task char_translation --user-dir "$(fairseq-attnvariants user-dir)")
  options+=(--nwordstgt 2000)
fi
fairseq-preprocess "${options[@]}" --validpref bpe.valid --testpref bpe.test --destdir bin
cd - > /dev/null
mv "$out.part" "$out"
