#!/usr/bin/env bash
# Measure a finished run of the captions' table. A measured run stays as it is.
#   measure.sh PREPARED RUN
# PREPARED and RUN are those of run.sh. RUN/measured/ gets the JSON files that collect.py reads. The first measurement makes
# PREPARED/links/: eflomal's links of the test set's words and, for systems with gates, tags (pip install HanTa).
# eflomal has no seed: copy PREPARED/links/ to every machine that measures.
set -euo pipefail
if [ $# -ne 2 ]; then echo "usage: measure.sh PREPARED RUN" >&2; exit 2; fi
prepared=$1 run=$2 here=$(dirname "$0") links=$1/links part=$2/measured.part
source "$here/../common/lock.sh"
if [ ! -e "$run/lenpen" ]; then echo "measure.sh: $run has no run that has ended" >&2; exit 2; fi
if [ "$run/measured" -nt "$run/average.pt" ]; then exit; fi

lock "$prepared"
mkdir -p "$links"
if [ ! -e "$links/test.gold" ]; then
  for language in en de; do cat "$prepared/train.$language" "$prepared/test.$language" > "$links/all.$language"; done
  fairseq-attnvariants lexicon "$links/all.en" "$links/all.de" --output "$links/all.tsv" --save-alignments "$links/all.align"
  tail -n "$(wc -l < "$prepared/test.en")" "$links/all.align" > "$links/gold.part"
  mv "$links/gold.part" "$links/test.gold"
fi
read -r arch < <(sed 's/.*PREPARED=[^ ]* //; s/ .*//' "$run/settings")
gates=() # the sides that have gates
case $arch in
  adaptive_gru | adaptive_both) gates=(source target) ;;
  adaptive_output | conddec* | context_gate) gates=(target) ;;
esac
if [ ${#gates[@]} -gt 0 ]; then
  for language in en de; do
    if [ -e "$links/tags.$language" ]; then continue; fi
    python "$here/../adaptive_weighting/tag.py" "$language" < "$prepared/test.$language" > "$links/tags.part"
    mv "$links/tags.part" "$links/tags.$language"
  done
fi
unlock

rm -rf "$part" "$run/measured"
mkdir "$part"
fairseq-attnvariants score "$run/test.txt" --reference "$prepared/test.de" --tokenize none --source "$prepared/test.en" \
  --boundaries 8 12 15 18 --json > "$part/score.json"
for name in test_2017_flickr test_2017_mscoco; do
  if [ ! -e "$run/$name/lenpen" ]; then continue; fi
  fairseq-attnvariants score "$run/$name/test.txt" --reference "$prepared/$name/test.de" --tokenize none --json \
    > "$part/$name.json"
done
CHECKPOINT=average.pt "$here/../alignment/errors.sh" "$prepared" "$run" "$links/test.gold" en de --json > "$part/aer.json"
# the model's translation, in subwords again
subword-nmt apply-bpe -c "$prepared/codes" --vocabulary "$prepared/vocab.de" --vocabulary-threshold 1 < "$run/test.txt" \
  > "$part/out.bpe"
own=(--path "$run/average.pt" --source "$prepared/bpe.test.en" --reference "$part/out.bpe")
fairseq-attnvariants eos "$prepared/bin" "${own[@]}" --json > "$part/eos.json"
fairseq-attnvariants align "$prepared/bin" "${own[@]}" --remove-bpe --output "$part/out.align"
fairseq-attnvariants overtranslation "$prepared/test.en" "$run/test.txt" --alignments "$part/out.align" --json \
  > "$part/overtranslation.json"
if [ ${#gates[@]} -gt 0 ]; then
  tags=()
  for side in "${gates[@]}"; do
    case $side in source) language=en ;; target) language=de ;; esac
    tags+=("--$side-tags" "$links/tags.$language")
  done
  fairseq-attnvariants gates "$prepared/bin" --path "$run/average.pt" --source "$prepared/bpe.test.en" \
    --reference "$prepared/bpe.test.de" --remove-bpe "${tags[@]}" --json > "$part/gates.json"
fi
rm "$part/out.bpe" "$part/out.align"
mv "$part" "$run/measured"
