# What lies between the bytes of a request and a job; knows neither sockets nor the queue.
qwen_image_library(server_fields
  SOURCES fields.cc http_error.cc job.cc job_fields.cc job_pictures.cc multipart.cc
  DEPENDS options draw
  TESTS fields_test.cc http_error_test.cc job_fields_test.cc job_pictures_test.cc multipart_test.cc)
target_include_directories(qwen_image_server_fields PUBLIC ${PROJECT_SOURCE_DIR}/apps)
