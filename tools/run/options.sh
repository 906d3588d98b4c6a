# shellcheck shell=bash
# Writes what is made from the declarations of settings: tables in docs/, Python's signature.

run_options() {
  need "${build_packages[@]}" "${test_packages[@]}"
  build test release --target write_options
  "$project/build/release/tools/options/write_options" "$project"
}
