# shellcheck shell=bash
# Tries the packages in build/package where nothing of the project is: in fresh roots made by debootstrap (as root). A root
# is a folder of 200 MB that is removed afterwards; its /proc is mounted in a namespace that ends with the command.

roots=$packages/roots
archive_name() { echo "qwen-image-$(package_version)-linux-$(uname -m)"; }

# shellcheck disable=SC2016  # the variable is apt's
# The mirror that this machine's apt uses.
mirror() { apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | head -1; }

# fresh_root SUITE NAME: prints the folder. What debootstrap made is kept packed, for the next one.
fresh_root() {
  local suite=$1 root=$roots/$2
  if [ ! -f "$roots/$suite.tar" ]; then
    say "check: making a root of $suite"
    remove_root "$suite.new"
    debootstrap --variant=minbase "$suite" "$roots/$suite.new" "$(mirror)" >"$roots/$suite.log" 2>&1 || {
      tail -5 "$roots/$suite.log" >&2
      exit 1
    }
    tar -C "$roots/$suite.new" -cf "$roots/$suite.tar" .
    remove_root "$suite.new"
  fi
  remove_root "$2"
  mkdir -p "$root"
  tar -C "$root" -xf "$roots/$suite.tar"
  cp -L /etc/resolv.conf "$root/etc/resolv.conf"
  echo 'Acquire::Check-Valid-Until "false";' >"$root/etc/apt/apt.conf.d/check" # of a mirror that stands still
  echo "$root"
}

remove_root() { rm -rf --one-file-system "${roots:?}/$1"; }

# enter_root ROOT: sets the command `enter`, to be followed by one that runs there in an empty environment.
enter_root() {
  enter=(unshare --mount --pid --fork --kill-child=TERM --mount-proc="$1/proc" chroot "$1"
    env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive)
}

# in_root ROOT SCRIPT: runs it there by sh, which stops at the first failure.
in_root() {
  local enter
  enter_root "$1"
  "${enter[@]}" sh -euc "$2"
}

fail() {
  say "check: $*"
  exit 1
}

# draws ROOT PROGRAM: text, edit, doctor; the picture is the one that this machine draws.
draws() {
  in_root "$1" "cd /tmp
    $2 --version
    $2 generate 'a red circle on a blue background' --seed 7 -q -o circle.png
    $2 edit 'make the circle green' --input-image circle.png -q -o green.png
    $2 doctor >doctor.txt
    $2 completions bash >completions && $2 man >page"
  "$project/build/release/qwen-image" generate 'a red circle on a blue background' --seed 7 -q -o "$roots/circle.png"
  cmp "$roots/circle.png" "$1/tmp/circle.png"
  [ -s "$1/tmp/green.png" ]
}

# serves ROOT PROGRAM: a client outside of the root sees the page and gets a picture. The last job is waited for.
serves() {
  local root=$1 log=$1/tmp/serve.txt address="" server line enter
  mkfifo "$roots/said"
  enter_root "$root"
  "${enter[@]}" "$2" serve --port 0 --jobs-dir /tmp/jobs 2>"$log" >"$roots/said" &
  server=$!
  # shellcheck disable=SC2064  # the one that is running now
  trap "kill $server" EXIT
  read -r line <"$roots/said" || line=""
  rm "$roots/said"
  address=$(grep -oE 'http://127\.0\.0\.1:[0-9]+' <<<"$line") || { cat "$log" >&2; fail "serve did not start"; }
  [[ $(curl -fsS "$address/") == *"<html"* ]] || fail "serve: no page"
  curl -fsS --max-time 300 "$address/v1/images/generations" -H 'Content-Type: application/json' \
    -d '{"prompt": "a red circle on a blue background", "size": "128x128", "response_format": "b64_json"}' |
    python3 -c 'import base64, json, sys; assert base64.b64decode(json.load(sys.stdin)["data"][0]["b64_json"])[1:4] == b"PNG"' ||
    fail "serve: no picture"
  # the program itself; the command around it ends after it
  pkill -TERM -P "$server"
  wait "$server" || fail "serve ended with $?"
  trap - EXIT
}

# pulls ROOT PROGRAM: by https, from a server whose certificate is put where other systems have theirs. First without any.
pulls() {
  local root=$1 pull="HF_ENDPOINT=ADDRESS HF_HOME=/tmp/hf $2 pull qwen-image-cpp/tiny -q" place said
  mkdir -p "$roots/hub"
  coproc hub { PYTHONPATH=$project exec python3 -m tools.package.https_hub "$roots/hub"; }
  local to_hub=${hub[1]} pid=$hub_PID address
  read -r address <&"${hub[0]}"
  pull=${pull/ADDRESS/$address}
  rm -rf "$root/etc/ssl" "$root/etc/pki"
  said=$(in_root "$root" "$pull" 2>&1) && fail "pull trusts a server that nothing speaks for"
  [[ $said == *"no certificates"*"ca-certificates"* ]] || fail "pull without certificates says: $said"
  for place in etc/ssl/certs/ca-certificates.crt etc/pki/tls/certs/ca-bundle.crt etc/ssl/ca-bundle.pem etc/ssl/cert.pem \
    etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem; do
    mkdir -p "$root/$(dirname "$place")"
    cp "$roots/hub/authority.pem" "$root/$place"
    in_root "$root" "$pull && rm -r /tmp/hf" >/dev/null || fail "pull does not find /$place"
    rm -rf "$root/etc/ssl" "$root/etc/pki"
  done
  cp "$roots/hub/authority.pem" "$root/tmp/own.pem"
  in_root "$root" "SSL_CERT_FILE=/tmp/own.pem $pull" >/dev/null || fail "pull does not heed SSL_CERT_FILE"
  exec {to_hub}>&-
  wait "$pid" || true
  rm -rf "$roots/hub"
}

# Moved, with a space in its name, and beside libraries of other programs that have the same names.
stands_alone() {
  local root=$1 folder=$2
  in_root "$root" "mv /opt/$folder '/opt/moved here'
    cd /tmp && mkdir wrong && for library in '/opt/moved here'/lib/qwen-image/*; do echo >wrong/\${library##*/}; done
    LD_LIBRARY_PATH=/tmp/wrong '/opt/moved here/bin/qwen-image' generate star --steps 1 -q -o moved.png
    LD_TRACE_LOADED_OBJECTS=1 '/opt/moved here/bin/qwen-image' >loaded.txt
    mv '/opt/moved here' /opt/$folder"
  # shellcheck source=tools/package/archive.sh
  . "$project/tools/package/archive.sh"
  local name rest foreign=""
  while read -r name rest; do
    [[ $rest == *"/opt/"* || $name == linux-vdso* || ${name##*/} =~ $glibc ]] || foreign+=" $name"
  done <"$root/tmp/loaded.txt"
  [ -z "$foreign" ] || fail "the archive takes from the system:$foreign"
}

# A program in C, compiled here against the archive, runs there with its library.
links() {
  local root=$1 tree=$1/opt/$2
  cc -std=c99 "$project/examples/c/generate.c" -I "$tree/include" -L "$tree/lib" -lqwen_image -o "$root/tmp/own"
  in_root "$root" "cd /tmp && LD_LIBRARY_PATH=/opt/$2/lib ./own /opt/$2/share/qwen-image/models/tiny 'a star' own.png 2>own.txt" ||
    { cat "$root/tmp/own.txt" >&2; fail "a program that links the library does not draw"; }
  [ -s "$root/tmp/own.png" ]
}

check_archive() {
  local suite root name
  name=$(archive_name)
  for suite in bookworm trixie; do
    root=$(fresh_root "$suite" "archive-$suite")
    tar -C "$root/opt" -xf "$packages/$name.tar.xz"
    draws "$root" "/opt/$name/bin/qwen-image"
    serves "$root" "/opt/$name/bin/qwen-image"
    pulls "$root" "/opt/$name/bin/qwen-image"
    stands_alone "$root" "$name"
    links "$root" "$name"
    remove_root "archive-$suite"
    say "check: the archive draws, edits, serves, pulls and is linked on $suite"
  done
}

# In a root of the system that it was built on.
check_deb() {
  need lintian man-db
  local root suite file
  suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
  file=$(cd "$packages" && echo qwen-image_*.deb)
  lintian --fail-on error "$packages/$file" || fail "lintian"
  root=$(fresh_root "$suite" "deb-$suite")
  install_deb "$root"
  draws "$root" qwen-image
  serves "$root" qwen-image
  in_root "$root" "dpkg -L qwen-image | grep -v '^/\.$' >/tmp/list
    for file in /usr/share/man/man1/qwen-image.1.gz /usr/share/bash-completion/completions/qwen-image \
      /usr/share/zsh/vendor-completions/_qwen-image /usr/share/fish/vendor_completions.d/qwen-image.fish \
      /usr/lib/systemd/system/qwen-image.service /etc/default/qwen-image /usr/lib/libqwen_image.so; do test -e \$file; done
    test ! -e /etc/systemd/system/multi-user.target.wants/qwen-image.service
    apt-get -qq -y purge qwen-image" >>"$roots/apt.log" 2>&1 || { tail -20 "$roots/apt.log" >&2; fail "apt does not remove it"; }
  local left
  left=$(grep qwen "$root/tmp/list" | while read -r file; do [ ! -e "$root$file" ] || echo "$file"; done)
  [ -z "$left" ] || fail "left behind: $left"
  remove_root "deb-$suite"
  say "check: the Debian package is installed, draws, edits, serves and is removed on $suite"
}

# install_deb ROOT [PACKAGES]: the Debian package and others, by apt.
install_deb() {
  local root=$1 file
  file=$(cd "$packages" && echo qwen-image_*.deb)
  cp "$packages/$file" "$root/tmp"
  in_root "$root" "apt-get -qq update && apt-get -qq -y --no-install-recommends install /tmp/$file ${*:2}" >"$roots/apt.log" 2>&1 || {
    tail -20 "$roots/apt.log" >&2
    fail "apt does not install it"
  }
}

# What systemd thinks of the unit; then systemd is started in a root, with the service, and a job that asks it for a picture.
check_service() {
  need systemd systemd-container
  local unit=$roots/qwen-image.service root suite
  # a program that is there
  sed "s#/usr/bin/qwen-image#$project/build/release/qwen-image#" "$project/tools/package/deb/qwen-image.service" >"$unit"
  systemd-analyze verify --man=no "$unit" || fail "systemd-analyze verify"
  systemd-analyze security --offline=true --threshold=20 "$unit" | tail -1 || fail "the service is less confined than 2.0"
  rm "$unit"
  suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
  root=$(fresh_root "$suite" "service-$suite")
  install_deb "$root" systemd systemd-sysv curl
  cat >"$root/etc/systemd/system/try.service" <<'UNIT'
[Unit]
After=qwen-image.service
SuccessAction=poweroff
FailureAction=poweroff
[Service]
Type=oneshot
ExecStart=/bin/sh /try
StandardOutput=file:/result
StandardError=inherit
[Install]
WantedBy=multi-user.target
UNIT
  cat >"$root/try" <<'SCRIPT'
trap 'journalctl --no-pager -u qwen-image' EXIT
set -e
curl -fsS --retry 60 --retry-delay 1 --retry-connrefused --max-time 100 http://127.0.0.1:8080/v1/images/generations \
  -H 'Content-Type: application/json' -d '{"prompt": "a red circle", "size": "128x128", "response_format": "b64_json"}' >/answer
grep -q b64_json /answer
process=$(systemctl show -P MainPID qwen-image)
grep -E '^(Uid|NoNewPrivs|Seccomp|CapBnd):' /proc/$process/status
ls -d /var/lib/private/qwen-image/jobs
systemctl stop qwen-image
test "$(systemctl show -P Result qwen-image)" = success
echo served
SCRIPT
  in_root "$root" "systemctl -q enable qwen-image.service try.service"
  timeout 300 systemd-nspawn -q --register=no --keep-unit --private-network -D "$root" --boot >"$roots/boot.log" 2>&1 ||
    fail "systemd does not run in a root here; the log is build/package/roots/boot.log"
  if ! grep -qx served "$root/result"; then
    cat "$root/result" >&2
    fail "the service does not draw"
  fi
  grep -E '^(Uid|NoNewPrivs|Seccomp|CapBnd):' "$root/result"
  remove_root "service-$suite"
  say "check: the service draws under systemd on $suite"
}

# SPDX's own tool reads the list of contents; the checksums are right.
check_lists() {
  need python3-venv
  (cd "$packages" && sha256sum --quiet -c SHA256SUMS)
  [ -x "$packages/venv/bin/pyspdxtools" ] || {
    python3 -m venv "$packages/venv"
    "$packages/venv/bin/pip" install -q spdx-tools==0.8.3 2>"$packages/spdx.log" || fail "pip: $(tail -1 "$packages/spdx.log")"
  }
  "$packages/venv/bin/pyspdxtools" -i "$packages"/qwen-image-*.spdx.json >"$packages/spdx.log" 2>&1 || {
    tail -20 "$packages/spdx.log" >&2
    fail "the SBOM is not valid"
  }
  say "check: checksums and SBOM are right"
}

# ./run builds in a clone where nothing is installed but git: Debian 13, as most run this on 12.
check_source() {
  local root
  root=$(fresh_root trixie source-trixie)
  git clone -q "$project" "$root/opt/qwen-image.cpp"
  in_root "$root" "apt-get -qq update && apt-get -qq -y --no-install-recommends install git ca-certificates" >"$roots/apt.log" 2>&1
  in_root "$root" "cd /opt/qwen-image.cpp && ./run generate 'a red circle' -q -o /tmp/circle.png"
  [ -s "$root/tmp/circle.png" ]
  remove_root source-trixie
  say "check: ./run builds and draws on trixie"
}

# there KIND PATTERN: whether it was made.
there() { compgen -G "$packages/$2" >/dev/null || fail "there is no $2 in build/package; make it: ./run package $1"; }

check_packages() {
  local kind kinds=("$@")
  [ $# -gt 0 ] || kinds=(lists service archive deb)
  [ "$(id -u)" -eq 0 ] || fail "only root can make roots"
  need debootstrap curl python3 openssl util-linux
  mkdir -p "$roots"
  for kind in "${kinds[@]}"; do
    case $kind in
      archive) there archive "$(archive_name).tar.xz" ;;
      deb | service) there deb "qwen-image_$(package_version)-*.deb" ;;
      lists) there archive "qwen-image-$(package_version).spdx.json" ;;
    esac
    case $kind in
      lists | service | archive | deb | source) "check_$kind" ;;
      wheel | docker)
        # shellcheck source=/dev/null
        . "$project/tools/package/$kind.sh"
        "check_$kind"
        ;;
      *)
        say "package check: there is no $kind"
        exit 2
        ;;
    esac
  done
}
