#!/usr/bin/env bash
# Run the tests that need a GPU, then measure training and search on it. It takes at most eight minutes, the most important first.
#   gpu.sh [--small] [OUT]
# OUT      folder for tests.txt, gpu.jsonl (the figures so far), gpu.txt (the output) and table.md (default: gpu)
# --small  try everything with tiny models, also on a CPU, in a minute or two
set -uo pipefail
small=()
if [ "${1:-}" = --small ]; then small=(--small); shift; fi
if [ $# -gt 1 ] || [[ "${1:-}" = -* ]]; then echo "usage: gpu.sh [--small] [OUT]" >&2; exit 2; fi
mkdir -p "${1:-gpu}" || exit
out=$(cd "${1:-gpu}" && pwd) limit=480 tests=140
if [ -e "$out/gpu.jsonl" ]; then echo "gpu.sh: $out has measurements: give another OUT" >&2; exit 2; fi
cd "$(dirname "$0")" || exit
export PYTHONUNBUFFERED=1 PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH}

if python -c 'import torch; raise SystemExit(not torch.cuda.is_available())'; then
  export TEST_GPU=yes
elif [ ${#small[@]} = 0 ]; then
  echo "gpu.sh: torch sees no GPU here; --small tries it on a CPU" >&2; exit 1
fi
# use several processes if pytest-xdist is installed: most of these tests wait for commands to start
workers=(); if python -c 'import xdist' 2> /dev/null && [ -n "${TEST_GPU:-}" ]; then workers=(-n 8 --dist worksteal); fi
timeout "$tests" python -m pytest -vv -rf -p no:cacheprovider "${workers[@]}" ../tests/test_gpu.py > "$out/tests.txt" 2>&1
case $? in
  0) tail -n 1 "$out/tests.txt" ;;
  124) echo "tests: stopped after $tests seconds, see $out/tests.txt" ;;
  *) echo "tests: some failed, see $out/tests.txt"; grep -a '^FAILED\|^ERROR' "$out/tests.txt" ;;
esac
left=$((limit - SECONDS))
timeout "$left" python gpu.py "$out/gpu.jsonl" --seconds $((left - 15)) "${small[@]}" > "$out/gpu.txt" 2>&1 ||
  echo "measurements: stopped, see $out/gpu.txt" >&2
python gpu_table.py "$out/gpu.jsonl" | tee "$out/table.md"
