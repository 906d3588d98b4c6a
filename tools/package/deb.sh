# shellcheck shell=bash
# The Debian package; cmake/package.cmake describes it.

package_deb() {
  need dpkg-dev file gzip
  build_release qwen-image qwen_image
  say "packing the Debian package"
  rm -f "$packages"/*.deb
  (cd "$project/build/release" && SOURCE_DATE_EPOCH=$(package_date) \
    cpack -G DEB -B "$packages/cpack") >"$packages/deb.log" 2>&1 || {
    tail -20 "$packages/deb.log" >&2
    say "cpack failed; the log is build/package/deb.log"
    exit 1
  }
  mv "$packages"/cpack/*.deb "$packages"
  rm -rf "$packages/cpack"
}
