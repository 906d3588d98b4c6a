# shellcheck shell=bash
# What all commands share: messages, packages, and commands whose output goes to a log.

say() { printf '%s\n' "run: $*" >&2; }

# Boost.Beast is needed from 1.81 on. Debian 12 has that beside an older default; newer distributions have a newer default.
boost_package=libboost-dev
if grep -qs '^VERSION_CODENAME=bookworm' /etc/os-release; then boost_package=libboost1.81-dev; fi

# Ubuntu calls its browser otherwise.
browser_packages=(chromium chromium-driver)
if grep -qs '^ID=ubuntu' /etc/os-release; then browser_packages=(chromium-browser chromium-chromedriver); fi

# The other names are the same on Debian 12 and 13 and on Ubuntu 24.04.
build_packages=(g++ cmake ninja-build pkg-config libhwy-dev nlohmann-json3-dev libcli11-dev libfmt-dev
  libutf8proc-dev libpng-dev libjpeg-dev libwebp-dev libzip-dev libxxhash-dev libcurl4-openssl-dev libssl-dev
  "$boost_package")
test_packages=(libgtest-dev libgmock-dev curl python3-numpy python3-pil python3-selenium
  "${browser_packages[@]}" zsh fish mandoc)
bench_packages=(libbenchmark-dev libgtest-dev libgmock-dev)
python_packages=(python3 python3-venv)

is_installed() {
  # dpkg-query prints a line for each architecture that it knows the package for
  dpkg-query -W -f='${db:Status-Status}\n' "$1" 2>/dev/null | grep '^installed$' >/dev/null
}

# package_of FILE: the Debian package that it comes from. With /usr merged, dpkg may know it without /usr.
package_of() {
  local path
  path=$(realpath "$1")
  { dpkg -S "$path" || dpkg -S "${path#/usr}"; } 2>/dev/null | sed 's/: .*//; s/:.*//' | head -1
}

# Installs the packages that are missing, and says which. On systems without apt it does nothing: CMake says what it
# does not find, and `build` then names the libraries.
need() {
  command -v apt-get >/dev/null && command -v dpkg-query >/dev/null || return 0
  local missing=() package
  for package in "$@"; do is_installed "$package" || missing+=("$package"); done
  [ ${#missing[@]} -eq 0 ] && return
  local as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || {
      say "these packages are missing; install them as root: ${missing[*]}"
      exit 1
    }
    as_root=(sudo)
  fi
  "${as_root[@]}" apt-get update -qq >&2
  say "installing ${missing[*]}"
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" \
    >"$project/build/packages.log" 2>&1 || {
    tail -20 "$project/build/packages.log" >&2
    say "apt-get could not install them; the log is build/packages.log"
    exit 1
  }
}

# count_steps LABEL LOG: writes its input to LOG, and shows how far "[12/340]" or "12/340 Test" in it has come: on a
# terminal in one line, elsewhere in a line for every quarter.
count_steps() {
  local label=$1 line step total quarter shown=0
  exec 3>"$2"
  while IFS= read -r line; do
    printf '%s\n' "$line" >&3
    [[ $line =~ ^[[:space:]]*\[?([0-9]+)/([0-9]+)(\]| Test) ]] || continue
    step=${BASH_REMATCH[1]} total=${BASH_REMATCH[2]}
    if [ -t 2 ]; then
      printf '\r\033[2Krun: %s: %s of %s' "$label" "$step" "$total" >&2
    else
      quarter=$((4 * step / total))
      if [ "$quarter" -gt "$shown" ]; then say "$label: $step of $total"; fi
      shown=$quarter
    fi
  done
  exec 3>&-
  if [ -t 2 ]; then printf '\r\033[2K' >&2; fi
}

# quietly LABEL LOG COMMAND…: the command's output goes to LOG; a line shows how far it is. Returns the command's code.
quietly() {
  local label=$1 log=$2
  shift 2
  "$@" 2>&1 | count_steps "$label" "$log"
  return "${PIPESTATUS[0]}"
}
