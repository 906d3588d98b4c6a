/* Marks what the shared library shows to others. Everything else in it is hidden. For C and C++. */
#ifndef QWEN_IMAGE_EXPORT_H_
#define QWEN_IMAGE_EXPORT_H_

#define QWEN_IMAGE_API __attribute__((visibility("default")))
#define QWEN_IMAGE_HIDDEN __attribute__((visibility("hidden")))

#endif /* QWEN_IMAGE_EXPORT_H_ */
