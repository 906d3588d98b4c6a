#include "machines/launcher.h"

#include <dlfcn.h>

#include <cstdlib>

#include "core/fail.h"
#include "qwen_image/qwen_image.h"

namespace qwen_image::machines {
namespace {

namespace fs = std::filesystem;

constexpr const char *kOpenMpi = "Open MPI", *kMpich = "MPICH";

std::string PluginOf(const Launcher& launcher) {
  return launcher.library == kMpich ? "libqwen_image_mpich.so" : "libqwen_image_openmpi.so";
}

}  // namespace

std::optional<Launcher> FindLauncher(const std::function<const char*(const char*)>& variable) {
  const auto number = [&](const char* name) {
    const char* const text = variable(name);
    return text ? std::atoi(text) : 0;
  };
  if (variable("OMPI_COMM_WORLD_SIZE")) {
    const int size = number("OMPI_COMM_WORLD_SIZE");
    if (size < 2) return std::nullopt;
    return Launcher{kOpenMpi, size, number("OMPI_COMM_WORLD_LOCAL_SIZE"),
                    number("OMPI_MCA_orte_bound_at_launch") != 0};
  }
  // Slurm itself starts Open MPI's processes with this interface (srun --mpi=pmix). Its own number of tasks
  // says how many.
  if (variable("PMIX_RANK") && number("SLURM_NTASKS") > 1)
    return Launcher{kOpenMpi, number("SLURM_NTASKS"), 0};
  if (number("PMI_SIZE") > 1) return Launcher{kMpich, number("PMI_SIZE"), number("MPI_LOCALNRANKS")};
  return std::nullopt;
}

std::vector<fs::path> PluginFolders() {
  std::vector<fs::path> folders;
  const auto add = [&](const fs::path& file) {
    if (file.empty()) return;
    folders.push_back(file.parent_path());
    folders.push_back(file.parent_path().parent_path() / "lib" / "qwen-image");
  };
  std::error_code ignored;
  add(fs::read_symlink("/proc/self/exe", ignored));
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&PluginFolders), &info) != 0 && info.dli_fname)
    add(fs::absolute(info.dli_fname, ignored));
  return folders;
}

fs::path FindPlugin(const Launcher& launcher, const std::vector<fs::path>& folders) {
  for (const fs::path& folder : folders) {
    std::error_code ignored;
    if (fs::exists(folder / PluginOf(launcher), ignored)) return folder / PluginOf(launcher);
  }
  const std::string missing =
      fmt::format("this program cannot talk by {}: {} is missing beside it; to build it: ./run build --mpi",
                  launcher.library, PluginOf(launcher));
  if (launcher.size < 2) Fail(ErrorKind::kUsage, "{}", missing);
  Fail(ErrorKind::kUsage, "a launcher of {} started {} processes, which would each draw alone: {}",
       launcher.library, launcher.size, missing);
}

std::unique_ptr<Wire> OpenWireOf(const Launcher& launcher, const std::vector<fs::path>& folders) {
  const fs::path file = FindPlugin(launcher, folders);
  // Open MPI loads parts of itself later, which look for its names.
  void* const plugin = dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (!plugin) Fail(ErrorKind::kUsage, "{} cannot be loaded: {}", file.string(), dlerror());
  const auto open = reinterpret_cast<OpenWire>(dlsym(plugin, kOpenWire));
  char error[256] = "it is not a plugin of this program";
  Wire* const wire = open ? open(Version(), error, sizeof(error)) : nullptr;
  if (!wire) Fail(ErrorKind::kUsage, "{}: {}", file.string(), error);
  return std::unique_ptr<Wire>(wire);
}

}  // namespace qwen_image::machines
