# The Debian package, by `./run package deb`. What only it has (service, its options, what Debian asks of documents) is
# added by package_debian.cmake.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME qwen-image)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_CONTACT "The qwen-image.cpp maintainers <maintainers@qwen-image.invalid>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "draws and edits pictures with the Qwen-Image models on plain CPUs")
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION
"The program qwen-image and the library libqwen_image for C and C++, with a
tiny model to try them. Models of full size are downloaded by
qwen-image pull. A web page and an HTTP API are offered by
qwen-image serve, for which there is a service that is off until it is
enabled.")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
  OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_PRE_BUILD_SCRIPTS ${PROJECT_SOURCE_DIR}/cmake/package_debian.cmake)
set(CPACK_QWEN_IMAGE_SOURCE ${PROJECT_SOURCE_DIR})
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_PACKAGE_SECTION graphics)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
# Other packages that are linked with the library depend on this one.
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS ca-certificates)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
foreach(FILE conffiles postinst prerm postrm triggers)
  list(APPEND CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${PROJECT_SOURCE_DIR}/tools/package/deb/${FILE})
endforeach()
include(CPack)
