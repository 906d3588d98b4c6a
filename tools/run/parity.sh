# shellcheck shell=bash
# Comparisons with the official Python pipelines, with another port, and with files that other tools write.

run_parity() {
  # shellcheck source=tools/run/python.sh
  . "$project/tools/run/python.sh"
  python_environment
  case ${1:-} in
    --mlx)
      shift
      parity_mlx "$@"
      ;;
    --formats) parity_formats ;;
    --foreign) parity_foreign "${2:-}" ;;
    --planted-bugs)
      shift
      parity_planted_bugs "$@"
      ;;
    *) parity_cases "$@" ;;
  esac
}

parity_mlx() {
  # shellcheck source=tools/run/mlx.sh
  . "$project/tools/run/mlx.sh"
  build_mlx
  tool reference.parity run --engine "$project/build/mlx/qwen-image" \
    --work "$project/build/parity" --device mlx-cpu "$@"
}

parity_formats() {
  build_release
  requirements foreign --no-deps
  requirements formats
  requirements formats_alone --no-deps
  # the converter that writes ggml's larger blocks
  sd_program build OFF
  local preset
  local engine=(--engine "$project/build/release/qwen-image" --work "$project/build/formats")
  tool formats.check_names
  LD_LIBRARY_PATH=$project/build/sdcpp/build/bin tool formats.check_formats "${engine[@]}" \
    --sd "$project/build/sdcpp/build/bin/sd-cli"
  tool formats.check_loras "${engine[@]}"
  for preset in 21-odd 21-turbo; do
    tool reference.random_model --preset "$preset" --out "$project/build/formats/$preset"
    tool formats.check_forms_21 --engine "$project/build/release/qwen-image" \
      --model "$project/build/formats/$preset" --work "$project/build/formats/$preset-forms"
  done
}

parity_foreign() {
  build_release
  requirements foreign --no-deps
  local program=$project/build/release/qwen-image devices=()
  if [ "$1" = --mlx ]; then
    # shellcheck source=tools/run/mlx.sh
    . "$project/tools/run/mlx.sh"
    build_mlx
    program=$project/build/mlx/qwen-image devices=(--device cpu --device mlx-cpu)
  fi
  tool reference.parity foreign \
    --engine "$program" --work "$project/build/parity" "${devices[@]}"
  tool reference.record_check --framework mlx --engine "$project/build/release/qwen-image" --work "$project/build/parity/record"
}

# Bugs in diffusers, and what compare makes of them.
parity_planted_bugs() {
  build_release
  tool planted_bugs.check --engine "$project/build/release/qwen-image" \
    --work "$project/build/parity/planted_bugs" "$@"
}

parity_cases() {
  build_release
  tool reference.parity run --engine "$project/build/release/qwen-image" \
    --work "$project/build/parity" "$@"
  [ $# -eq 0 ] || return 0
  tool reference.record_check --engine "$project/build/release/qwen-image" --work "$project/build/parity/record"
  tool reference.hub_check "$project/build/release/qwen-image"
  check_pip_install
  "$project/run" prove --diffusers --quick --quiet -o "$project/build/parity/prove"
  requirements openai
  tool server.openai_check "$project/build/release/qwen-image"
}

# pip install . as a user would, and the module's tests with what that brings.
check_pip_install() {
  local fresh=$project/build/pip_venv
  say "pip install . in a fresh environment"
  rm -rf "$fresh"
  python3 -m venv "$fresh"
  "$fresh/bin/pip" install -q "$project"
  (cd "$fresh" && QWEN_IMAGE_PROGRAM=$fresh/bin/qwen-image "$fresh/bin/python" -m unittest discover -s "$project/python/tests")
}
