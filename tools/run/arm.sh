# shellcheck shell=bash
# The kernels for Arm, which has instructions of its own for them. Everything else is the same code everywhere.

arm_packages=(g++-aarch64-linux-gnu qemu-user cmake ninja-build libhwy-dev:arm64 libfmt-dev:arm64 libutf8proc-dev:arm64
  libpng-dev:arm64 libjpeg62-turbo-dev:arm64 libwebp-dev:arm64 libzip-dev:arm64 libxxhash-dev:arm64
  libcurl4-openssl-dev:arm64 libssl-dev:arm64 libgtest-dev:arm64 libgmock-dev:arm64 libboost1.81-dev:arm64 nlohmann-json3-dev
  libcli11-dev)

run_arm() {
  dpkg --print-foreign-architectures | grep -qx arm64 || {
    say "letting dpkg install packages for arm64"
    if [ "$(id -u)" -ne 0 ]; then sudo dpkg --add-architecture arm64; else dpkg --add-architecture arm64; fi
  }
  need "${arm_packages[@]}"
  build arm arm --target kernels_test core_test
  local program
  for program in core kernels; do
    qemu-aarch64 -cpu max -L / "$project/build/arm/src/$program/${program}_test" "$@"
  done
}
