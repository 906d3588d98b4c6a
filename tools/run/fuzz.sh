# shellcheck shell=bash
# Every parser of files is fed with mutated ones.

# fuzz_target SECONDS TARGET: prints a line; fails if an input was found that the target does not stand.
fuzz_target() {
  local seconds=$1 target=$2 folder=$project/build/fuzz code=0
  local log=$folder/logs/$target.txt new_corpus=$folder/corpus/$target
  mkdir -p "$folder/logs" "$folder/findings" "$new_corpus"
  QWEN_IMAGE_FUZZ_TARGET=$target "$folder/tests/fuzz/fuzz" -max_total_time="$seconds" -print_final_stats=1 \
    -max_len=8192 -timeout=25 -rss_limit_mb=2048 -malloc_limit_mb=128 -artifact_prefix="$folder/findings/$target-" \
    "$new_corpus" "$project/tests/fuzz/corpus/$target" >"$log" 2>&1 || code=$?
  local executions coverage found
  executions=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
  coverage=$(sed -n 's/.* cov: \([0-9]*\) .*/\1/p' "$log" | sed -n '1p;$p' | paste -sd ' ')
  found=$(sed -n 's/.*Test unit written to //p' "$log" | tail -1)
  if [ "$code" -eq 0 ]; then
    printf '%-12s %9s executions, coverage %s to %s, nothing found\n' "$target" "$executions" "${coverage% *}" "${coverage#* }"
  else
    printf '%-12s FAILED with %s (see %s)\n' "$target" "${found:-no input}" "$log"
  fi
  return "$code"
}

run_fuzz() {
  local seconds=${1:-30} targets=("$project"/tests/fuzz/corpus/*) target running=0 failed=0
  [[ $seconds =~ ^[1-9][0-9]*$ ]] || { say "fuzz: $seconds is not a number of seconds"; exit 2; }
  if [ $# -gt 1 ]; then targets=("$project/tests/fuzz/corpus/$2"); fi
  [ -d "${targets[0]}" ] || { say "fuzz: there is no target $2; known are: $(ls -m "$project/tests/fuzz/corpus")"; exit 2; }
  need "${build_packages[@]}" clang-14 libclang-rt-14-dev
  build fuzz fuzz --target fuzz
  for target in "${targets[@]}"; do
    if [ "$running" -eq 2 ]; then
      wait -n || failed=1
      running=1
    fi
    fuzz_target "$seconds" "$(basename "$target")" &
    running=$((running + 1))
  done
  while [ "$running" -gt 0 ]; do
    wait -n || failed=1
    running=$((running - 1))
  done
  return "$failed"
}

