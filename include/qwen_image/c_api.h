/* qwen-image.cpp for C, and for languages that speak to others through C.
 *
 *   qwen_image_pipeline* pipeline = NULL;
 *   qwen_image_request* request = NULL;
 *   qwen_image_picture* picture = NULL;
 *   if (qwen_image_pipeline_open("models/tiny", NULL, &pipeline) != QWEN_IMAGE_OK ||
 *       qwen_image_request_new("a red circle on a blue background", &request) != QWEN_IMAGE_OK ||
 *       qwen_image_generate(pipeline, request, &picture) != QWEN_IMAGE_OK ||
 *       qwen_image_picture_save_png(picture, "circle.png") != QWEN_IMAGE_OK)
 *     fprintf(stderr, "%s\n", qwen_image_last_error());
 *   qwen_image_picture_free(picture);
 *   qwen_image_request_free(request);
 *   qwen_image_pipeline_free(pipeline);
 *
 * Everything is behind opaque handles that functions fill and ask: programs need not be compiled again when a
 * later version knows more settings. No exception leaves the library, nothing is printed. Strings are UTF-8;
 * what is given to a function is copied, and may be freed when it returns. A NULL where none is allowed is
 * QWEN_IMAGE_USAGE; *_free(NULL) does nothing.
 */
#ifndef QWEN_IMAGE_C_API_H_
#define QWEN_IMAGE_C_API_H_

#include <stddef.h>
#include <stdint.h>

#include "qwen_image/export.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The numbers are the exit codes of the program. */
typedef enum qwen_image_status {
  QWEN_IMAGE_OK = 0,
  QWEN_IMAGE_USAGE = 2,     /* the caller asked for something impossible (a size of 100x100, zero steps) */
  QWEN_IMAGE_BAD_INPUT = 3, /* a file is broken, or is not what it should be */
  QWEN_IMAGE_OUT_OF_MEMORY = 4, /* the model or the picture does not fit */
  QWEN_IMAGE_CANNOT_WRITE = 5,
  QWEN_IMAGE_MACHINE = 6,      /* another machine that draws the same picture cannot go on */
  QWEN_IMAGE_INTERNAL = 70,    /* a bug in the library, or an exception of a callback written in C++ */
  QWEN_IMAGE_INTERRUPTED = 130 /* a callback asked to stop */
} qwen_image_status;

/* What went wrong in the last call on this thread that did not return QWEN_IMAGE_OK; never NULL. Valid until
 * the next such call on this thread. */
QWEN_IMAGE_API const char* qwen_image_last_error(void);
QWEN_IMAGE_API const char* qwen_image_version(void);
/* Handles SIGBUS from now on, in the whole process, so that a model file that is cut while it is in use gives
 * QWEN_IMAGE_BAD_INPUT instead of ending the process; other faults go to the handler that was there before.
 */
QWEN_IMAGE_API void qwen_image_install_truncation_guard(void);

/* Computes with nothing better than this instruction set, in the whole process: "avx2", ..., or "auto", all
 * that there is. QWEN_IMAGE_USAGE where the machine cannot run it; the message names those it can. To be
 * called while nothing is drawn. */
QWEN_IMAGE_API qwen_image_status qwen_image_use_instruction_set(const char* name);

/* How a model is opened; for what is not set, as PipelineOptions and ModelFiles in qwen_image.h have it. */
typedef struct qwen_image_options qwen_image_options;

typedef enum qwen_image_precision { QWEN_IMAGE_EXACT = 0, QWEN_IMAGE_FAST = 1 } qwen_image_precision;
typedef enum qwen_image_device {
  QWEN_IMAGE_DEVICE_AUTO = 0, /* a GPU where there is one, else the CPU */
  QWEN_IMAGE_DEVICE_CPU = 1,
  QWEN_IMAGE_DEVICE_GPU = 2,    /* in builds with MLX */
  QWEN_IMAGE_DEVICE_MLX_CPU = 3 /* in builds with MLX, for comparisons */
} qwen_image_device;

typedef enum qwen_image_part {
  QWEN_IMAGE_TRANSFORMER = 0,
  QWEN_IMAGE_TEXT_ENCODER = 1,
  QWEN_IMAGE_VAE = 2,
  QWEN_IMAGE_TOKENIZER = 3,
  QWEN_IMAGE_VISION_ENCODER = 4
} qwen_image_part;

QWEN_IMAGE_API qwen_image_status qwen_image_options_new(qwen_image_options** options);
QWEN_IMAGE_API void qwen_image_options_free(qwen_image_options* options);
/* 1 to 1024; 0: all processors this process may use. */
QWEN_IMAGE_API qwen_image_status qwen_image_options_set_threads(qwen_image_options* options, int threads);
/* One of qwen_image_precision. A number, as C lets any through; so is `part` below. */
QWEN_IMAGE_API qwen_image_status qwen_image_options_set_precision(qwen_image_options* options, int precision);
/* One of qwen_image_device. Whether it is there is told when a model is opened. */
QWEN_IMAGE_API qwen_image_status qwen_image_options_set_device(qwen_image_options* options, int device);
/* 0: do not refuse a model that seems not to fit in memory. */
QWEN_IMAGE_API qwen_image_status qwen_image_options_set_check_memory(qwen_image_options* options, int check);
/* A folder where prompt embeddings are kept for later processes. */
QWEN_IMAGE_API qwen_image_status qwen_image_options_set_prompt_cache(qwen_image_options* options,
                                                                     const char* folder);
/* Takes a part from another file or folder. */
QWEN_IMAGE_API qwen_image_status qwen_image_options_set_part(qwen_image_options* options, int part,
                                                             const char* path);
/* "qwen-image", "edit", "edit-2509", "edit-2511", "2.1", "2.1-turbo": where nothing in the files tells. */
QWEN_IMAGE_API qwen_image_status qwen_image_options_set_variant(qwen_image_options* options,
                                                                const char* variant);
QWEN_IMAGE_API qwen_image_status qwen_image_options_add_lora(qwen_image_options* options, const char* path,
                                                             double scale);

/* A loaded model. Any thread may use it, but it draws one picture at a time: others wait. */
typedef struct qwen_image_pipeline qwen_image_pipeline;

/* `model` is a folder or file; it may be NULL if the options name all parts. `options` may be NULL. */
QWEN_IMAGE_API qwen_image_status qwen_image_pipeline_open(const char* model,
                                                          const qwen_image_options* options,
                                                          qwen_image_pipeline** pipeline);
QWEN_IMAGE_API void qwen_image_pipeline_free(qwen_image_pipeline* pipeline);
/* What is drawn where a request does not say. Each pointer may be NULL. */
QWEN_IMAGE_API qwen_image_status qwen_image_pipeline_defaults(const qwen_image_pipeline* pipeline,
                                                              int64_t* width, int64_t* height, int64_t* steps,
                                                              double* cfg);
/* The negative prompt among them; lives as long as the pipeline. */
QWEN_IMAGE_API const char* qwen_image_pipeline_negative_prompt(const qwen_image_pipeline* pipeline);
/* 1 if steps, guidance and noise levels are those of a Lightning LoRA, else 0. */
QWEN_IMAGE_API int qwen_image_pipeline_lightning(const qwen_image_pipeline* pipeline);
/* "qwen-image", "edit", "edit-2509", "edit-2511"; "" where the files do not tell. Lives as long as the
 * pipeline. */
QWEN_IMAGE_API const char* qwen_image_pipeline_variant(const qwen_image_pipeline* pipeline);
/* 1 if it can edit pictures (qwen_image_request_add_input_image), else 0. */
QWEN_IMAGE_API int qwen_image_pipeline_edits(const qwen_image_pipeline* pipeline);
/* Of the pictures that it draws: 3, RGB, or 4, RGBA (unless a request has a background). */
QWEN_IMAGE_API int qwen_image_pipeline_channels(const qwen_image_pipeline* pipeline);
/* How many threads draw. */
QWEN_IMAGE_API int qwen_image_pipeline_threads(const qwen_image_pipeline* pipeline);

/* What to draw; for what is not set, as GenerateRequest in qwen_image.h has it. A request can be used again,
 * but not be changed while it is drawn. */
typedef struct qwen_image_request qwen_image_request;

QWEN_IMAGE_API qwen_image_status qwen_image_request_new(const char* prompt, qwen_image_request** request);
QWEN_IMAGE_API void qwen_image_request_free(qwen_image_request* request);
QWEN_IMAGE_API qwen_image_status qwen_image_request_set_prompt(qwen_image_request* request,
                                                               const char* prompt);
QWEN_IMAGE_API qwen_image_status qwen_image_request_set_negative_prompt(qwen_image_request* request,
                                                                        const char* negative_prompt);
/* Multiples of 16; of Qwen-Image-2.1: of 32. */
QWEN_IMAGE_API qwen_image_status qwen_image_request_set_size(qwen_image_request* request, int64_t width,
                                                             int64_t height);
QWEN_IMAGE_API qwen_image_status qwen_image_request_set_steps(qwen_image_request* request, int64_t steps);
/* The noise levels to draw with, falling from at most 1, without the last 0: as many as the steps. None, the
 * default: the model's own. */
QWEN_IMAGE_API qwen_image_status qwen_image_request_set_sigmas(qwen_image_request* request,
                                                               const double* sigmas, int64_t count);
/* True classifier-free guidance; 1 switches it off and halves the time. */
QWEN_IMAGE_API qwen_image_status qwen_image_request_set_cfg(qwen_image_request* request, double cfg);
QWEN_IMAGE_API qwen_image_status qwen_image_request_set_seed(qwen_image_request* request, uint64_t seed);
/* Pixels are rows from top to bottom, 3 bytes (red, green, blue) or, for a mask, 1 byte each, without gaps.
 */
QWEN_IMAGE_API qwen_image_status qwen_image_request_add_input_image(qwen_image_request* request,
                                                                    int64_t width, int64_t height,
                                                                    const uint8_t* rgb);
/* A picture to begin with instead of noise alone. */
QWEN_IMAGE_API qwen_image_status qwen_image_request_set_init_image(qwen_image_request* request, int64_t width,
                                                                   int64_t height, const uint8_t* rgb);
/* The same with 3 bytes a pixel, or with 4 (red, green, blue, alpha; the colours are not multiplied by
 * alpha): what a qwen_image_picture has. A model without alpha lays transparent parts on white. */
QWEN_IMAGE_API qwen_image_status qwen_image_request_add_input_pixels(qwen_image_request* request,
                                                                     int64_t width, int64_t height,
                                                                     int channels, const uint8_t* pixels);
QWEN_IMAGE_API qwen_image_status qwen_image_request_set_init_pixels(qwen_image_request* request,
                                                                    int64_t width, int64_t height,
                                                                    int channels, const uint8_t* pixels);
/* 128 and more is redrawn, the rest stays. */
QWEN_IMAGE_API qwen_image_status qwen_image_request_set_mask(qwen_image_request* request, int64_t width,
                                                             int64_t height, const uint8_t* grey);
/* A mask from a PNG, JPEG or WebP file; what its transparent parts mean is told in image_file.h. */
QWEN_IMAGE_API qwen_image_status qwen_image_request_read_mask(qwen_image_request* request, const char* path);
/* Take back what was added or set. */
QWEN_IMAGE_API qwen_image_status qwen_image_request_clear_input_images(qwen_image_request* request);
QWEN_IMAGE_API qwen_image_status qwen_image_request_clear_init_image(qwen_image_request* request);
QWEN_IMAGE_API qwen_image_status qwen_image_request_clear_mask(qwen_image_request* request);
/* With an init image, a mask or margins: 0 to 1. Small values keep more of the picture. */
QWEN_IMAGE_API qwen_image_status qwen_image_request_set_strength(qwen_image_request* request,
                                                                 double strength);
/* The picture is enlarged by these margins, which are drawn. */
QWEN_IMAGE_API qwen_image_status qwen_image_request_set_outpaint(qwen_image_request* request, int64_t left,
                                                                 int64_t top, int64_t right, int64_t bottom);
/* 1, the default: with a mask, what is not redrawn keeps the bits of the input. */
QWEN_IMAGE_API qwen_image_status qwen_image_request_set_blend(qwen_image_request* request, int blend);
/* 1: the result gets the size of the picture that it is made from. */
QWEN_IMAGE_API qwen_image_status qwen_image_request_set_keep_size(qwen_image_request* request, int keep_size);
/* The colour that the result is laid on: "#rrggbb", or a name ("white", "black", ...). "transparent", which
 * models without alpha refuse, or "", the default: transparent parts stay. */
QWEN_IMAGE_API qwen_image_status qwen_image_request_set_background(qwen_image_request* request,
                                                                   const char* background);
/* Above 0: steps that change little are estimated. Faster and less exact; 0.1 is a good value, 0 is off. */
QWEN_IMAGE_API qwen_image_status qwen_image_request_set_step_cache(qwen_image_request* request,
                                                                   double step_cache);
/* Instead of the seed's noise: packed, 1 x tokens x 64, or plain, 1 x 1 x 16 x height / 8 x width / 8.
 * `shape` has `dimensions` entries, 1 to 5. */
QWEN_IMAGE_API qwen_image_status qwen_image_request_set_latents(qwen_image_request* request,
                                                                const int64_t* shape, int dimensions,
                                                                const float* values);
/* A folder where the state after every step is kept, and looked for at the start, so that a run that was
 * killed goes on. See qwen_image_picture_remove_resume_state. */
QWEN_IMAGE_API qwen_image_status qwen_image_request_set_resume_folder(qwen_image_request* request,
                                                                      const char* folder);

/* Any setting by its name: docs/options.md lists them, as do the functions below. `value` is written as on
 * the command line: ("step_cache", "0.1"), ("outpaint", "0,64,0,64"), ("vae_tiling", "on"), ("keep_size",
 * "true"). Pictures, masks and latents have functions of their own, above. */
QWEN_IMAGE_API qwen_image_status qwen_image_request_set(qwen_image_request* request, const char* name,
                                                        const char* value);
/* The same with a value of `size` bytes, which may hold any character, NUL among them. */
QWEN_IMAGE_API qwen_image_status qwen_image_request_set_text(qwen_image_request* request, const char* name,
                                                             const char* value, int64_t size);
/* The same for a setting that is a number, or true or false (1, 0). */
QWEN_IMAGE_API qwen_image_status qwen_image_request_set_number(qwen_image_request* request, const char* name,
                                                               double value);
/* All settings, for programs that offer them: `index` is below the count, else "". */
QWEN_IMAGE_API int64_t qwen_image_setting_count(void);
QWEN_IMAGE_API const char* qwen_image_setting_name(int64_t index);
QWEN_IMAGE_API const char* qwen_image_setting_help(int64_t index);
/* What its values are: "text", "truth", "whole", "seed", "number", "numbers", "choice", "margins", "path"; of
 * data "latents", "pictures", "picture", "mask". Later versions may know more. */
QWEN_IMAGE_API const char* qwen_image_setting_kind(int64_t index);
/* Of a "choice": "auto, on, off"; of others "". */
QWEN_IMAGE_API const char* qwen_image_setting_choices(int64_t index);

typedef enum qwen_image_stage {
  QWEN_IMAGE_ENCODE_PROMPT = 0,
  QWEN_IMAGE_ENCODE_PICTURES = 1,
  QWEN_IMAGE_DENOISE = 2,
  QWEN_IMAGE_DECODE = 3
} qwen_image_stage;

/* Made by the library and read by callbacks; later versions may have more members at its end. */
typedef struct qwen_image_progress {
  qwen_image_stage stage;
  int64_t step;    /* finished steps of QWEN_IMAGE_DENOISE */
  int64_t steps;   /* of QWEN_IMAGE_DENOISE */
  double fraction; /* of the current step, or of the stage */
} qwen_image_progress;

/* Called on the thread that draws, several times a step; at the end with QWEN_IMAGE_DECODE and the
 * fraction 1. While another thread draws with the pipeline it is called again and again as for the very
 * beginning. Anything but 0 stops with QWEN_IMAGE_INTERRUPTED. */
typedef int (*qwen_image_progress_callback)(void* user_data, const qwen_image_progress* progress);
/* Called after every step but the last: what the picture is going to be, at most 256 pixels wide and high;
 * transparent parts are laid on white. The pixels are gone when it returns. Anything but 0 stops. */
typedef int (*qwen_image_preview_callback)(void* user_data, int64_t width, int64_t height,
                                           const uint8_t* rgb);
/* The same with the channels of the picture, 3 or 4. */
typedef int (*qwen_image_preview_pixels_callback)(void* user_data, int64_t width, int64_t height,
                                                  int channels, const uint8_t* pixels);

/* A NULL callback takes back an earlier one. */
QWEN_IMAGE_API qwen_image_status qwen_image_request_set_progress(qwen_image_request* request,
                                                                 qwen_image_progress_callback callback,
                                                                 void* user_data);
QWEN_IMAGE_API qwen_image_status qwen_image_request_set_preview(qwen_image_request* request,
                                                                qwen_image_preview_callback callback,
                                                                void* user_data);

QWEN_IMAGE_API qwen_image_status qwen_image_request_set_preview_pixels(
    qwen_image_request* request, qwen_image_preview_pixels_callback callback, void* user_data);

typedef struct qwen_image_picture qwen_image_picture;

/* Says without drawing whether a request can be drawn. */
QWEN_IMAGE_API qwen_image_status qwen_image_check(const qwen_image_pipeline* pipeline,
                                                  const qwen_image_request* request);
/* *picture is NULL unless all went well. */
QWEN_IMAGE_API qwen_image_status qwen_image_generate(const qwen_image_pipeline* pipeline,
                                                     const qwen_image_request* request,
                                                     qwen_image_picture** picture);
/* A PNG, JPEG or WebP file, as a source of pixels for a request: with 3 channels, transparent parts are laid
 * on white. */
QWEN_IMAGE_API qwen_image_status qwen_image_picture_read(const char* path, qwen_image_picture** picture);
/* The same, but a file with alpha has 4 channels. */
QWEN_IMAGE_API qwen_image_status qwen_image_picture_read_alpha(const char* path,
                                                               qwen_image_picture** picture);
/* The same of a file that is in memory; `where` names it in messages. */
QWEN_IMAGE_API qwen_image_status qwen_image_picture_decode_alpha(const uint8_t* bytes, int64_t size,
                                                                 const char* where,
                                                                 qwen_image_picture** picture);
/* A file as a mask, with 1 channel: 255 is redrawn, 0 is kept. What transparent parts mean is told in
 * image_file.h. */
QWEN_IMAGE_API qwen_image_status qwen_image_picture_read_mask(const char* path, qwen_image_picture** picture);
QWEN_IMAGE_API qwen_image_status qwen_image_picture_decode_mask(const uint8_t* bytes, int64_t size,
                                                                const char* where,
                                                                qwen_image_picture** picture);
QWEN_IMAGE_API void qwen_image_picture_free(qwen_image_picture* picture);
QWEN_IMAGE_API int64_t qwen_image_picture_width(const qwen_image_picture* picture);
QWEN_IMAGE_API int64_t qwen_image_picture_height(const qwen_image_picture* picture);
/* 3: red, green, blue; 4: and alpha, as models draw that have it (qwen_image_pipeline_channels); 1: a mask
 * that was read. */
QWEN_IMAGE_API int qwen_image_picture_channels(const qwen_image_picture* picture);
/* [height, width, channels]; lives as long as the picture. */
QWEN_IMAGE_API const uint8_t* qwen_image_picture_pixels(const qwen_image_picture* picture);
/* What it was drawn with; 0 for a picture that was read. */
QWEN_IMAGE_API uint64_t qwen_image_picture_seed(const qwen_image_picture* picture);
QWEN_IMAGE_API int64_t qwen_image_picture_steps(const qwen_image_picture* picture);
QWEN_IMAGE_API double qwen_image_picture_cfg(const qwen_image_picture* picture);
/* All settings, as JSON; "" for a picture that was read. Lives as long as the picture, as do notes. */
QWEN_IMAGE_API const char* qwen_image_picture_settings(const qwen_image_picture* picture);
/* What a user should know though it is no error: `index` is below the count, else "". */
QWEN_IMAGE_API int64_t qwen_image_picture_note_count(const qwen_image_picture* picture);
QWEN_IMAGE_API const char* qwen_image_picture_note(const qwen_image_picture* picture, int64_t index);
/* 1 if the prompt was longer than what is used of it. */
QWEN_IMAGE_API int qwen_image_picture_prompt_truncated(const qwen_image_picture* picture);
/* How long each stage took. Each pointer may be NULL. */
QWEN_IMAGE_API qwen_image_status qwen_image_picture_seconds(const qwen_image_picture* picture,
                                                            double* encode_prompt, double* encode_pictures,
                                                            double* denoise, double* decode);

/* How a result lies over the picture that it was made from; see Alignment in qwen_image.h. Later versions may
 * have more members at its end. */
typedef struct qwen_image_alignment {
  double shift_x, shift_y; /* pixels of the result; positive: to the right, down */
  double scale_x, scale_y; /* per cent; positive: enlarged */
  double confidence;       /* 0 to 1 */
  double uncertainty;      /* pixels of the result */
} qwen_image_alignment;

/* NULL if it was made from none, or if it cannot be told. Lives as long as the picture. */
QWEN_IMAGE_API const qwen_image_alignment* qwen_image_picture_alignment(const qwen_image_picture* picture);

/* Steps that an earlier run finished (qwen_image_request_set_resume_folder). */
QWEN_IMAGE_API int64_t qwen_image_picture_steps_resumed(const qwen_image_picture* picture);
/* When the picture is safe, or not wanted any more: removes its run's state, if there is one. */
QWEN_IMAGE_API qwen_image_status qwen_image_picture_remove_resume_state(const qwen_image_picture* picture);
/* The same without the picture: by the name of the file with that state, which lives as long as the picture;
 * "" where there is none. */
QWEN_IMAGE_API const char* qwen_image_picture_resume_file(const qwen_image_picture* picture);
QWEN_IMAGE_API qwen_image_status qwen_image_remove_resume_state(const char* resume_file);
/* With the settings it was drawn with in its metadata. Never leaves a partial file. */
QWEN_IMAGE_API qwen_image_status qwen_image_picture_save_png(const qwen_image_picture* picture,
                                                             const char* path);
/* The same for pixels of the caller's. `settings` are those of qwen_image_picture_settings; NULL or "" for
 * none. */
QWEN_IMAGE_API qwen_image_status qwen_image_write_png(const char* path, int64_t width, int64_t height,
                                                      int channels, const uint8_t* pixels,
                                                      const char* settings);

/* A drawing on a thread of its own, for programs that C cannot well call back: they ask what happens.
 *
 *   int event = 0;
 *   qwen_image_drawing* drawing = NULL;
 *   qwen_image_status status =
 *       qwen_image_drawing_start(pipeline, request, QWEN_IMAGE_EVENT_PROGRESS, &drawing);
 *   while (status == QWEN_IMAGE_OK && event != QWEN_IMAGE_EVENT_DRAWN)
 *     status = qwen_image_drawing_next(drawing, 100, &event);
 *
 * The pipeline must live as long as the drawing; the request is copied, and its callbacks are not called. */
typedef struct qwen_image_drawing qwen_image_drawing;

typedef enum qwen_image_event {
  QWEN_IMAGE_EVENT_NONE = 0,     /* nothing happened yet */
  QWEN_IMAGE_EVENT_PROGRESS = 1, /* qwen_image_drawing_progress */
  QWEN_IMAGE_EVENT_PREVIEW = 2,  /* qwen_image_drawing_picture is a preview */
  QWEN_IMAGE_EVENT_DRAWN = 4     /* qwen_image_drawing_picture is the result */
} qwen_image_event;

/* `events` are those to be told, PROGRESS + PREVIEW; DRAWN always is. */
QWEN_IMAGE_API qwen_image_status qwen_image_drawing_start(const qwen_image_pipeline* pipeline,
                                                          const qwen_image_request* request, int events,
                                                          qwen_image_drawing** drawing);
/* Waits for the next event, at most so many milliseconds; *event is one of qwen_image_event. After PROGRESS
 * and PREVIEW the drawing stands still until the next call: the thread that was told of them cannot draw
 * another picture with the pipeline meanwhile. What the drawing failed with is returned here. */
QWEN_IMAGE_API qwen_image_status qwen_image_drawing_next(qwen_image_drawing* drawing, int milliseconds,
                                                         int* event);
/* Of the last event; valid until the next call of qwen_image_drawing_next. */
QWEN_IMAGE_API const qwen_image_progress* qwen_image_drawing_progress(const qwen_image_drawing* drawing);
QWEN_IMAGE_API const qwen_image_picture* qwen_image_drawing_picture(const qwen_image_drawing* drawing);
/* Any thread may call it; qwen_image_drawing_next then returns QWEN_IMAGE_INTERRUPTED. */
QWEN_IMAGE_API void qwen_image_drawing_cancel(qwen_image_drawing* drawing);
/* Cancels it, waits until it has stopped, and frees it. */
QWEN_IMAGE_API void qwen_image_drawing_free(qwen_image_drawing* drawing);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* QWEN_IMAGE_C_API_H_ */
