// Tensors that one run keeps in a file for a later one: prompt embeddings, the state of an unfinished run.
// The file is safetensors with metadata and a checksum. It appears under its name only when it is whole and
// on the disk; when it is read, nothing in it is taken on trust.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "core/tensor.h"
#include "files/output_file.h"

namespace qwen_image::keep {

struct TensorFile {
  std::map<std::string, std::string> metadata;
  std::map<std::string, Tensor> tensors;
};

// Throws Error kCannotWrite.
void WriteTensorFile(const std::filesystem::path& path, const TensorFile& kept,
                     OutputFile::Folder folder = OutputFile::Folder::kUsers);

// What the reader knows beforehand: metadata that must be there with these values, and all tensors' shapes.
struct ExpectedTensors {
  std::map<std::string, std::string> metadata;
  std::map<std::string, Shape> shapes;
};

// Throws Error kBadInput that says what is wrong: other metadata, other tensors, a wrong checksum, values
// that are not finite. Allocates no more than the expected tensors and a header need.
TensorFile ReadTensorFile(const std::filesystem::path& path, const ExpectedTensors& expected);

}  // namespace qwen_image::keep
