include(CheckCXXCompilerFlag)

# One static library per folder of src/. A library includes and links only what stands below it: tests/rooms_test.py
# fails for a wrong direction.
#
#   qwen_image_library(<folder> SOURCES a.cc … DEPENDS core … [PACKAGES fmt::fmt …] [TESTS a_test.cc …] [LABEL fast]
#     [APART b_test.cc …] [OPTIMIZE 1|2|3])
#
# The tests of a folder make one program, <folder>_test. OPTIMIZE is the release build's level (default 2).

function(qwen_image_library NAME)
  cmake_parse_arguments(ARG "" "LABEL;OPTIMIZE" "SOURCES;DEPENDS;PACKAGES;TESTS;APART" ${ARGN})
  list(TRANSFORM ARG_DEPENDS PREPEND qwen_image_)
  add_library(qwen_image_${NAME} STATIC ${ARG_SOURCES})
  target_include_directories(qwen_image_${NAME} PUBLIC ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
  target_link_libraries(qwen_image_${NAME} PUBLIC ${ARG_DEPENDS} ${ARG_PACKAGES})
  if(ARG_OPTIMIZE)
    target_compile_options(qwen_image_${NAME} PRIVATE $<$<CONFIG:Release>:-O${ARG_OPTIMIZE}>)
    if(ARG_OPTIMIZE EQUAL 1)
      # Else gcc 13 and newer refuse the precompiled headers, which are made with -O2, where this is the default.
      check_cxx_compiler_flag(-munroll-only-small-loops QWEN_IMAGE_HAS_UNROLL_ONLY_SMALL_LOOPS)
      if(QWEN_IMAGE_HAS_UNROLL_ONLY_SMALL_LOOPS AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
        target_compile_options(qwen_image_${NAME} PRIVATE $<$<CONFIG:Release>:-munroll-only-small-loops>)
      endif()
    endif()
  endif()
  qwen_image_compile_together(qwen_image_${NAME} SOURCES ${ARG_SOURCES} APART ${ARG_APART})
  # For tests/rooms_test.py: a line "name;folder;sources;dependencies" for each library.
  file(RELATIVE_PATH FOLDER ${PROJECT_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
  string(REPLACE ";" "," ROOM_SOURCES "${ARG_SOURCES}")
  string(REPLACE ";" "," ROOM_DEPENDS "${ARG_DEPENDS}")
  file(APPEND ${PROJECT_BINARY_DIR}/rooms.txt "qwen_image_${NAME};${FOLDER};${ROOM_SOURCES};${ROOM_DEPENDS}\n")
  if(NAME STREQUAL files OR "qwen_image_files" IN_LIST ARG_DEPENDS)
    qwen_image_precompile(qwen_image_${NAME})
  endif()
  if(QWEN_IMAGE_TESTS AND ARG_TESTS)
    qwen_image_test(${NAME}_test SOURCES ${ARG_TESTS} DEPENDS qwen_image_${NAME} LABEL ${ARG_LABEL} APART ${ARG_APART})
  endif()
endfunction()

# qwen_image_test(<program> SOURCES … DEPENDS … [LABEL fast|slow|mlx] [APART …]): every TEST() becomes one ctest entry.
function(qwen_image_test NAME)
  cmake_parse_arguments(ARG "" "LABEL" "SOURCES;DEPENDS;APART" ${ARGN})
  if(NOT ARG_LABEL)
    set(ARG_LABEL fast)
  endif()
  add_executable(${NAME} ${ARG_SOURCES})
  target_link_libraries(${NAME} PRIVATE ${ARG_DEPENDS} GTest::gmock GTest::gtest_main)
  target_compile_definitions(${NAME} PRIVATE QWEN_IMAGE_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  if(NOT QWEN_IMAGE_SANITIZE)
    target_compile_options(${NAME} PRIVATE -O0 -U_FORTIFY_SOURCE)  # tests are compiled far longer than they run
  endif()
  qwen_image_compile_together(${NAME} SOURCES ${ARG_SOURCES} APART ${ARG_APART})
  qwen_image_precompile(${NAME} TEST)
  gtest_discover_tests(${NAME} PROPERTIES LABELS "${ARG_LABEL}" DISCOVERY_TIMEOUT 60)
endfunction()

# qwen_image_compile_together(<target> SOURCES … APART …): up to QWEN_IMAGE_TOGETHER sources of a folder make one
# compilation. Most of a compiler's time goes into the headers and templates that neighbours share. It is a matter of
# speed only: every file compiles by itself (QWEN_IMAGE_TOGETHER=1), which is quicker for those who change one file again
# and again. APART are sources with local names that a neighbour has too.
set(QWEN_IMAGE_TOGETHER 12 CACHE STRING "How many sources of a folder are compiled together; 1: none")
function(qwen_image_compile_together NAME)
  cmake_parse_arguments(ARG "" "" "SOURCES;APART" ${ARGN})
  if(QWEN_IMAGE_TOGETHER LESS 2)
    return()
  endif()
  set(FOLDERS)
  foreach(SOURCE ${ARG_SOURCES})
    if(SOURCE IN_LIST ARG_APART)
      continue()
    endif()
    get_filename_component(FOLDER "${SOURCE}" DIRECTORY)
    string(MAKE_C_IDENTIFIER "in_${FOLDER}" FOLDER)
    list(APPEND FOLDERS ${FOLDER})
    list(APPEND SOURCES_${FOLDER} ${SOURCE})
  endforeach()
  list(REMOVE_DUPLICATES FOLDERS)
  foreach(FOLDER ${FOLDERS})
    # As many groups as needed, of nearly the same size.
    list(LENGTH SOURCES_${FOLDER} COUNT)
    math(EXPR GROUPS "(${COUNT} + ${QWEN_IMAGE_TOGETHER} - 1) / ${QWEN_IMAGE_TOGETHER}")
    set(INDEX 0)
    foreach(SOURCE ${SOURCES_${FOLDER}})
      math(EXPR GROUP "${INDEX} * ${GROUPS} / ${COUNT}")
      set_source_files_properties(${SOURCE} PROPERTIES UNITY_GROUP "${FOLDER}_${GROUP}")
      math(EXPR INDEX "${INDEX} + 1")
    endforeach()
  endforeach()
  set_target_properties(${NAME} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  # It takes a source that is included for a header, whose types others could see.
  target_compile_options(${NAME} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
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
