# shellcheck shell=bash
# The tests, as users and CI run them.

# run_ctest NAME FOLDER ARGUMENTS: ctest in build/FOLDER; its output is in build/FOLDER/NAME.log. What failed is shown.
run_ctest() {
  local name=$1 folder=$project/build/$2 code=0
  shift 2
  cd "$folder"
  # One more than there are processors: the tests of the page wait more than they compute.
  quietly "testing" "$folder/$name.log" ctest --no-tests="$no_tests" --output-on-failure -j $(($(nproc) + 1)) "$@" || code=$?
  awk '/\*\*\*/ && !/\*\*\*Skipped/ {show = 1; print; next}
    /^ *[0-9]+\/[0-9]+ Test|^ +Start / {show = 0}
    show || /tests passed|^No tests were found|^Total Test time/' "$folder/$name.log" >&2
  if [ "$code" -ne 0 ]; then say "tests failed; the log is build/$(basename "$folder")/$name.log"; fi
  return "$code"
}

# What a choice of tests (ctest's -R) may leave empty, as it does in one of several folders.
no_tests=error

run_test() {
  [ $# -lt 2 ] || no_tests=ignore
  case ${1:-} in
    --sanitize)
      shift
      test_sanitized "$@"
      ;;
    --mlx)
      shift
      test_mlx "$@"
      ;;
    --machines)
      shift
      test_machines "$@"
      ;;
    --*)
      say "test: unknown option $1; there are --sanitize, --mlx and --machines, and ctest's short ones, as -R NAME"
      exit 2
      ;;
    *)
      need "${build_packages[@]}" "${test_packages[@]}"
      build test release
      (run_ctest tests release -LE '^machines$' "$@")
      ;;
  esac
}

# The same tests under the address and undefined-behaviour sanitizers; then the threads of the pool and of the server
# under the thread sanitizer.
test_sanitized() {
  need "${build_packages[@]}" "${test_packages[@]}"
  build asan asan
  # The commands of the documents are those of other tests, only larger.
  (run_ctest tests asan -E '^Docs\.' "$@")
  build tsan tsan --target core_test server_test server_api_test server_http_test server_jobs_test server_page_test
  export TSAN_OPTIONS=suppressions=$project/tests/tsan.supp
  (run_ctest tests tsan/src/core "$@")
  (run_ctest tests tsan/apps/server "$@")
}

# One picture on several machines, as processes that mpirun starts here.
test_mpi() {
  need "${build_packages[@]}" "${test_packages[@]}"
  build test release --target qwen-image
  add_mpi qwen-image mpi_plugins machines_cli_test
  (run_ctest machines release -L '^machines$' "$@")
}

# What draws on several machines. Each part installs what it needs.
test_machines() {
  test_mpi "$@"
  test_nats "$@"
}

# Jobs on a NATS server: a real one on this machine. The object store is read back by NATS' own Python client.
test_nats() {
  need "${build_packages[@]}" "${test_packages[@]}" "${python_packages[@]}" libnats-dev nats-server openssl
  local environment=$project/build/nats_venv requirements=$project/tools/requirements/nats.txt
  build test release --target qwen-image
  find_libnats
  build test release --target qwen-image qwen_image_nats nats_test
  [ -x "$environment/bin/pip" ] || python3 -m venv "$environment"
  cmp -s "$requirements" "$environment/nats.txt" || {
    say "installing what tools/requirements/nats.txt lists"
    "$environment/bin/pip" install -q -r "$requirements"
    cp "$requirements" "$environment/nats.txt"
  }
  say "testing jobs on a NATS server"
  QWEN_IMAGE_NATS_PYTHON=$environment/bin/python "$project/build/release/nats_test" "$@"
  (cd "$project" && "$environment/bin/python" -m tools.machines.nats_storm build/release/qwen-image --jobs 30 --seed 1)
}

test_mlx() {
  # shellcheck source=tools/run/mlx.sh
  . "$project/tools/run/mlx.sh"
  need "${build_packages[@]}" libgtest-dev libgmock-dev
  find_mlx
  build mlx mlx --target qwen-image mlx_test families_mlx_test goldens_test cli_test
  # One at a time: MLX compiles kernels into a folder that all processes share, and loads what another one has half written.
  (run_ctest tests mlx -L '^mlx$' -j 1 "$@")
  (run_ctest tests_of_all mlx -R 'Mlx|mlx_cpu' -LE '^mlx$' -j 1 "$@")
}
