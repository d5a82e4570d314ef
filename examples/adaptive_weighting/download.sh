#!/usr/bin/env bash
# Fetch the paper's WMT17 English-German data, tokenised and truecased by the organisers.
#   download.sh OUT
set -euo pipefail
if [ $# -ne 1 ]; then echo "usage: download.sh OUT" >&2; exit 2; fi
site=http://data.statmt.org/wmt17/translation-task/preprocessed/de-en
mkdir -p "$1"
cd "$1"
for file in corpus.tc.en.gz corpus.tc.de.gz dev.tgz; do
  if [ ! -e $file ]; then
    curl --fail --location --retry 5 --output $file.part $site/$file
    mv $file.part $file
  fi
done
tar -xzf dev.tgz
for language in en de; do
  gunzip --stdout corpus.tc.$language.gz > train.$language
  cat newstest2012.tc.$language newstest2013.tc.$language > val.$language
done
