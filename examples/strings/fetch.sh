#!/usr/bin/env bash
# Collect the tables of the SIGMORPHON tasks in one folder, with uniform names.
#   fetch.sh DATA [FOLDER]
# DATA gets LANGUAGE_{train,dev,test}.tsv for all languages of languages.txt. FOLDER has the public repositories
# sigmorphon/2021-task1 and sigmorphon/2023InflectionST, or their files at any depth. Without FOLDER, git clones both to DATA/public.
set -euo pipefail
if [ $# -lt 1 ] || [ $# -gt 2 ]; then echo "usage: fetch.sh DATA [FOLDER]" >&2; exit 2; fi
data=$1 here=$(dirname "$0")
mkdir -p "$data"
if [ $# -eq 2 ]; then
  folder=$2
else
  folder=$data/public
  for name in 2021-task1 2023InflectionST; do
    if [ -e "$folder/$name" ]; then continue; fi
    rm -rf "$folder/$name.part"
    git clone --quiet --depth 1 "https://github.com/sigmorphon/$name" "$folder/$name.part"
    mv "$folder/$name.part" "$folder/$name"
  done
fi
take() { # take NAME FILE: copy the only file NAME below the folder to DATA/FILE; part3 is another task
  local found
  mapfile -t found < <(find "$folder" -name "$1" -type f -not -path "*/part3/*" | sort)
  if [ ${#found[@]} -ne 1 ]; then
    echo "fetch.sh: $folder has ${#found[@]} files $1 below it, and one is needed" >&2; exit 1
  fi
  cp "${found[0]}" "$data/$2.part"
  mv "$data/$2.part" "$data/$2"
}
while read -r group language; do
  for split in train dev test; do
    if [ "$group" = inflection ]; then
      case $split in train) name=$language.trn ;; dev) name=$language.dev ;; test) name=$language.tst ;; esac
    else
      name=${language}_$split.tsv
    fi
    take "$name" "${language}_$split.tsv"
  done
done < "$here/languages.txt"
