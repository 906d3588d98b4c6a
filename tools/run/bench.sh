# shellcheck shell=bash
# Measurements: of the kernels against the machine's peak, and of this engine against others.

run_bench() {
  case ${1:-} in
    --help | -h)
      usage
      return
      ;;
    --peers)
      shift
      # shellcheck source=tools/run/python.sh
      . "$project/tools/run/python.sh"
      bench_peers "$@"
      return
      ;;
    --network)
      shift
      bench_network "$@"
      return
      ;;
  esac
  need "${build_packages[@]}" "${bench_packages[@]}"
  build bench bench --target kernels_bench
  "$project/build/bench/bench/kernels_bench" "$@"
}

# What a network costs several machines, which are network namespaces of this one.
bench_network() {
  need "${python_packages[@]}" python3-numpy iproute2 openmpi-bin
  "$project/run" build --mpi
  cd "$caller_folder"
  exec env "PYTHONPATH=$project" /usr/bin/python3 -m tools.machines.network "$project/build/release/qwen-image" "$@"
}

# The peers that PyPI has ready. One that cannot be had is left out, and its lines say so.
peer_packages() {
  requirements peers || say "OpenVINO cannot be installed"
  requirements peers_alone --no-deps || say "torchao cannot be installed"
}

# asks_for PATTERN ARGUMENTS: whether a line is to be measured whose name fits: one that --only names, or all without it.
asks_for() {
  local pattern=$1 word before="" answer=0
  shift
  for word in "$@"; do
    if [ "$before" = --only ]; then
      # shellcheck disable=SC2053
      [[ $word = $pattern ]] && return
      answer=1
    fi
    before=$word
  done
  return "$answer"
}

bench_peers() {
  python_environment
  local bench=("${tool_program[@]}" tools.peers.bench_peers) all=no
  # The only peer of Qwen-Image-2.1 is diffusers, which the environment has.
  if asks_for '[!2]*' "$@"; then all=yes; fi
  case " $* " in *" --report "* | *" --help "* | *" -h "* | *" --list "*) exec "${bench[@]}" "$@" ;; esac
  "${bench[@]}" --list "$@" >/dev/null 2>&1 || exec "${bench[@]}" --list "$@"  # says what is wrong with the options
  if [ "$all" = yes ]; then peer_packages; fi
  build_release
  if [ "$all" = yes ]; then
    need "${bench_packages[@]}"
    build bench bench --target kernels_bench vae_encode_bench
    sd_program native ON || say "stable-diffusion.cpp cannot be built"
    if asks_for 'avx2*' "$@"; then sd_program build OFF || say "stable-diffusion.cpp cannot be built for AVX2"; fi
  fi
  cd "$caller_folder"
  exec "${bench[@]}" "$@"
}
