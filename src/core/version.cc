#include "qwen_image/qwen_image.h"

namespace qwen_image {

const char* Version() { return QWEN_IMAGE_VERSION; }

}  // namespace qwen_image
