# shellcheck shell=bash
# Packages for others, in build/package: an archive that runs anywhere, a Debian package, a wheel, an image for Docker;
# their checksums and what they contain. Each has a script in tools/package (docs/packages.md).

packages=$project/build/package

package_version() { sed -n 's/^project(qwen_image VERSION \([0-9.]*\).*/\1/p' "$project/CMakeLists.txt"; }

# The time of the last commit: the same sources make the same packages. A tree without git has the time of its version.
package_date() { git -C "$project" log -1 --format=%ct 2>/dev/null || stat -c %Y "$project/CMakeLists.txt"; }

package_help() {
  cat <<'HELP'
Usage: ./run package [archive] [deb] [wheel] [docker] [check [lists|service|archive|deb|wheel|docker|source]]

Without a word: archive, deb and wheel. Then SHA256SUMS and an SBOM are written beside them, in build/package.
  archive   qwen-image-VERSION-linux-x86_64.tar.xz: runs on any x86-64 Linux with this system's glibc or a newer one
  deb       qwen-image_VERSION-1_amd64.deb: for this version of Debian or Ubuntu
  wheel     for Python
  docker    an image, by buildah on a base made by debootstrap (as root)
  check     try what is in build/package in empty roots of Debian 12 and 13 (as root; needs debootstrap)
HELP
}

# Checksums and contents of whatever lies there.
describe_packages() {
  need python3
  SOURCE_DATE_EPOCH=$(package_date) python3 "$project/tools/package/sbom.py" "$packages" "$(package_version)" "${header_packages[@]}"
  (cd "$packages" && find . -maxdepth 1 -type f \( -name '*.tar.xz' -o -name '*.deb' -o -name '*.whl' -o -name '*.json' \) \
    -printf '%f\n' | LC_ALL=C sort | xargs sha256sum >SHA256SUMS)
  say "in build/package: $(cd "$packages" && cut -c 67- SHA256SUMS | paste -sd ' ') SHA256SUMS"
}

# What is compiled into the program from headers alone: no file of theirs shows it.
header_packages=(libhwy-dev "$boost_package" nlohmann-json3-dev libcli11-dev libfmt-dev)

# copy_licences FOLDER: of the packages that the input names, and the common ones that these refer to.
copy_licences() {
  local folder=$1 package common
  mkdir -p "$folder/common-licenses"
  while read -r package; do cp -L "/usr/share/doc/$package/copyright" "$folder/$package.txt"; done
  grep -hoE '/usr/share/common-licenses/[A-Za-z]+[-.0-9A-Za-z]*[0-9A-Za-z]' "$folder"/*.txt | sort -u | while read -r common; do
    [ ! -f "$common" ] || cp -L "$common" "$folder/common-licenses"
  done
}

run_package() {
  mkdir -p "$packages"
  local kind kinds=("$@")
  case ${1:-} in
    -h | --help)
      package_help
      return
      ;;
    check)
      # shellcheck source=tools/package/check.sh
      . "$project/tools/package/check.sh"
      check_packages "${@:2}"
      return
      ;;
    "") kinds=(archive deb wheel) ;;
  esac
  for kind in "${kinds[@]}"; do
    [[ $kind =~ ^(archive|deb|wheel|docker)$ ]] || {
      say "package: there is no $kind"
      package_help >&2
      exit 2
    }
    [ -f "$project/tools/package/$kind.sh" ] || {
      say "package: $kind cannot be made: tools/package/$kind.sh is missing"
      exit 1
    }
  done
  for kind in "${kinds[@]}"; do
    # shellcheck source=/dev/null
    . "$project/tools/package/$kind.sh"
    "package_$kind"
  done
  describe_packages
}
