# One static library per folder of src/. A library includes and links only what stands below it: tests/rooms_test.py
# fails for a wrong direction.
#
#   qwen_image_library(<folder> SOURCES a.cc … DEPENDS core … [PACKAGES fmt::fmt …] [TESTS a_test.cc …] [LABEL fast])
#
# The tests of a folder make one program, <folder>_test.
function(qwen_image_library NAME)
  cmake_parse_arguments(ARG "" "LABEL" "SOURCES;DEPENDS;PACKAGES;TESTS" ${ARGN})
  list(TRANSFORM ARG_DEPENDS PREPEND qwen_image_)
  add_library(qwen_image_${NAME} STATIC ${ARG_SOURCES})
  target_include_directories(qwen_image_${NAME} PUBLIC ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
  target_link_libraries(qwen_image_${NAME} PUBLIC ${ARG_DEPENDS} ${ARG_PACKAGES})
  # For tests/rooms_test.py: a line "name;folder;sources;dependencies" for each library.
  file(RELATIVE_PATH FOLDER ${PROJECT_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
  string(REPLACE ";" "," ROOM_SOURCES "${ARG_SOURCES}")
  string(REPLACE ";" "," ROOM_DEPENDS "${ARG_DEPENDS}")
  file(APPEND ${PROJECT_BINARY_DIR}/rooms.txt "qwen_image_${NAME};${FOLDER};${ROOM_SOURCES};${ROOM_DEPENDS}\n")
  if(NAME STREQUAL files OR "qwen_image_files" IN_LIST ARG_DEPENDS)
    qwen_image_precompile(qwen_image_${NAME})
  endif()
  if(QWEN_IMAGE_TESTS AND ARG_TESTS)
    qwen_image_test(${NAME}_test SOURCES ${ARG_TESTS} DEPENDS qwen_image_${NAME} LABEL ${ARG_LABEL})
  endif()
endfunction()

# qwen_image_test(<program> SOURCES … DEPENDS … [LABEL fast|slow|mlx]): every TEST() becomes one ctest entry.
function(qwen_image_test NAME)
  cmake_parse_arguments(ARG "" "LABEL" "SOURCES;DEPENDS" ${ARGN})
  if(NOT ARG_LABEL)
    set(ARG_LABEL fast)
  endif()
  add_executable(${NAME} ${ARG_SOURCES})
  target_link_libraries(${NAME} PRIVATE ${ARG_DEPENDS} GTest::gmock GTest::gtest_main)
  target_compile_definitions(${NAME} PRIVATE QWEN_IMAGE_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  if(NOT QWEN_IMAGE_SANITIZE)
    target_compile_options(${NAME} PRIVATE -O1)  # tests are compiled far longer than they run
  endif()
  qwen_image_precompile(${NAME} TEST)
  gtest_discover_tests(${NAME} PROPERTIES LABELS ${ARG_LABEL} DISCOVERY_TIMEOUT 60)
endfunction()

# qwen_image_precompile(<target> [TEST]): the largest headers are parsed once, which saves a third of the build's time.
# They are a matter of speed only: every file still includes what it uses.
function(qwen_image_precompile NAME)
  if(CMAKE_DISABLE_PRECOMPILE_HEADERS)
    return()  # reusing another target's would still wait for that target
  endif()
  set(OWNER qwen_image_files)
  set(HEADERS <algorithm> <filesystem> <functional> <map> <optional> <string> <vector> <fmt/format.h> <nlohmann/json.hpp>)
  if("TEST" IN_LIST ARGN)
    set(OWNER files_test)
    list(APPEND HEADERS <gmock/gmock.h> <gtest/gtest.h>)
  endif()
  if(NAME STREQUAL OWNER)
    target_precompile_headers(${NAME} PRIVATE ${HEADERS})
  elseif(TARGET ${OWNER})
    target_precompile_headers(${NAME} REUSE_FROM ${OWNER})
  endif()
endfunction()
