#!/usr/bin/env bash
# Make characters for fairseq from parallel text: the 300 most frequent of each language. small lowercases the text.
#   prepare_characters.sh small|paper CORPUS OUT SOURCE TARGET       (text.sh explains these)
# In training, the task leaves out sentences of more than 300 characters.
set -euo pipefail
source "$(dirname "$0")/text.sh"
begin 0
binarise "" --user-dir "$(fairseq-attnvariants user-dir)" --task char_translation
finish
