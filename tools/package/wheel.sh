# shellcheck shell=bash
# The Python wheel: the module, the library, the program and the embedded model, with the shared libraries that they need.
# auditwheel brings those in, and names the wheel by the oldest Linux that it runs on. One wheel serves every Python from 3.9 on.

# Packages of the shared libraries, and of the headers.
wheel_sources() {
  local library
  ldd "$1/bin/qwen-image" "$1/lib/libqwen_image.so" | sed -n 's/.* => \(\/[^ ]*\).*/\1/p' | sort -u |
    while read -r library; do package_of "$library"; done
  printf '%s\n' "${header_packages[@]}"
}

package_wheel() {
  local out=$project/build/package staged=$project/build/package/wheel tools=$project/build/package/wheel_tools
  need python3 python3-venv binutils
  build_release qwen-image qwen_image
  say "packing the wheel"
  rm -rf "$staged" "$out"/qwen_image-*.whl
  mkdir -p "$staged"
  cmake --install "$project/build/release" --component python --prefix "$staged" --strip >"$out/wheel.log"
  strip --strip-unneeded "$staged/qwen_image/lib/libqwen_image.so"
  cp "$project"/python/qwen_image/{*.py,py.typed} "$staged/qwen_image"
  cp "$project"/{pyproject.toml,CMakeLists.txt,README.md,LICENSE} "$staged"
  if command -v dpkg-query >/dev/null; then
    wheel_sources "$staged/qwen_image" | sort -u | copy_licences "$staged/qwen_image/licenses"
  fi
  [ -x "$tools/bin/pip" ] || python3 -m venv "$tools"
  {
    "$tools/bin/pip" install -q -r "$project/tools/requirements/wheel.txt" &&
      # All is built: only the files are packed.
      "$tools/bin/pip" wheel -q --no-deps --no-build-isolation --wheel-dir "$staged/plain" "$staged" \
        -C wheel.cmake=false -C wheel.platlib=true -C wheel.packages=qwen_image &&
      PATH=$tools/bin:$PATH auditwheel repair --wheel-dir "$out" "$staged"/plain/*.whl
  } >>"$out/wheel.log" 2>&1 || {
    tail -20 "$out/wheel.log" >&2
    say "the wheel was not made; the log is build/package/wheel.log"
    exit 1
  }
  say "made build/package/$(cd "$out" && echo qwen_image-*.whl)"
}

# Here, and in roots of Debian 12 and 13 with nothing but Python in them (tools/package/check.sh makes them). NumPy and Pillow
# are brought there as wheels.
check_wheel() {
  local file suite root version
  file=$(echo "$project"/build/package/qwen_image-*.whl)
  need python3 python3-venv
  python3 "$project/tools/package/try_wheel.py" "$file"
  for suite in bookworm:3.11 trixie:3.13; do
    version=${suite#*:} suite=${suite%:*}
    root=$(fresh_root "$suite" "wheel-$suite")
    in_root "$root" "apt-get -qq update && apt-get -qq -y --no-install-recommends install python3 python3-venv" >"$roots/apt.log" 2>&1
    mkdir -p "$root/try/tools/package" "$root/try/tests/goldens"
    cp "$file" "$root/try"
    cp "$project/tools/package/try_wheel.py" "$root/try/tools/package"
    cp -r "$project"/{python,include} "$root/try"
    cp -r "$project"/tests/goldens/{images,models} "$root/try/tests/goldens"
    python3 -m pip download -q --no-deps --only-binary :all: --python-version "$version" --platform manylinux_2_28_x86_64 \
      --platform manylinux_2_27_x86_64 --platform manylinux2014_x86_64 -d "$root/try/wheels" numpy pillow
    in_root "$root" "! command -v cc gcc && python3 /try/tools/package/try_wheel.py /try/${file##*/} --wheels /try/wheels"
    remove_root "wheel-$suite"
  done
}
