# shellcheck shell=bash
# Building: `build` for all commands, and the commands build and install.

# The same as build_packages.
fedora_packages=(gcc-c++ cmake ninja-build pkgconf-pkg-config highway-devel json-devel cli11-devel fmt-devel utf8proc-devel
  libpng-devel libjpeg-turbo-devel libwebp-devel libzip-devel xxhash-devel libcurl-devel openssl-devel boost-devel)
arch_packages=(gcc cmake ninja pkgconf highway nlohmann-json cli11 fmt libutf8proc libpng libjpeg-turbo libwebp libzip xxhash
  curl openssl boost)

# Says what to install where apt-get does not do it.
name_libraries() {
  if command -v apt-get >/dev/null; then
    return
  elif command -v dnf >/dev/null; then
    say "needed are: sudo dnf install ${fedora_packages[*]}"
  elif command -v pacman >/dev/null; then
    say "needed are: sudo pacman -S --needed ${arch_packages[*]}"
  else
    say "this system has no apt-get; needed are (Debian's names): ${build_packages[*]}"
  fi
}

# build PRESET FOLDER [ARGUMENTS]: configures build/FOLDER if it was not configured with PRESET, builds what changed. The
# output is in build/FOLDER/build.log, and is shown where something fails.
build() {
  local preset=$1 folder=$project/build/$2
  shift 2
  mkdir -p "$folder"
  if [ ! -f "$folder/build.ninja" ] || [ "$(cat "$folder/preset" 2>/dev/null)" != "$preset" ]; then
    say "configuring build/$(basename "$folder")"
    (cd "$project" && cmake --preset "$preset") >"$folder/configure.log" 2>&1 || {
      tail -20 "$folder/configure.log" >&2
      name_libraries
      exit 1
    }
    echo "$preset" >"$folder/preset"
  fi
  [[ $(cmake --build "$folder" "$@" -- -n) == *"no work to do"* ]] && return
  quietly "building" "$folder/build.log" cmake --build "$folder" "$@" || {
    grep -a -A 40 '^FAILED: ' "$folder/build.log" | head -80 >&2 || tail -40 "$folder/build.log" >&2
    say "the build failed; its log is build/$(basename "$folder")/build.log"
    exit 1
  }
}

# build/release is configured with tests or without (a user who only draws needs no test packages). Either will do here.
build_release() {
  need "${build_packages[@]}"
  local preset
  preset=$(cat "$project/build/release/preset" 2>/dev/null || echo release)
  build "$preset" release --target "${@:-qwen-image}"
}

# add_mpi: build/release is configured; adds the plugin by which several machines draw one picture.
add_mpi() {
  need libopenmpi-dev openmpi-bin
  cmake -DQWEN_IMAGE_MPI=ON "$project/build/release" >"$project/build/release/configure.log" 2>&1 || {
    tail -20 "$project/build/release/configure.log" >&2
    say "the headers of Open MPI were not found"
    exit 1
  }
  build "$(cat "$project/build/release/preset")" release --target "$@"
}

# The program, and beside it the plugin that speaks to NATS servers. CMake looks for libnats when it configures.
build_nats() {
  need "${build_packages[@]}" libnats-dev
  build_release
  find_libnats
  build_release qwen_image_nats
}

find_libnats() {
  cmake "$project/build/release" >"$project/build/release/configure.log" 2>&1 || {
    tail -20 "$project/build/release/configure.log" >&2
    exit 1
  }
  ninja -C "$project/build/release" -t query qwen_image_nats >/dev/null 2>&1 || {
    say "CMake finds no libnats (nats/nats.h and the library); NATS_INCLUDE_DIR and NATS_LIBRARY say where it is"
    exit 1
  }
}

run_build() {
  case ${1:-} in
    --mpi)
      build_release
      add_mpi qwen-image mpi_plugins
      ;;
    --mlx)
      # shellcheck source=tools/run/mlx.sh
      . "$project/tools/run/mlx.sh"
      build_mlx
      ;;
    --nats) build_nats ;;
    "") build_release ;;
    *)
      say "build: unknown option $1; there are --mlx, --mpi and --nats"
      exit 2
      ;;
  esac
}

# The program, and the library that others link.
run_install() {
  [ $# -eq 1 ] || {
    say "install: say where to, as in ./run install /opt/qwen-image"
    exit 2
  }
  local folder=$1
  [[ $folder = /* ]] || folder=$caller_folder/$folder
  build_release qwen-image qwen_image
  cmake --install "$project/build/release" --prefix "$folder" --strip >"$project/build/release/install.log"
  say "installed in $folder"
}
