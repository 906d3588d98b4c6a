# shellcheck shell=bash
# Formatting, scripts, Python, and what clang-tidy finds.

run_lint() {
  local all=no
  case ${1:-} in
    --all) all=yes ;;
    "") ;;
    *)
      say "lint: unknown option $1; there is --all"
      exit 2
      ;;
  esac
  need clang-format clang-tidy shellcheck "${python_packages[@]}"
  cd "$project"
  git ls-files '*.cc' '*.h' '*.c' | xargs clang-format --dry-run --Werror
  git ls-files run .ci/run 'tools/run/*.sh' 'tools/package/*.sh' 'examples/*.sbatch' | xargs shellcheck -x
  lint_python
  if [ "$all" = yes ]; then lint_all_sources; else lint_changed_sources; fi
  say "formatting, scripts, Python and sources are fine"
}

# In an environment of its own: ruff and mypy need nothing of what the tools use.
lint_python() {
  local environment=$project/build/lint_venv
  [ -x "$environment/bin/pip" ] || python3 -m venv "$environment"
  cmp -s tools/requirements/lint.txt "$environment/lint.txt" || {
    say "installing what tools/requirements/lint.txt lists"
    "$environment/bin/pip" install -q -r tools/requirements/lint.txt
    cp tools/requirements/lint.txt "$environment/lint.txt"
  }
  "$environment/bin/ruff" check --quiet .
  "$environment/bin/mypy"
}

# The commands that compile each source by itself, or with its neighbours (TOGETHER), for clang-tidy to read.
lint_commands() {
  need "${build_packages[@]}" "${test_packages[@]}"
  mkdir -p build/lint
  cmake --preset lint -DQWEN_IMAGE_TOGETHER="$1" >build/lint/configure.log 2>&1 || {
    tail -20 build/lint/configure.log >&2
    exit 1
  }
  # What sources include that the build writes.
  cmake "-DROOT=$project" "-DOUT=$project/build/lint/src/keep/generated/engine_hash.h" -DBUILD=lint -P cmake/engine_hash.cmake
}

# Compilations are read together, which takes a third of the time. Sources that a build writes are not there.
lint_all_sources() {
  local source
  lint_commands 12
  sed -n 's/^  "file": "\(.*\)"$/\1/p' build/lint/compile_commands.json | while read -r source; do
    grep -qF "#include \"$project/build/lint/" "$source" || printf '%s\n' "$source"
  done | tidy
}

# What differs from main, or on main what the last commit changed; and what is not committed.
lint_changed_sources() {
  local base
  base=$(git merge-base HEAD origin/main 2>/dev/null || echo HEAD)
  [ "$(git rev-parse "$base")" != "$(git rev-parse HEAD)" ] || base=$(git rev-parse -q --verify HEAD~1 || echo HEAD)
  lint_commands 1
  git diff --name-only --diff-filter=d "$base" -- '*.cc' | while read -r source; do
    # Sources of parts that are not built here (MLX, other processors) have no command.
    grep -F "\"file\": \"$project/$source\"" build/lint/compile_commands.json || true
  done | sed 's/.*"file": "\(.*\)".*/\1/' | tidy
}

# Reads file names.
tidy() {
  xargs -r -n 1 -P "$(nproc)" clang-tidy --quiet -p build/lint >build/lint/tidy.log 2>/dev/null || {
    grep -E -A 4 '(error|warning):' build/lint/tidy.log | head -80 >&2
    say "clang-tidy is not content; all of it: build/lint/tidy.log"
    exit 1
  }
}
