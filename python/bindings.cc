// qwen_image._core: the library's own types for Python. What users see is in qwen_image/__init__.py, which
// also checks arguments; errors are the classes of qwen_image/_errors.py.
#include <pybind11/stl.h>
#include <pybind11/stl/filesystem.h>

#include <array>
#include <string_view>

#include "core/threads.h"
#include "draw.h"
#include "options/names.h"
#include "options/python_form.h"
#include "qwen_image/image_file.h"
#include "qwen_image/truncation_guard.h"

namespace py = pybind11;

namespace qwen_image {
namespace {

const char* ClassOf(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kUsage:
      return "UsageError";
    case ErrorKind::kBadInput:
      return "BadInputError";
    case ErrorKind::kOutOfMemory:
      return "OutOfMemoryError";
    case ErrorKind::kCannotWrite:
      return "CannotWriteError";
    case ErrorKind::kInterrupted:
      return "Interrupted";
    case ErrorKind::kInternal:
      break;
  }
  return "Error";
}

void Raise(ErrorKind kind, const char* message) {
  const py::object type = py::module_::import("qwen_image._errors").attr(ClassOf(kind));
  PyErr_SetString(type.ptr(), message);
}

void TranslateErrors(std::exception_ptr thrown) {
  try {
    if (thrown) std::rethrow_exception(thrown);
  } catch (const Error& error) {
    Raise(error.kind(), error.what());
  } catch (const std::bad_alloc&) {
    Raise(ErrorKind::kOutOfMemory, "out of memory");
  }
}

const char* StageName(const Progress& progress) {
  switch (progress.stage) {
    case Progress::Stage::kEncodePrompt:
      return "encode_prompt";
    case Progress::Stage::kEncodePictures:
      return "encode_pictures";
    case Progress::Stage::kDenoise:
      return "denoise";
    case Progress::Stage::kDecode:
      break;
  }
  return "decode";
}

void BindModelTypes(py::module_& module) {
  py::class_<ModelFiles>(module, "ModelFiles")
      .def(py::init<>())
      .def_readwrite("model", &ModelFiles::model)
      .def_readwrite("transformer", &ModelFiles::transformer)
      .def_readwrite("text_encoder", &ModelFiles::text_encoder)
      .def_readwrite("vae", &ModelFiles::vae)
      .def_readwrite("tokenizer", &ModelFiles::tokenizer)
      .def_readwrite("vision_encoder", &ModelFiles::vision_encoder)
      .def_readwrite("variant", &ModelFiles::variant)
      .def("add_lora", [](ModelFiles& files, const std::filesystem::path& path, double scale) {
        files.loras.push_back({path, scale});
      });
  py::enum_<Device> device(module, "Device");
  for (const auto& [value, name] : kDevices) device.value(name, value);
  py::enum_<Precision> precision(module, "Precision");
  for (const auto& [value, name] : kPrecisions) precision.value(name, value);
  py::class_<PipelineOptions>(module, "PipelineOptions")
      .def(py::init<>())
      .def_readwrite("threads", &PipelineOptions::threads)
      .def_readwrite("check_memory", &PipelineOptions::check_memory)
      .def_readwrite("device", &PipelineOptions::device)
      .def_readwrite("precision", &PipelineOptions::precision)
      .def_readwrite("prompt_cache", &PipelineOptions::prompt_cache);
  py::class_<Defaults>(module, "Defaults")
      .def_readonly("width", &Defaults::width)
      .def_readonly("height", &Defaults::height)
      .def_readonly("steps", &Defaults::steps)
      .def_readonly("cfg", &Defaults::cfg)
      .def_readonly("negative_prompt", &Defaults::negative_prompt)
      .def_readonly("lightning", &Defaults::lightning)
      .def("__repr__", [](const Defaults& d) {
        return py::str("Defaults(width={}, height={}, steps={}, cfg={}, negative_prompt={!r}, lightning={})")
            .format(d.width, d.height, d.steps, d.cfg, d.negative_prompt, d.lightning);
      });
}

using RequestClass = py::class_<GenerateRequest>;

// One property for each setting. What is data is copied from arrays, and can only be set.
template <typename Value>
void BindSetting(RequestClass& type, const char* name, Value GenerateRequest::*member) {
  type.def_readwrite(name, member);
}

template <typename Given, typename Value, typename Convert>
void BindSetter(RequestClass& type, const char* name, Value GenerateRequest::*member,
                const Convert& convert) {
  type.def_property(
      name, py::cpp_function(),
      [member, convert](GenerateRequest& request, const Given& given) { request.*member = convert(given); });
}

void BindSetting(RequestClass& type, const char* name, std::vector<Image> GenerateRequest::*member) {
  BindSetter<std::vector<Bytes>>(type, name, member, [](const std::vector<Bytes>& pictures) {
    std::vector<Image> images;
    for (const Bytes& pixels : pictures) images.push_back(ImageOf(pixels));
    return images;
  });
}

void BindSetting(RequestClass& type, const char* name, std::optional<Image> GenerateRequest::*member) {
  BindSetter<Bytes>(type, name, member, &ImageOf);
}

void BindSetting(RequestClass& type, const char* name, std::optional<GreyImage> GenerateRequest::*member) {
  BindSetter<Bytes>(type, name, member, &GreyOf);
}

void BindSetting(RequestClass& type, const char* name,
                 std::optional<InitialLatents> GenerateRequest::*member) {
  BindSetter<Floats>(type, name, member, [](const Floats& values) {
    return InitialLatents{{values.shape(), values.shape() + values.ndim()},
                          {values.data(), values.data() + values.size()}};
  });
}

void BindSetting(RequestClass& type, const char* name, Margins GenerateRequest::*member) {
  using Sides = std::array<int64_t, 4>;
  BindSetter<Sides>(type, name, member, [](const Sides& s) { return Margins{s[0], s[1], s[2], s[3]}; });
}

void BindRequest(py::module_& module) {
  py::enum_<GenerateRequest::Tiling> tiling(module, "Tiling");
  for (const auto& [value, name] : kTilings) tiling.value(name, value);
  RequestClass type(module, "Request");
  type.def(py::init<>());
  py::dict kinds;
  for (const options::Field& field : options::Fields()) {
    std::visit([&](auto member) { BindSetting(type, field.name, member); }, field.member);
    kinds[field.name] = options::PythonKindOf(field);
  }
  // What each setting is: a function of _arguments.py.
  module.attr("SETTINGS") = kinds;
}

std::map<std::string, double> SecondsOf(const Picture& picture) {
  const StageSeconds& s = picture.seconds;
  return {{"encode_prompt", s.encode_prompt},
          {"encode_pictures", s.encode_pictures},
          {"denoise", s.denoise},
          {"decode", s.decode}};
}

std::optional<std::map<std::string, double>> AlignmentOf(const Picture& picture) {
  if (!picture.source || !picture.source->alignment.measurable) return std::nullopt;
  const Alignment& a = picture.source->alignment;
  return {{{"shift_x", a.shift_x},
           {"shift_y", a.shift_y},
           {"scale_x", a.scale_x},
           {"scale_y", a.scale_y},
           {"confidence", a.confidence},
           {"uncertainty", a.uncertainty}}};
}

void BindPicture(py::module_& module) {
  py::class_<Progress>(module, "Progress")
      .def_property_readonly("stage", &StageName)
      .def_readonly("step", &Progress::step)
      .def_readonly("steps", &Progress::steps)
      .def_readonly("fraction", &Progress::fraction)
      .def("__repr__", [](const Progress& p) {
        return py::str("Progress(stage={!r}, step={}, steps={}, fraction={})")
            .format(StageName(p), p.step, p.steps, p.fraction);
      });
  py::class_<Picture>(module, "Picture")
      .def_readonly("width", &Picture::width)
      .def_readonly("height", &Picture::height)
      .def_readonly("prompt", &Picture::prompt)
      .def_readonly("negative_prompt", &Picture::negative_prompt)
      .def_readonly("steps", &Picture::steps)
      .def_readonly("cfg", &Picture::cfg)
      .def_readonly("seed", &Picture::seed)
      .def_readonly("strength", &Picture::strength)
      .def_readonly("prompt_truncated", &Picture::prompt_truncated)
      .def_readonly("notes", &Picture::notes)
      .def_readonly("png_text", &Picture::png_text)
      .def_readonly("steps_resumed", &Picture::steps_resumed)
      .def_readonly("resume_file", &Picture::resume_file)
      .def_property_readonly("seconds", &SecondsOf)
      .def_property_readonly("alignment", &AlignmentOf)
      .def("array", [](const Picture& picture) { return ArrayOf(picture.image()); });
}

void BindPipeline(py::module_& module) {
  py::class_<Pipeline>(module, "Pipeline")
      .def(py::init<const ModelFiles&, const PipelineOptions&>(), py::call_guard<py::gil_scoped_release>())
      .def_property_readonly("defaults", &Pipeline::defaults)
      .def_property_readonly("variant", &Pipeline::variant)
      .def_property_readonly("edits", &Pipeline::edits)
      .def_property_readonly("channels", &Pipeline::channels)
      .def_property_readonly("threads", &Pipeline::threads)
      .def("generate", &Draw);
}

void BindFiles(py::module_& module) {
  module.def("remove_resume_state", [](const std::filesystem::path& resume_file) {
    Picture picture;
    picture.resume_file = resume_file;
    RemoveResumeState(picture);
  });
  module.def("read_image", [](const std::filesystem::path& path) {
    return ArrayOf(ReadImage(path, {}, Transparency::kKept).image);
  });
  module.def("decode_image", [](const py::bytes& bytes, const std::string& where) {
    return ArrayOf(DecodeImage(static_cast<std::string_view>(bytes), where, {}, Transparency::kKept).image);
  });
  const auto array_of_mask = [](const GreyImage& mask) {
    Bytes array({mask.height, mask.width});
    std::copy(mask.pixels.begin(), mask.pixels.end(), array.mutable_data());
    return array;
  };
  module.def("read_mask", [array_of_mask](const std::filesystem::path& path) {
    return array_of_mask(ReadMask(path).image);
  });
  module.def("decode_mask", [array_of_mask](const py::bytes& bytes, const std::string& where) {
    return array_of_mask(DecodeMask(static_cast<std::string_view>(bytes), where).image);
  });
  module.def("write_png", [](const std::filesystem::path& path, const Bytes& pixels,
                             const std::map<std::string, std::string>& text) {
    const Image image = ImageOf(pixels);
    const py::gil_scoped_release unlocked;
    WritePng(path, image, text);
  });
}

}  // namespace
}  // namespace qwen_image

PYBIND11_MODULE(_core, module) {
  module.attr("__version__") = qwen_image::Version();
  module.attr("MAX_THREADS") = qwen_image::kMaxThreads;
  py::register_exception_translator(&qwen_image::TranslateErrors);
  qwen_image::BindModelTypes(module);
  qwen_image::BindRequest(module);
  qwen_image::BindPicture(module);
  qwen_image::BindPipeline(module);
  qwen_image::BindFiles(module);
  py::module_::import("atexit").attr("register")(py::cpp_function(&qwen_image::StopDrawings));
  // A model that is cut while it is in use is an error here, not the end of Python.
  qwen_image::InstallTruncationGuard();
}
