# shellcheck shell=bash
# The image of the Dockerfile, by buildah, which needs no daemon; on a base that debootstrap makes, as registries of images
# may be out of reach.

# Its images and containers lie in build/package, not among the user's.
image_tool() {
  STORAGE_DRIVER=vfs BUILDAH_ISOLATION=chroot buildah --root "$packages/containers" --runroot "$packages/containers-run" "$@"
}

package_docker() {
  need buildah debootstrap
  # shellcheck source=tools/package/check.sh
  . "$project/tools/package/check.sh"
  [ "$(id -u)" -eq 0 ] || fail "only root can make the base of the image"
  local root
  mkdir -p "$roots"
  if ! image_tool inspect --type image localhost/debian:12 >/dev/null 2>&1; then
    root=$(fresh_root bookworm base)
    tar -C "$root" -cf "$roots/base.tar" .
    remove_root base
    mkdir -p "$roots/base"
    mv "$roots/base.tar" "$roots/base"
    printf 'FROM scratch\nADD base.tar /\n' >"$roots/base/Dockerfile"
    image_tool build -q -t localhost/debian:12 "$roots/base" >/dev/null
    remove_root base
  fi
  say "building the image (it compiles everything anew)"
  image_tool build --pull-never --build-arg BASE=localhost/debian:12 -t "localhost/qwen-image:$(package_version)" "$project" \
    >"$packages/docker.log" 2>&1 || {
    tail -20 "$packages/docker.log" >&2
    fail "buildah failed; the log is build/package/docker.log"
  }
}

# A container of it draws as its user; served to others it asks for a key.
check_docker() {
  local container said
  container=$(image_tool from --pull-never "localhost/qwen-image:$(package_version)")
  [ "$(image_tool run "$container" -- id -u)" = 990 ] || fail "the image runs as root"
  image_tool run "$container" -- qwen-image generate 'a red circle' -q -o /data/circle.png
  said=$(image_tool run "$container" -- qwen-image serve --host 0.0.0.0 --port 0 2>&1) && fail "the image serves without a key"
  [[ $said == *key* ]] || fail "the image says: $said"
  image_tool rm "$container" >/dev/null
  say "check: the image draws, not as root, and serves with a key only"
}
