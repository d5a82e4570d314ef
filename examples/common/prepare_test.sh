#!/usr/bin/env bash
# Add a test set to a text of prepare_bpe.sh small, with its merges and dictionaries.
#   prepare_test.sh CORPUS PREPARED NAME SOURCE TARGET
# CORPUS/NAME.SOURCE and CORPUS/NAME.TARGET are the set, in words. PREPARED/NAME/ gets test.*, bpe.test.* and bin/, and appears when
# it is complete. evaluate.sh and ../alignment/errors.sh take it as their PREPARED.
set -euo pipefail
if [ $# -ne 5 ]; then echo "usage: prepare_test.sh CORPUS PREPARED NAME SOURCE TARGET" >&2; exit 2; fi
corpus=$1 prepared=$2 name=$3 source=$4 target=$5 common=$(dirname "$0")
if [ ! -e "$prepared/codes" ]; then echo "prepare_test.sh: $prepared is not of prepare_bpe.sh" >&2; exit 2; fi
source "$common/lock.sh"
lock "$prepared"
out=$prepared/$name part=$prepared/$name.part
if [ -e "$out" ]; then exit; fi
rm -rf "$part"
mkdir "$part"
python "$common/clean.py" "$corpus/$name" "$part/test" "$source" "$target" --lower
for language in "$source" "$target"; do
  subword-nmt apply-bpe -c "$prepared/codes" --vocabulary "$prepared/vocab.$language" --vocabulary-threshold 1 \
    < "$part/test.$language" > "$part/bpe.test.$language"
done
fairseq-preprocess --source-lang "$source" --target-lang "$target" --testpref "$part/bpe.test" --destdir "$part/bin" \
  --srcdict "$prepared/bin/dict.$source.txt" --tgtdict "$prepared/bin/dict.$target.txt"
mv "$part" "$out"
