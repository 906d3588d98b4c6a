# Writes a C++ file that holds files as strings. Run at build time:
#   cmake -DOUTPUT=out.cc -DFOLDER=dir -DFILES=a,b,c -DHEADER=server/page/embedded_file.h -DNAMESPACE=page -P embed.cmake
# It defines qwen_image::NAMESPACE::kEmbeddedFiles, which HEADER declares.
string(REPLACE "," ";" FILES "${FILES}")
set(CONTENT "#include \"${HEADER}\"\n\nnamespace qwen_image::${NAMESPACE} {\n\nconst EmbeddedFile kEmbeddedFiles[] = {\n")
foreach(NAME IN LISTS FILES)
  file(READ ${FOLDER}/${NAME} BYTES HEX)
  string(LENGTH "${BYTES}" LENGTH)
  math(EXPR LENGTH "${LENGTH} / 2")
  # Octets as \ooo would need arithmetic; \xhh swallows digits that follow, so every octet is a character of a list.
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "'\\\\x\\1'," BYTES "${BYTES}")
  string(MAKE_C_IDENTIFIER ${NAME} IDENTIFIER)
  string(PREPEND CONTENT "static const char ${IDENTIFIER}[] = {${BYTES}};\n")
  string(APPEND CONTENT "    {\"/${NAME}\", {${IDENTIFIER}, ${LENGTH}}},\n")
endforeach()
string(APPEND CONTENT "};\nconst size_t kEmbeddedFileCount = sizeof(kEmbeddedFiles) / sizeof(kEmbeddedFiles[0]);\n\n}  // namespace qwen_image::${NAMESPACE}\n")
file(WRITE ${OUTPUT} "${CONTENT}")
