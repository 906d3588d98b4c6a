# shellcheck shell=bash
# Formatting and scripts.

run_lint() {
  need clang-format shellcheck
  cd "$project"
  git ls-files '*.cc' '*.h' '*.c' | xargs clang-format --dry-run --Werror
  git ls-files run .ci/run 'tools/run/*.sh' 'tools/package/*.sh' | xargs shellcheck -x
  say "formatting and scripts are fine"
}
