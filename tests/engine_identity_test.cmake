# cmake -DROOT=… -DBUILD=… -DSCRATCH=… -P engine_identity_test.cmake: the engine's identity covers every source that computes.
# What runs keep on disk for later ones is found again by that identity: a source that is left out lets it outlive a change.
cmake_minimum_required(VERSION 3.22)
include(${ROOT}/cmake/engine_sources.cmake)

# 1. Of this tree: all that is compiled for the library, whatever folder it stands in.
engine_sources(${ROOT} COVERED)
file(READ ${BUILD}/compile_commands.json COMMANDS)
string(REGEX MATCHALL "\"file\": \"[^\"]+" COMPILED "${COMMANDS}")
list(TRANSFORM COMPILED REPLACE "\"file\": \"" "")
list(FILTER COMPILED INCLUDE REGEX "^${ROOT}/src/")
list(FILTER COMPILED EXCLUDE REGEX "_test\\.cc$")
list(LENGTH COMPILED COUNT)
if(COUNT LESS 50)
  message(SEND_ERROR "only ${COUNT} sources of the library in ${BUILD}/compile_commands.json")
endif()
foreach(SOURCE ${COMPILED})
  if(NOT SOURCE IN_LIST COVERED)
    message(SEND_ERROR "${SOURCE} is compiled, but is not part of the engine's identity")
  endif()
endforeach()

# 2. Of any tree: each of these changes the hash, in rooms that nobody has heard of, too; a test does not.
function(hash_of_scratch RESULT)
  execute_process(COMMAND ${CMAKE_COMMAND} -DROOT=${SCRATCH} -DBUILD=test -DOUT=${SCRATCH}/hash.h -P ${ROOT}/cmake/engine_hash.cmake
    COMMAND_ERROR_IS_FATAL ANY)
  file(READ ${SCRATCH}/hash.h HASH)
  set(${RESULT} "${HASH}" PARENT_SCOPE)
endfunction()

set(COMPUTE src/core/view.h src/kernels/int8/matmul.cc src/kernels/gemm-inl.h src/mlx/layers.cc src/families/any/block.cc
  src/new_room/deep/down/sum.cc src/kernels/CMakeLists.txt src/families/table.def include/qwen_image/request.h)
set(TESTS src/kernels/int8/matmul_test.cc src/kernels/kernels_testing.h)
file(REMOVE_RECURSE ${SCRATCH})
foreach(SOURCE ${COMPUTE} ${TESTS})
  file(WRITE ${SCRATCH}/${SOURCE} "one")
endforeach()
foreach(SOURCE ${COMPUTE} ${TESTS})
  hash_of_scratch(BEFORE)
  file(WRITE ${SCRATCH}/${SOURCE} "two")
  hash_of_scratch(AFTER)
  if(SOURCE IN_LIST TESTS AND NOT BEFORE STREQUAL AFTER)
    message(SEND_ERROR "${SOURCE} computes nothing, but it is part of the engine's identity")
  elseif(SOURCE IN_LIST COMPUTE AND BEFORE STREQUAL AFTER)
    message(SEND_ERROR "a change of ${SOURCE} does not change the engine's identity")
  endif()
endforeach()
file(REMOVE_RECURSE ${SCRATCH})
