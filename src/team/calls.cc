#include "team/calls.h"

#include <fmt/format.h>

#include <cstdio>

namespace qwen_image::team {
namespace {

struct Header {
  Call call;
  uint64_t bytes;
};

void Put(Writer& to, const std::filesystem::path& path) {
  // Another machine may have been started in another folder.
  to.Put(path.empty() ? std::string() : std::filesystem::absolute(path).string());
}

void Put(Writer& to, TokenGrid grid) {
  to.Put(grid.height);
  to.Put(grid.width);
}

TokenGrid GetGrid(Reader& from) {
  const auto height = from.Get<int64_t>();
  return {height, from.Get<int64_t>()};
}

}  // namespace

void Tell(const machines::Session& session, Call call, const Writer& message) {
  if (session.failed()) {  // a server went on to its next job
    fmt::print(stderr,
               "qwen-image: this machine failed in the middle of a picture; all machines are stopped\n");
    session.Abort();
  }
  Header header{call, message.bytes().size()};
  session.all().Broadcast(0, std::as_writable_bytes(std::span(&header, 1)));
  if (header.bytes == 0) return;
  std::vector<std::byte> bytes(message.bytes().begin(), message.bytes().end());
  session.all().Broadcast(0, bytes);
}

std::pair<Call, std::vector<std::byte>> Hear(const machines::Session& session) {
  Header header{};
  session.all().Broadcast(0, std::as_writable_bytes(std::span(&header, 1)));
  std::vector<std::byte> bytes(header.bytes);
  if (!bytes.empty()) session.all().Broadcast(0, bytes);
  return {header.call, std::move(bytes)};
}

std::vector<std::vector<std::byte>> ShareAll(const machines::Session& session,
                                             std::span<const std::byte> own) {
  const auto self = static_cast<size_t>(session.rank());
  std::vector<uint64_t> sizes(static_cast<size_t>(session.size()));
  sizes[self] = own.size();
  std::vector<std::span<std::byte>> parts;
  for (uint64_t& size : sizes) parts.push_back(std::as_writable_bytes(std::span(&size, 1)));
  session.all().Share(parts);

  std::vector<std::vector<std::byte>> all;
  for (const uint64_t size : sizes) all.emplace_back(size);
  all[self].assign(own.begin(), own.end());
  parts.clear();
  for (std::vector<std::byte>& bytes : all) parts.emplace_back(bytes);
  session.all().Share(parts);
  return all;
}

Writer ModelCall::Write() const {
  Writer to;
  for (const std::filesystem::path* path : {&files.model, &files.transformer, &files.text_encoder, &files.vae,
                                            &files.tokenizer, &files.vision_encoder})
    team::Put(to, *path);
  to.Put(files.variant);
  to.Put(static_cast<uint64_t>(files.loras.size()));
  for (const LoraFile& lora : files.loras) {
    team::Put(to, lora.path);
    to.Put(lora.scale);
  }
  to.Put(options);
  to.Put(threads);
  to.Put(instruction_set);
  to.Put(split);
  return to;
}

ModelCall ModelCall::Read(std::span<const std::byte> bytes) {
  Reader from(bytes);
  ModelCall call;
  for (std::filesystem::path* path : {&call.files.model, &call.files.transformer, &call.files.text_encoder,
                                      &call.files.vae, &call.files.tokenizer, &call.files.vision_encoder})
    *path = from.GetText();
  call.files.variant = from.GetText();
  const auto loras = from.Get<uint64_t>();
  for (uint64_t i = 0; i < loras; ++i) {
    LoraFile& lora = call.files.loras.emplace_back();
    lora.path = from.GetText();
    lora.scale = from.Get<double>();
  }
  call.options = from.Get<ModelOptions>();
  call.threads = from.Get<int>();
  call.instruction_set = from.GetText();
  call.split = from.Get<Split>();
  return call;
}

Writer Report::Write() const {
  Writer to;
  to.Put(error);
  to.Put(static_cast<uint64_t>(facts.size()));
  for (const auto& [about, what] : facts) {
    to.Put(about);
    to.Put(what);
  }
  return to;
}

Report Report::Read(std::span<const std::byte> bytes) {
  Reader from(bytes);
  Report report;
  report.error = from.GetText();
  const auto facts = from.Get<uint64_t>();
  for (uint64_t i = 0; i < facts; ++i) {
    std::string about = from.GetText();
    report.facts.emplace_back(std::move(about), from.GetText());
  }
  return report;
}

Writer OwnedConditions::Write(const Conditions& conditions) {
  Writer to;
  to.Put(static_cast<uint64_t>(conditions.prompts.size()));
  for (const Conditions::Prompt& prompt : conditions.prompts) {
    to.Put(*prompt.embeds);
    to.PutAll(prompt.ids);
  }
  team::Put(to, conditions.drawn);
  to.Put(conditions.references != nullptr);
  if (conditions.references) to.Put(*conditions.references);
  to.Put(static_cast<uint64_t>(conditions.reference_grids.size()));
  for (const TokenGrid& grid : conditions.reference_grids) team::Put(to, grid);
  to.Put(conditions.available_memory.value_or(0));
  return to;
}

OwnedConditions::OwnedConditions(std::span<const std::byte> bytes) {
  Reader from(bytes);
  const auto prompts = from.Get<uint64_t>();
  for (uint64_t i = 0; i < prompts; ++i) {
    embeds_.push_back(from.GetTensor());
    ids_.push_back(from.GetAll<int64_t>());
  }
  for (size_t i = 0; i < embeds_.size(); ++i) view_.prompts.push_back({&embeds_[i], ids_[i]});
  view_.drawn = GetGrid(from);
  if (from.Get<bool>()) references_ = from.GetTensor();
  if (references_) view_.references = &*references_;
  const auto grids = from.Get<uint64_t>();
  for (uint64_t i = 0; i < grids; ++i) view_.reference_grids.push_back(GetGrid(from));
  view_.available_memory = from.Get<int64_t>();
}

}  // namespace qwen_image::team
