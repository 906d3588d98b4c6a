# The library that others link, and what `cmake --install` puts where. Nothing installed knows where it was built or
# installed: the tree can be moved.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# Shared, because its users then need none of the libraries it is made with, and see the public symbols only. The C API
# reaches all that is public, so that the linker takes from the archives what is needed, and leaves out what only the
# program uses.
add_library(qwen_image SHARED $<TARGET_OBJECTS:qwen_image_c_api>)
add_library(qwen_image::qwen_image ALIAS qwen_image)
target_link_libraries(qwen_image PRIVATE qwen_image_c_api)
# Templates of the standard library are never hidden by the compiler, so the linker hides them.
set(EXPORTS ${PROJECT_SOURCE_DIR}/cmake/exports.map)
if(NOT APPLE)  # whose linker has no version scripts
  target_link_options(qwen_image PRIVATE -Wl,--version-script=${EXPORTS} -Wl,--no-undefined)
endif()
set_target_properties(qwen_image PROPERTIES LINK_DEPENDS ${EXPORTS} LINKER_LANGUAGE CXX
  VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
target_compile_features(qwen_image INTERFACE cxx_std_17)
target_include_directories(qwen_image INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
  $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)

if(QWEN_IMAGE_MLX)
  # Except for MLX, which is not installed with it and stays where it was found (by MLX's CMake package).
  get_filename_component(MLX_FOLDER ${MLX_LIBRARY} DIRECTORY)
  set_target_properties(qwen_image qwen-image PROPERTIES INSTALL_RPATH ${MLX_FOLDER})
endif()

set(PACKAGE_FOLDER ${CMAKE_INSTALL_LIBDIR}/cmake/qwen_image)
set(MODELS_FOLDER ${CMAKE_INSTALL_DATADIR}/qwen-image/models)
install(TARGETS qwen_image EXPORT qwen_image_targets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS qwen-image RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(DIRECTORY include/qwen_image DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN *.h)
install(DIRECTORY models/tiny DESTINATION ${MODELS_FOLDER})
install(FILES LICENSE README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs examples DESTINATION ${CMAKE_INSTALL_DOCDIR})
# Their links to headers lead to those installed; of links to sources, which are not, the words stay.
file(RELATIVE_PATH INCLUDE_FROM_DOCS /prefix/${CMAKE_INSTALL_DOCDIR}/docs /prefix/${CMAKE_INSTALL_INCLUDEDIR})
install(CODE "set(DOC_FOLDER \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DOCDIR}\")
set(INCLUDE_FROM_DOCS \"${INCLUDE_FROM_DOCS}\")")
install(SCRIPT cmake/install_docs.cmake)

# The program that was built prints them, in an emulator if need be.
install(CODE "set(PROGRAM ${CMAKE_CROSSCOMPILING_EMULATOR} \"$<TARGET_FILE:qwen-image>\")
set(SHARE_FOLDER \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DATADIR}\")")
install(SCRIPT cmake/install_manual.cmake)

install(EXPORT qwen_image_targets NAMESPACE qwen_image:: DESTINATION ${PACKAGE_FOLDER})
configure_package_config_file(cmake/qwen_image-config.cmake.in qwen_image-config.cmake
  INSTALL_DESTINATION ${PACKAGE_FOLDER} PATH_VARS MODELS_FOLDER)
# Before 1.0 a minor version may change the interface.
write_basic_package_version_file(qwen_image-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/qwen_image-config.cmake
  ${CMAKE_CURRENT_BINARY_DIR}/qwen_image-config-version.cmake DESTINATION ${PACKAGE_FOLDER})

# From the folder of the .pc file back to the prefix.
file(RELATIVE_PATH PREFIX_FROM_PC /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
configure_file(cmake/qwen_image.pc.in qwen_image.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/qwen_image.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

include(cmake/package.cmake)
