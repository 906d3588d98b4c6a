/* Draws a picture:  generate_c MODEL PROMPT OUT.png */
#include <qwen_image/c_api.h>
#include <stdio.h>

static int ShowProgress(void* user_data, const qwen_image_progress* progress) {
  (void)user_data;
  fprintf(stderr, "\rstep %d of %d", (int)progress->step, (int)progress->steps);
  return 0; /* anything else stops the drawing */
}

int main(int argc, char** argv) {
  qwen_image_pipeline* pipeline = NULL;
  qwen_image_request* request = NULL;
  qwen_image_picture* picture = NULL;
  int failed;
  if (argc != 4) {
    fprintf(stderr, "usage: %s MODEL PROMPT OUT.png\n", argv[0]);
    return 2;
  }
  failed = qwen_image_pipeline_open(argv[1], NULL, &pipeline) != QWEN_IMAGE_OK ||
           qwen_image_request_new(argv[2], &request) != QWEN_IMAGE_OK ||
           qwen_image_request_set_seed(request, 7) != QWEN_IMAGE_OK ||
           qwen_image_request_set_steps(request, 4) != QWEN_IMAGE_OK ||
           qwen_image_request_set_progress(request, ShowProgress, NULL) != QWEN_IMAGE_OK ||
           qwen_image_generate(pipeline, request, &picture) != QWEN_IMAGE_OK ||
           qwen_image_picture_save_png(picture, argv[3]) != QWEN_IMAGE_OK;
  if (failed) fprintf(stderr, "%s\n", qwen_image_last_error());
  qwen_image_picture_free(picture);
  qwen_image_request_free(request);
  qwen_image_pipeline_free(pipeline);
  return failed;
}
