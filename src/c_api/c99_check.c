/* Compiled as strict C99: the header's types and macros must be C. */
#include <string.h>

#include "qwen_image/c_api.h"

static int Stop(void* user_data, const qwen_image_progress* progress) {
  *(int64_t*)user_data = progress->steps;
  return 1;
}

/* Draws from C until the first report of progress; returns the steps that it names, or -1. */
int64_t StepsSeenFromC(const char* model) {
  int64_t steps = -1;
  qwen_image_pipeline* pipeline = NULL;
  qwen_image_request* request = NULL;
  qwen_image_picture* picture = NULL;
  if (qwen_image_pipeline_open(model, NULL, &pipeline) != QWEN_IMAGE_OK) return -1;
  if (qwen_image_request_new("a red circle", &request) == QWEN_IMAGE_OK &&
      qwen_image_request_set_progress(request, Stop, &steps) == QWEN_IMAGE_OK &&
      (qwen_image_generate(pipeline, request, &picture) != QWEN_IMAGE_INTERRUPTED || picture != NULL ||
       strstr(qwen_image_last_error(), "interrupted") == NULL))
    steps = -1;
  qwen_image_picture_free(picture);
  qwen_image_request_free(request);
  qwen_image_pipeline_free(pipeline);
  return steps;
}
