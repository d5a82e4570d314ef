# shellcheck shell=bash
# hypotheses GENERATED: the translations in what fairseq-generate printed, in the order of the text; sourced.
hypotheses() { grep ^H- "$1" | LC_ALL=C sort -V | cut -f 3; }
