# engine_sources(<root> <variable>): the sources that decide which numbers a run computes. All of src and include but the
# tests: a list of folders would have to be kept, and a file too many costs a prompt that is encoded once more, while a file
# too few is a wrong picture. How they are compiled counts as well, hence the CMake files.
function(engine_sources ROOT RESULT)
  set(PATTERNS)
  foreach(FOLDER src include)
    list(APPEND PATTERNS ${ROOT}/${FOLDER}/*.c ${ROOT}/${FOLDER}/*.cc ${ROOT}/${FOLDER}/*.def ${ROOT}/${FOLDER}/*.h ${ROOT}/${FOLDER}/*.cmake
      ${ROOT}/${FOLDER}/CMakeLists.txt)
  endforeach()
  # Without CONFIGURE_DEPENDS, which makes ninja speak at every call: a new file comes with a change of another one, and
  # then the script that hashes looks for all of them itself.
  file(GLOB_RECURSE FILES ${PATTERNS})
  list(FILTER FILES EXCLUDE REGEX "(_test|[_/]testing)\\.(cc?|h)$")
  set(${RESULT} ${FILES} PARENT_SCOPE)
endfunction()
