# Run by CPack between installation and packing: the files that a Debian package has and an installed tree has not.
set(ROOT ${CPACK_TEMPORARY_INSTALL_DIRECTORY})
set(FILES ${CPACK_QWEN_IMAGE_SOURCE}/tools/package/deb)
set(DOC_FOLDER ${ROOT}/usr/share/doc/qwen-image)

function(compress FILE)
  execute_process(COMMAND gzip -9nf ${FILE} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

# The folder has the name of the package.
file(RENAME ${ROOT}/usr/share/doc/qwen_image ${DOC_FOLDER})
file(COPY ${FILES}/copyright DESTINATION ${DOC_FOLDER})
file(RENAME ${DOC_FOLDER}/CHANGELOG.md ${DOC_FOLDER}/changelog)
compress(${DOC_FOLDER}/changelog)
string(TIMESTAMP DATE "%a, %d %b %Y %H:%M:%S +0000" UTC)  # of SOURCE_DATE_EPOCH
file(WRITE ${DOC_FOLDER}/changelog.Debian "qwen-image (${CPACK_PACKAGE_VERSION}-1) unstable; urgency=low

  * What is new is in changelog.gz.

 -- ${CPACK_PACKAGE_CONTACT}  ${DATE}
")
compress(${DOC_FOLDER}/changelog.Debian)
compress(${ROOT}/usr/share/man/man1/qwen-image.1)

file(COPY ${FILES}/qwen-image.service DESTINATION ${ROOT}/usr/lib/systemd/system)
file(COPY ${FILES}/default/qwen-image DESTINATION ${ROOT}/etc/default)
file(COPY ${FILES}/lintian-overrides/qwen-image DESTINATION ${ROOT}/usr/share/lintian/overrides)
