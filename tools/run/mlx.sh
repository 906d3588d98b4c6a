# shellcheck shell=bash
# MLX: which one to build with, the program with it, and its tests.

# Sets MLX_DIR to MLX's CMake package, unless CMake finds it by itself.
find_mlx() {
  local folder=$project/build/mlx wheel="mlx[cpu]==0.32.2" chosen
  [ "$(uname)" = Darwin ] && wheel="mlx==0.32.2"
  # the one that is there stays until another is asked for
  wheel=${MLX_WHEEL:-$(cat "$folder/venv/wheel" 2>/dev/null || echo "$wheel")}
  mkdir -p "$folder"
  rm -rf "$folder/find_mlx"
  if [ -z "${MLX_WHEEL:-}" ] && cmake -S "$project/cmake/find_mlx" -B "$folder/find_mlx" >"$folder/find_mlx.log" 2>&1; then
    chosen=${MLX_DIR:-found by CMake}
  elif [ -n "${MLX_DIR:-}" ]; then
    say "MLX_DIR=$MLX_DIR: ${MLX_WHEEL:+MLX_WHEEL is set, too: unset one of them}"
    [ -n "${MLX_WHEEL:-}" ] || cat "$folder/find_mlx.log" >&2
    exit 2
  else
    mlx_wheel "$folder/venv" "$wheel"
    MLX_DIR=$(echo "$folder"/venv/lib/python3*/site-packages/mlx/share/cmake/MLX)
    export MLX_DIR
    chosen=$wheel
  fi
  say "MLX: $chosen"
  [ "$(cat "$folder/mlx" 2>/dev/null)" = "$chosen" ] || rm -f "$folder/CMakeCache.txt" "$folder/preset"
  echo "$chosen" >"$folder/mlx"
}

# mlx_wheel FOLDER WHEEL: a virtual environment with this wheel, whose headers and library the build takes.
mlx_wheel() {
  [ "$(cat "$1/wheel" 2>/dev/null)" = "$2" ] && return
  need python3 python3-venv
  say "installing $2 in build/mlx/venv"
  rm -rf "$1"
  python3 -m venv "$1"
  "$1/bin/pip" install -q "$2"
  echo "$2" >"$1/wheel"
}

build_mlx() {
  need "${build_packages[@]}"
  find_mlx
  local preset
  preset=$(cat "$project/build/mlx/preset" 2>/dev/null || echo mlx-release)
  build "$preset" mlx --target qwen-image
  say "built build/mlx/qwen-image; see what it can draw on: build/mlx/qwen-image devices"
}
