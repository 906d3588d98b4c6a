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
    *) parity_cases "$@" ;;
  esac
}

parity_mlx() {
  # shellcheck source=tools/run/mlx.sh
  . "$project/tools/run/mlx.sh"
  build_mlx
  "$venv/bin/python" "$project/tools/reference/parity.py" run --engine "$project/build/mlx/qwen-image" \
    --work "$project/build/parity" --device mlx-cpu "$@"
}

parity_formats() {
  build_release
  requirements foreign --no-deps
  requirements formats
  requirements formats_alone --no-deps
  # the converter that writes ggml's larger blocks
  sd_program build OFF
  local python=$venv/bin/python tools=$project/tools/formats preset
  local engine=(--engine "$project/build/release/qwen-image" --work "$project/build/formats")
  "$python" "$tools/check_names.py"
  LD_LIBRARY_PATH=$project/build/sdcpp/build/bin "$python" "$tools/check_formats.py" "${engine[@]}" \
    --sd "$project/build/sdcpp/build/bin/sd-cli"
  "$python" "$tools/check_loras.py" "${engine[@]}"
  for preset in 21-odd 21-turbo; do
    "$python" "$project/tools/reference/random_model.py" --preset "$preset" --out "$project/build/formats/$preset"
    "$python" "$tools/check_forms_21.py" --engine "$project/build/release/qwen-image" \
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
  "$venv/bin/python" "$project/tools/reference/parity.py" foreign \
    --engine "$program" --work "$project/build/parity" "${devices[@]}"
}

parity_cases() {
  build_release
  "$venv/bin/python" "$project/tools/reference/parity.py" run --engine "$project/build/release/qwen-image" \
    --work "$project/build/parity" "$@"
  [ $# -eq 0 ] || return 0
  "$venv/bin/python" "$project/tools/reference/hub_check.py" "$project/build/release/qwen-image"
  check_pip_install
  "$project/run" prove --diffusers --quick --quiet -o "$project/build/parity/prove"
  requirements openai
  "$venv/bin/python" "$project/tools/server/openai_check.py" "$project/build/release/qwen-image"
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
