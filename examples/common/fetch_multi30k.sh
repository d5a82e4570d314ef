#!/usr/bin/env bash
# Fetch Multi30k's captions, tokenised and lowercased, from the public repository multi30k/dataset (task 1).
#   fetch_multi30k.sh OUT LANGUAGE...       two or more of en, de, fr and cs
# The recipes call OUT/{train,val,test_2016_flickr,test_2017_flickr,test_2017_mscoco}.LANGUAGE TEXT. Czech has no test sets of 2017.
# Complete files stay, and others are fetched again. A file gets its name only if its checksum is right. MULTI30K in the environment
# names another place.
set -euo pipefail
if [ $# -lt 3 ]; then echo "usage: fetch_multi30k.sh OUT LANGUAGE LANGUAGE..." >&2; exit 2; fi
out=$1 site=${MULTI30K:-https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/tok}
shift
sums="
08925f8e0572bcd5a006702fc5fe20e2d77c6917d4eebd576fc20de6693c2119 train.en
46573ce391ae227f1c72f873392436a20ef18e0a6d518098cfbd70b77c8572ec val.en
5b7f32627cf99eced828311b955dae9800bb52bc8b91cf8b6526829e605b29d2 test_2016_flickr.en
c9d1dfd7a26add989382e534af235af9f0f658b2a30e7eb0efdaf142496ee54f test_2017_flickr.en
fe69ae004d71c42ead0301e70c57de5b1b6b5fb7f52210d42b22801e98e656f3 test_2017_mscoco.en
cb5a23529b65ec2061f1dc446192a9c37382b63cc75f81a0be59d34894b3a505 train.de
97232bd273eceb7207f689527386a97e4be2616b18ada47576bdaf96c8ae1f00 val.de
c6a33d39d48f9f510de147651316cd9d918e09ad0219df734a2f16b6baccacc4 test_2016_flickr.de
02067e4a9402786a4fcb8c1b6f4307e4a5073ced64800abead5273b54f5f31f6 test_2017_flickr.de
e2825990b8a4e5289d2cdba801d57c187810bab9b4f5d87a30c35800a0d871b6 test_2017_mscoco.de
8fa41bb718412bcb7c5dfa58603842810a01543eae86a51279f9886b901266e1 train.fr
b303e301aa21fe7822a846b2b3fb2d5a1121ec807cd5b1d006fb7b2b5507168a val.fr
1463bd5960f9bfe098ec3cd752d3df0c49c84dc646fb518964a29232658cd836 test_2016_flickr.fr
c0583117a47b31e8a6c6a97cfe8de153e462074668f4e994764fcc80b21d33b4 test_2017_flickr.fr
0b6a4620f02b6b9acf7811fda23f90fed9c6baa0b96aa224db50a273078c84d1 test_2017_mscoco.fr
7645fb91efa18f94c83d493f740a5d5a941e4b01efa6a124bf2d4af040e133e0 train.cs
b87ee4917f4a0f9ca6cca03e402026c9f4437dc1bd6a7dadfd2544ecfb6c5501 val.cs
748c8816de928732365176e5c5d2f9bbabcec9b8d4448fba2d230feb057898a7 test_2016_flickr.cs
"
for language in "$@"; do
  case $language in en | de | fr | cs) ;; *) echo "fetch_multi30k.sh: no '$language', only en, de, fr and cs" >&2; exit 2 ;; esac
done
source "$(dirname "$0")/fetch.sh"
mkdir -p "$out"
while read -r sum file; do
  language=${file##*.}
  case " $* " in *" $language "*) fetch "$sum" "$site/${file%.*}.lc.norm.tok.$language" "$out/$file" ;; esac
done < <(grep . <<< "$sums")
