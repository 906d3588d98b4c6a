# shellcheck shell=bash
# The archive: the installed tree with the libraries that it needs beside it, and their licences.

# Parts of glibc, which every system has: they must fit its loader and kernel.
glibc='^(ld-linux.*|lib(c|m|dl|rt|pthread|resolv|util|anl|nsl|mvec|nss_.*|BrokenLocale|thread_db))\.so'

# shellcheck disable=SC2016  # $ORIGIN is for the loader
# bundle_libraries TREE: copies them to lib/qwen-image, where program and library look first, and nowhere else.
bundle_libraries() {
  local tree=$1 name arrow path rest
  mkdir -p "$tree/lib/qwen-image"
  while read -r name arrow path rest; do
    [[ $arrow = "=>" ]] || continue
    [[ $path = /* ]] || { say "archive: $name is not found"; exit 1; }
    [[ $name =~ $glibc ]] && continue
    cp -L "$path" "$tree/lib/qwen-image/$name"
    package_of "$path" >>"$tree/packages"
  done < <(ldd "$tree/bin/qwen-image" "$tree"/lib/libqwen_image.so)
  printf '%s\n' "${header_packages[@]}" >>"$tree/packages"
  sort -u -o "$tree/packages" "$tree/packages"
  # RPATH, not RUNPATH: LD_LIBRARY_PATH, which other programs set, does not replace these.
  chmod u+w "$tree"/lib/qwen-image/*
  patchelf --force-rpath --set-rpath '$ORIGIN' "$tree"/lib/qwen-image/*
  patchelf --force-rpath --set-rpath '$ORIGIN/../lib/qwen-image' "$tree/bin/qwen-image"
  patchelf --force-rpath --set-rpath '$ORIGIN/qwen-image' "$(realpath "$tree/lib/libqwen_image.so")"
}

# The packages' licences, and a list of what comes from where.
archive_licences() {
  local tree=$1 folder=$1/share/doc/qwen_image/licences package
  copy_licences "$folder" <"$tree/packages"
  {
    echo "The libraries in lib/qwen-image, and headers that are compiled into the program, come from these packages of"
    echo "$(. /etc/os-release && echo "$PRETTY_NAME"), where their sources are. PACKAGE.txt beside this file is the licence of each."
    echo
    while read -r package; do
      dpkg-query -W -f='${Package} ${Version} (source: ${source:Package} ${source:Version})\n' "$package" | head -1
    done <"$tree/packages"
  } >"$folder/README"
  rm "$tree/packages"
}

# newest_glibc TREE: the version that its files ask for.
newest_glibc() {
  find "$1/bin" "$1/lib" -type f \( -name '*.so*' -o -name qwen-image \) -exec objdump -T {} + 2>/dev/null |
    grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -1 | sed 's/GLIBC_//'
}

package_archive() {
  need patchelf xz-utils binutils
  build_release qwen-image qwen_image
  local name tree
  name=qwen-image-$(package_version)-linux-$(uname -m)
  tree=$packages/stage/$name
  say "packing $name"
  rm -rf "$packages/stage" "$packages"/qwen-image-*.tar.xz
  cmake --install "$project/build/release" --prefix "$tree" --strip >"$packages/archive.log"
  bundle_libraries "$tree"
  archive_licences "$tree"
  say "the archive needs glibc $(newest_glibc "$tree") or newer"
  # the same bytes for the same tree
  tar -C "$packages/stage" --sort=name --owner=0 --group=0 --numeric-owner --mode=u+rw,go+r-w \
    --mtime="@$(package_date)" -c "$name" | xz -T1 -6 >"$packages/$name.tar.xz"
  rm -rf "$packages/stage"
}
