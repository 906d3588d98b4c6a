# At installation: the links of the documents in DOC_FOLDER; see install.cmake.
file(GLOB DOCUMENTS ${DOC_FOLDER}/*.md ${DOC_FOLDER}/docs/*.md)
foreach(DOCUMENT ${DOCUMENTS})
  file(READ ${DOCUMENT} TEXT)
  string(REPLACE "](../include/" "](${INCLUDE_FROM_DOCS}/" TEXT "${TEXT}")
  string(REGEX REPLACE "\\[([^]\n]*)\\]\\((\\.\\./)?(apps|bench|cmake|python|src|tests|tools)/[^)\n]*\\)" "\\1" TEXT "${TEXT}")
  file(WRITE ${DOCUMENT} "${TEXT}")
endforeach()
