# cmake -DROOT=… -DBUILD=… -DOUT=… -P engine_hash.cmake: writes a header with one hash of all sources that have a part in
# the numbers a run computes, and of what compiles them. What one build keeps on disk for later runs (prompt embeddings,
# states to resume from) is of no use to a build that computes other numbers; a version raised by hand would be forgotten.
include(${CMAKE_CURRENT_LIST_DIR}/engine_sources.cmake)
engine_sources(${ROOT} SOURCES)
set(ALL "${BUILD}\n")
foreach(SOURCE ${SOURCES})
  file(SHA256 ${SOURCE} HASH)
  file(RELATIVE_PATH NAME ${ROOT} ${SOURCE})
  string(APPEND ALL "${NAME} ${HASH}\n")
endforeach()
string(SHA256 HASH "${ALL}")
string(SUBSTRING ${HASH} 0 32 HASH)
file(WRITE ${OUT} "#define QWEN_IMAGE_ENGINE_HASH \"${HASH}\"\n")
