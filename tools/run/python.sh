# shellcheck shell=bash
# The Python environment of the tools, .venv, and what is installed in it: the files in tools/requirements.

venv=$project/.venv

# requirements NAME [PIP'S OPTIONS]: installs tools/requirements/NAME.txt unless that very file is installed.
requirements() {
  local file=$project/tools/requirements/$1.txt mark=$venv/requirements/$1.txt
  cmp -s "$file" "$mark" && return
  mkdir -p "$venv/requirements"
  say "installing what tools/requirements/$1.txt lists"
  "$venv/bin/pip" install -q "${@:2}" -r "$file" || return
  cp "$file" "$mark"
}

python_environment() {
  need "${python_packages[@]}"
  [ -x "$venv/bin/pip" ] || {
    say "making a Python environment in .venv (about 1 GB)"
    python3 -m venv "$venv"
  }
  requirements torch
  requirements reference
}

# tool NAME ARGUMENTS: a tool of the package tools, in the environment; tool_program is its beginning, for exec.
tool_program=(env "PYTHONPATH=$project" "$venv/bin/python" -m)
tool() { "${tool_program[@]}" "tools.$1" "${@:2}"; }

# sd_program FOLDER NATIVE: stable-diffusion.cpp's program in build/sdcpp/FOLDER, from the source release that PyPI carries;
# for any CPU (NATIVE is OFF) or for this one (ON).
sd_program() {
  need cmake ninja-build g++
  local version=0.4.7 folder=$project/build/sdcpp target=$project/build/sdcpp/$1
  local archive=$folder/stable_diffusion_cpp_python-$version.tar.gz
  [ -x "$target/bin/sd-cli" ] && return
  say "building stable-diffusion.cpp in build/sdcpp/$1 (about 10 minutes)"
  mkdir -p "$folder"
  [ -f "$archive" ] || "$venv/bin/pip" download -q --no-deps --no-binary :all: -d "$folder" \
    "stable-diffusion-cpp-python==$version" || return
  tar -xzf "$archive" -C "$folder" || return
  cmake -S "$folder/stable_diffusion_cpp_python-$version/vendor/stable-diffusion.cpp" -B "$target" -G Ninja \
    -DCMAKE_BUILD_TYPE=Release -DSD_BUILD_EXAMPLES=ON -DSD_WEBP=OFF -DSD_WEBM=OFF "-DGGML_NATIVE=$2" \
    -DGGML_LLAMAFILE=ON >"$folder/configure.log" || return
  quietly "building stable-diffusion.cpp" "$folder/build.log" cmake --build "$target" --target sd-cli
}
