# shellcheck shell=bash disable=SC2034
# The systems of the captions' table, in the order of their trainings. Source this file.
declare -A systems=( # architecture and options
  [rnnsearch]=rnnsearch [recatt]=recatt [rnnatt]=rnnatt [conddec]=conddec
  [dl4mt]=dl4mt [adaptive_gru]=adaptive_gru [adaptive_both]=adaptive_both
  [rnnsearch_star]=rnnsearch_star [bridge_source]=bridge_source
  [inputfeed]=inputfeed [hybridatt1]=hybridatt1 [hybridatt2]=hybridatt2
  [conddec_recatt]=conddec_recatt [conddec_rnnatt]=conddec_rnnatt
  [adaptive_output]=adaptive_output [bridge_target]=bridge_target [coverage]=coverage [context_gate]=context_gate
  # these continue the rnnsearch_star of the same seed for half as many updates
  [star_more]=rnnsearch_star [source_more]=bridge_source [target_more]=bridge_target [direct_more]=bridge_direct
)
groups=( # all seeds of a group come before the next group; PLAN.md has the findings that each decides
  "rnnsearch dl4mt adaptive_gru adaptive_both"
  "recatt conddec rnnatt"
  "rnnsearch_star bridge_source star_more direct_more source_more target_more"
  "bridge_target adaptive_output"
  "inputfeed hybridatt2"
  "hybridatt1 conddec_recatt conddec_rnnatt"
  "coverage context_gate"
)
known() {  # known SYSTEM SEED: refuse a system that the table lacks, and a seed that is no number
  if [ -z "${systems[$1]-}" ]; then echo "${0##*/}: '$1' is none of ${groups[*]}" >&2; exit 2; fi
  if [[ ! $2 =~ ^[1-9][0-9]*$ ]]; then echo "${0##*/}: SEED '$2' is no number from 1 on" >&2; exit 2; fi
}
trainings() {  # call the script's `train UPDATES SYSTEM [fairseq-train options]` for $system and, before it, for its start
  case $system in
    *_more)
      train "$updates" rnnsearch_star
      train $((updates / 2)) "$system" --lr 1e-3 --warm-start "$out/rnnsearch_star/$seed/average.pt" ;;
    *) train "$updates" "$system" ;;
  esac
}
