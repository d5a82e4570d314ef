#!/usr/bin/env bash
# Parallel text -> characters for fairseq, the 300 most frequent a side; small: lowercased.
#   prepare_characters.sh small|paper CORPUS OUT SOURCE TARGET       (text.sh says what these are)
# Sentences of more than 300 characters are left out in training, by the task.
set -euo pipefail
source "$(dirname "$0")/text.sh"
begin 0
binarise "" --user-dir "$(fairseq-attnvariants user-dir)" --task char_translation
finish
