# shellcheck shell=bash
# qwen-image prove on a model, with the comparison with diffusers where that is possible.

run_prove() {
  # shellcheck source=tools/run/python.sh
  . "$project/tools/run/python.sh"
  local arguments=() argument asked=no given=no
  for argument in "$@"; do
    case $argument in
      --diffusers) asked=yes ;;
      --help | -h | --reference*)
        given=yes
        arguments+=("$argument")
        ;;
      *) arguments+=("$argument") ;;
    esac
  done
  if [ "$asked" = yes ]; then python_environment; fi
  build_release
  cd "$caller_folder"
  local program=$project/build/release/qwen-image
  # Nothing to export for --help, and where a run is given.
  if [ "$given" = no ]; then
    prove_folder=$(mktemp -d "$project/build/prove.XXXXXX")
    trap 'rm -rf "$prove_folder"' EXIT
    if export_run "$program" "$asked" "${arguments[@]}"; then arguments+=(--reference "$prove_folder/ref"); fi
  fi
  "$program" prove "${arguments[@]}"
}

# export_run PROGRAM ASKED ARGUMENTS…: a run of diffusers in $prove_folder/ref; fails where there is none, and says why.
export_run() {
  local program=$1 asked=$2 log=$project/build/prove.log
  shift 2
  if [ ! -f "$venv/requirements/reference.txt" ]; then
    say "not compared with diffusers: there is no Python environment in .venv; --diffusers makes one (about 1 GB)"
    return 1
  fi
  say "running diffusers for the comparison"
  tool reference.prove_export --engine "$program" --out "$prove_folder/ref" "$@" \
    >"$log" 2>&1 && return
  say "not compared with diffusers: $(tail -1 "$log") (all of it: build/prove.log)"
  # Whoever asked for the comparison wants no report without it.
  [ "$asked" = no ] || exit 1
  return 1
}
