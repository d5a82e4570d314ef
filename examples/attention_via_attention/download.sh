#!/usr/bin/env bash
# Fetch the paper's WMT15 data and tokenise it with sacremoses (pip install sacremoses).
#   download.sh fr|cs OUT [CZENG]
# fr fetches everything, about 36 million pairs. For cs, ask for CzEng 1.0 by hand at
# https://ufal.mff.cuni.cz/czeng/czeng10; CZENG.en and CZENG.cs are its text, one sentence per line.
set -euo pipefail
if [ $# -lt 2 ] || [[ $1 != fr && $1 != cs ]] || [[ $1 = cs && $# -ne 3 ]]; then
  echo "usage: download.sh fr OUT, or download.sh cs OUT CZENG" >&2; exit 2
fi
language=$1 pair=$1-en common=$(cd "$(dirname "$0")/../common" && pwd)
if [ "$language" = cs ]; then
  if [ ! -e "$3.en" ] || [ ! -e "$3.cs" ]; then echo "download.sh: there is no $3.en or $3.cs" >&2; exit 2; fi
  czeng=$(realpath "$(dirname "$3")")/$(basename "$3")
fi
if ! python -c 'import sacremoses' 2> /dev/null; then
  echo "download.sh: no sacremoses here: pip install sacremoses" >&2; exit 1
fi
mkdir -p "$2"
cd "$2"
site=http://www.statmt.org
archives=(wmt13/training-parallel-europarl-v7.tgz wmt13/training-parallel-commoncrawl.tgz
          wmt15/training-parallel-nc-v10.tgz)
parts=("training/europarl-v7.$pair" "commoncrawl.$pair" "news-commentary-v10.$pair")
case $language in
  fr)
    archives+=(wmt13/training-parallel-un.tgz wmt10/training-giga-fren.tar)
    parts+=(un/undoc.2000.fr-en giga-fren.release2.fixed)
    test=wmt14/full test_name=newstest2014 ;;
  cs)
    parts+=("$czeng")
    test=wmt15 test_name=newstest2015 ;;
esac
for archive in "${archives[@]}"; do
  file=${archive##*/}
  if [ ! -e "$file" ]; then
    curl --fail --location --retry 5 --output "$file.part" "$site/$archive"
    mv "$file.part" "$file"
  fi
  tar -xf "$file"
done
if [ "$language" = fr ]; then gunzip --force giga-fren.release2.fixed.*.gz; fi

tokenise() {  # tokenise LANGUAGE NAME: tokenise standard input, and write it to NAME.LANGUAGE
  python "$common/tokenise.py" "$1" > "$2.$1.part"
  mv "$2.$1.part" "$2.$1"
}
for side in en "$language"; do
  cat "${parts[@]/%/.$side}" | tokenise "$side" train
done
held_out() {  # held_out SET NAME: write sacrebleu's SET to NAME.en and NAME.LANGUAGE, tokenised
  sacrebleu -t "$1" -l "en-$language" --echo src | tokenise en "$2"
  sacrebleu -t "$1" -l "en-$language" --echo ref | tokenise "$language" "$2"
}
held_out wmt13 newstest2013
held_out "$test" "$test_name"
