// The form: what is drawn, and how.
import { brief, byId, make, plural, recall, remember, setText } from "./dom.js";
import * as pictures from "./pictures.js";
import * as mask from "./mask.js";

const kRatios = [["1:1", 1], ["4:3", 4 / 3], ["3:4", 3 / 4], ["16:9", 16 / 9], ["9:16", 9 / 16]];
const kMargins = ["left", "top", "right", "bottom"];
const kFieldOf = { prompt: "prompt", negative_prompt: "negative", width: "width", height: "height", steps: "steps", cfg: "cfg", seed: "seed", n: "count", strength: "strength", input_images: "files", init_image: "files", mask: "mask-open", outpaint: "extend-left", keep_size: "keep-size", size: "width", background: "background-colour" };

let info = null;
let unit = 16;           // sides are multiples of it
let strengthTouched = false;
let sizeBefore = "1:1";  // the choice before there were pictures
let hadPictures = false;
let complaint = {};      // what the message is about: {about, node}

const value = (id) => byId(id).value;
const isWhole = (text) => Number.isInteger(Number(text)) && text.trim() !== "";
const mode = () => byId("form").elements.mode.value;
const margins = () => kMargins.map((side) => Math.max(0, Math.round(Number(value(`extend-${side}`))) || 0));
const shape = () => byId("form").elements.shape?.value;
const sigmas = () => value("sigmas").split(/[\s,;]+/).filter((word) => word !== "").map(Number);
const masked = () => pictures.all().length === 1 && pictures.all()[0].mask;
const extended = () => pictures.all().length === 1 && margins().some((margin) => margin > 0);

function presetSize(name) {
  const { width, height } = info.defaults;
  const ratio = kRatios.find(([known]) => known === name)[1];
  if (ratio === 1 && width === height) return [width, height];
  const round = (side) => Math.max(unit, Math.round(side / unit) * unit);
  return [round(Math.sqrt(width * height * ratio)), round(Math.sqrt(width * height / ratio))];
}

// Null: the size of the picture that it begins with.
function size() {
  if (shape() === "auto") return null;
  return shape() === "custom" ? [Number(value("width")), Number(value("height"))] : presetSize(shape());
}

function makeShapes() {
  const chosen = shape() ?? "1:1";
  const choice = (name, text, box) => make("label", { class: "shape", id: `shape-${name.replace(":", "-")}` },
    make("input", { type: "radio", name: "shape", value: name }), make("span", { class: "shape-face" }, box, text));
  byId("shapes").replaceChildren(
    choice("auto", "Same", make("span", { class: "shape-box dashed" })),
    ...kRatios.map(([name, ratio]) => {
      const box = make("span", { class: "shape-box" });
      box.style.setProperty("aspect-ratio", String(ratio));
      return choice(name, name, make("span", { class: "shape-frame" }, box));
    }),
    choice("custom", "Other", make("span", { class: "shape-box dashed" })));
  choose(chosen);
}

function choose(name) {
  byId("form").elements.shape.value = name;
}

// As requests and jobs have it; "": as the model draws it.
function background() {
  const chosen = byId("form").elements.background.value;
  return chosen === "other" ? value("background-colour").trim() : chosen;
}

function setBackground(name) {
  const choices = byId("form").elements.background;
  choices.value = "other";
  for (const choice of choices) choice.checked ||= choice.value === name;
  byId("background-colour").value = choices.value === "other" ? name : "";
}

// Everything that depends on something else in the form.
export function refresh() {
  if (!info) return;
  const inputs = pictures.all();
  const any = inputs.length > 0;
  if (any && !hadPictures) {
    sizeBefore = shape();
    choose("auto");
  } else if (!any && hadPictures && shape() === "auto") {
    choose(sizeBefore === "auto" ? "1:1" : sizeBefore);
  }
  hadPictures = any;

  byId("picture-options").hidden = !any;
  setText(byId("drop-text").firstElementChild, any ? "Add more pictures" : "Choose pictures");
  const [edit, begin] = byId("form").elements.mode;
  edit.disabled = !info.edits;
  begin.disabled = inputs.length > 1 && info.edits;
  if (!info.edits) begin.checked = true;
  else if (begin.disabled) edit.checked = true;
  setText(byId("mode-hint"), !info.edits
    ? (inputs.length > 1 ? "This model can only begin with one picture; the first is used." : "This model was not made for editing by instruction. It can begin with a picture, or redraw a part of it.")
    : mode() === "begin" ? "The picture is redrawn towards the prompt, which describes the result."
      : inputs.length > 1 ? "The prompt says what to do; call them “Picture 1”, “Picture 2” …" : "The prompt says what to change, like “make the circle green”.");

  const single = inputs.length === 1;
  byId("mask-row").hidden = byId("extend-row").hidden = !single;
  byId("mask-remove").hidden = !masked();
  setText(byId("mask-open-text"), masked() ? "Change the mask" : "Paint what to redraw");
  const partial = Boolean(masked() || extended());
  byId("strength-row").hidden = !(mode() === "begin" || partial);
  if (!strengthTouched) byId("strength").value = extended() ? 100 : 60;
  setText(byId("strength-value"), `${value("strength")} %`);

  const locked = any && mode() === "edit" && partial;  // such an edit has the size of its picture
  if (locked) choose("auto");
  for (const input of document.getElementsByName("shape")) input.disabled = locked && input.value !== "auto";
  byId("shape-auto").hidden = !any;
  byId("keep-row").hidden = shape() !== "auto" || Boolean(masked());
  byId("custom-size").hidden = byId("size-hint").hidden = shape() !== "custom";
  setText(byId("size-value"), shape() === "auto" ? "same as the picture" : size().map((side) => side || "?").join(" × "));

  byId("background-row").hidden = info.channels !== 4;
  byId("background-other").hidden = byId("form").elements.background.value !== "other";

  byId("seed-random").setAttribute("aria-pressed", String(value("seed").trim() === ""));
  const count = Number(value("count"));
  byId("count-less").disabled = count <= 1;
  byId("count-more").disabled = count >= Number(byId("count").max);
  byId("steps").disabled = sigmas().length > 0;  // these are the steps
  setText(byId("advanced-value"), `${sigmas().length || value("steps")} steps · guidance ${value("cfg")}`);
  remember("draft", { prompt: value("prompt"), negative: value("negative"), shape: any ? sizeBefore : shape(), width: value("width"), height: value("height"), steps: value("steps"), cfg: value("cfg"), sigmas: value("sigmas"), seed: value("seed"), count: value("count"), background: background() });
}

function setDefaults() {
  const { width, height, steps, cfg, negative_prompt: negative } = info.defaults;
  const values = { width, height, steps, cfg, negative: negative.trim(), sigmas: "" };
  for (const [id, content] of Object.entries(values)) byId(id).value = content;
}

// The model may be another one after the server was started again: then its defaults are taken.
export function setInfo(next) {
  const before = info;
  info = next;
  const limits = info.limits ?? {};
  unit = info.side_multiple ?? unit;
  setText(byId("size-multiple"), String(unit));
  for (const id of ["width", "height"]) byId(id).min = byId(id).step = unit;
  for (const side of kMargins) byId(`extend-${side}`).step = unit;
  for (const [id, limit] of [["count", limits.n], ["steps", limits.steps]]) {
    if (limit) byId(id).max = limit;
  }
  if (limits.prompt_bytes) byId("prompt").maxLength = byId("negative").maxLength = limits.prompt_bytes;
  if (JSON.stringify(before?.defaults) === JSON.stringify(info.defaults)) return refresh();
  makeShapes();
  setDefaults();
  const draft = before ? undefined : recall("draft");
  if (draft) {
    const { shape: chosen, background: ground, ...values } = draft;
    for (const [id, content] of Object.entries(values)) byId(id).value = content;
    setBackground(ground ?? "");
    choose(kRatios.some(([name]) => name === chosen) || chosen === "custom" ? chosen : "1:1");
  }
  refresh();
}

// The control for a field of the request, or with an id, that can be shown; undefined if none can.
function controlOf(field) {
  const name = field?.replace(/\[.*/, "");  // input_images[1]
  const node = name && byId(kFieldOf[name] ?? name);
  const details = node?.closest("details");
  if (details) details.open = true;
  if (node?.checkVisibility()) return node;
  return byId("custom-size").contains(node) ? document.querySelector("[name=shape]:checked") : undefined;
}

// Says at the Draw button what is wrong, and marks the field if one is known. `about` is "input", or what has to end before
// the message is past (see settle).
export function showMessage(text, field, about = "input") {
  const message = byId("message");
  for (const bad of byId("form").querySelectorAll("[aria-invalid]")) {
    bad.removeAttribute("aria-invalid");
    bad.removeAttribute("aria-errormessage");
  }
  message.hidden = !text;
  setText(message, text ?? "");
  const node = text ? controlOf(field) : undefined;
  complaint = text ? { about, node } : {};
  if (!text) return;
  message.scrollIntoView({ block: "nearest" });
  if (!node) return;
  node.setAttribute("aria-invalid", "true");
  node.setAttribute("aria-errormessage", "message");
  node.focus();
}

// That is over: a message about it goes away. True if there was one.
export function settle(about) {
  if (complaint.about !== about) return false;
  showMessage(null);
  return true;
}

// A control has another value: what was said about it, or about nothing in particular, may be wrong by now.
function settleInput(node) {
  if (complaint.about !== "input") return;
  const same = !complaint.node || complaint.node === node || (complaint.node.name && complaint.node.name === node.name)
    || ["size-field", "background-row"].some((id) => byId(id).contains(complaint.node) && byId(id).contains(node));
  if (same) showMessage(null);
}

// What is wrong with the form, as [text, field]; undefined if nothing is.
function problem() {
  if (value("prompt").trim() === "") return ["Write what you want to see first.", "prompt"];
  if (shape() === "custom" && size().some((side) => !(side >= unit) || side % unit)) {
    return [`Width and height must be multiples of ${unit}.`, size()[0] % unit || !(size()[0] >= unit) ? "width" : "height"];
  }
  const { pixels = Infinity, images = Infinity, image_pixels: inputPixels = Infinity, body_bytes: bytes = Infinity } = info.limits ?? {};
  if (size() && size()[0] * size()[1] > pixels) return [`That is too large: this server draws up to ${Math.floor(Math.sqrt(pixels))} × ${Math.floor(Math.sqrt(pixels))} pixels.`, "width"];
  if (pictures.all().length > images) return [`At most ${plural(images, "picture", "pictures")} can be edited at once.`, "files"];
  if (pictures.all().reduce((sum, { width, height }) => sum + width * height, 0) > inputPixels) return [`The pictures have more than ${Math.floor(inputPixels / 1e6)} megapixels together, which this server does not take. Smaller ones will do.`, "files"];
  if (pictures.all().reduce((sum, { data, mask: painted }) => sum + data.length + (painted?.data.length ?? 0), 50000) > bytes) return [`The files of the pictures are too large; together they may have ${Math.floor(bytes * 0.74 / 1e6)} MB.`, "files"];
  if (sigmas().some((sigma) => !Number.isFinite(sigma))) return ["Noise levels are numbers with commas between them, like 1, 0.9, 0.5.", "sigmas"];
  if (!byId("background-row").hidden && byId("form").elements.background.value === "other" && background() === "") return ["Say which colour the background has.", "background"];
  if (!sigmas().length && (!isWhole(value("steps")) || Number(value("steps")) < 1)) return ["Steps are a whole number, 1 at least.", "steps"];
  if (value("cfg") === "" || !(Number(value("cfg")) >= 0)) return ["The guidance is a number from 0 upwards; 1 switches it off.", "cfg"];
  const seed = value("seed").trim();
  if (seed && (!/^\d{1,20}$/.test(seed) || BigInt(seed) >= 2n ** 64n)) return ["The seed is a whole number from 0 to 18446744073709551615, or nothing.", "seed"];
  if (!isWhole(value("count")) || Number(value("count")) < 1) return ["The number of pictures is a whole one, 1 at least.", "count"];
  return undefined;
}

function randomSeed() {
  return String(crypto.getRandomValues(new Uint32Array(1))[0]);
}

// The request as the server wants it, and what is needed to fill the form with it again. Null: the form says why.
export function collect() {
  const wrong = problem();
  showMessage(...(wrong ?? [null]));
  if (wrong) return null;
  const request = { prompt: value("prompt"), cfg: Number(value("cfg")), n: Number(value("count")), seed: value("seed").trim() || randomSeed() };
  if (sigmas().length) request.sigmas = sigmas();
  else request.steps = Number(value("steps"));
  if (!byId("background-row").hidden && background()) request.background = background();
  if (value("negative") !== info.defaults.negative_prompt.trim()) request.negative_prompt = value("negative");
  if (size()) [request.width, request.height] = size();
  const inputs = pictures.all();
  if (inputs.length) {
    if (mode() === "edit") request.input_images = inputs.map(({ data }) => data);
    else request.init_image = inputs[0].data;
    if (masked()) request.mask = inputs[0].mask.data;
    if (extended()) request.outpaint = margins();
    if (!byId("strength-row").hidden && (strengthTouched || mode() === "begin")) request.strength = Number(value("strength")) / 100;
    if (!byId("keep-row").hidden && byId("keep-size").checked) request.keep_size = true;
  }
  return { request, kept: { pictures: inputs.map((picture) => ({ ...picture })), mode: mode(), margins: margins(), shape: shape(), keep: byId("keep-size").checked } };
}

// Fills the form with a job's settings. `kept` is what collect() gave for it, if this page sent it.
// False: it was made from pictures, and they are not here any more.
export function fill(job, kept) {
  const values = { prompt: job.prompt, negative: job.negative_prompt.trim(), steps: job.steps, cfg: job.cfg, sigmas: (job.sigmas ?? []).join(", "), seed: String(job.seed), count: job.n };
  for (const [id, content] of Object.entries(values)) byId(id).value = content;
  setBackground(job.background === "transparent" ? "" : job.background ?? "");
  hadPictures = false;
  pictures.replaceAll((kept?.pictures ?? []).map((picture) => ({ ...picture })));
  const form = byId("form");
  if (kept?.pictures.length) {
    form.elements.mode.value = kept.mode;
    kMargins.forEach((side, index) => { byId(`extend-${side}`).value = kept.margins[index]; });
    byId("keep-size").checked = kept.keep;
  }
  strengthTouched = typeof job.strength === "number";
  if (strengthTouched) byId("strength").value = Math.round(job.strength * 100);
  [byId("width").value, byId("height").value] = [job.width, job.height];
  const preset = kRatios.map(([name]) => name).find((name) => presetSize(name).join() === [job.width, job.height].join());
  choose(kept?.pictures.length ? kept.shape : preset ?? "custom");
  showMessage(null);
  refresh();
  return Boolean(kept) || (job.input_images === 0 && !job.init_image);
}

export function setUp({ onDraw }) {
  const form = byId("form");
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    onDraw();
  });
  addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && !document.querySelector("dialog[open]")) {
      event.preventDefault();
      onDraw();
    }
  });
  form.addEventListener("input", (event) => {
    if (event.target.id === "strength") strengthTouched = true;
    refresh();
  });
  form.addEventListener("change", (event) => settleInput(event.target));
  for (const id of ["width", "height"]) {
    byId(id).addEventListener("change", () => {
      const side = Math.round(Number(value(id)) / unit) * unit;
      byId(id).value = Math.min(Number(byId(id).max) || Infinity, Math.max(unit, side || info.defaults[id]));
      refresh();
    });
  }
  const count = (delta) => {
    byId("count").value = Math.min(Number(byId("count").max), Math.max(1, Number(value("count")) + delta));
    settleInput(byId("count"));
    refresh();
  };
  byId("count-less").addEventListener("click", () => count(-1));
  byId("count-more").addEventListener("click", () => count(1));
  byId("seed-random").addEventListener("click", () => {
    byId("seed").value = "";
    settleInput(byId("seed"));
    refresh();
  });
  byId("reset").addEventListener("click", () => {
    setDefaults();
    settle("input");
    refresh();
  });
  byId("mask-open").addEventListener("click", () => {
    const [picture] = pictures.all();
    mask.paint(picture, (painted) => {
      picture.mask = painted;
      settleInput(byId("mask-open"));
      refresh();
    });
  });
  byId("mask-remove").addEventListener("click", () => {
    pictures.all()[0].mask = null;
    settleInput(byId("mask-open"));
    byId("mask-open").focus();
    refresh();
  });
  mask.setUp();
  pictures.setUp({
    onChange: () => {
      settleInput(byId("files"));
      refresh();
    },
    onProblem: (text) => showMessage(text, "files"),
  });
}

// What tells a drawing from the others for those who only hear of it.
export const nameOf = (job) => `${brief(job.prompt)}, seed ${job.seed}`;

export function describe(job) {
  const parts = [];
  if (job.width) parts.push(`${job.width} × ${job.height}`);
  if (job.steps) parts.push(plural(job.steps, "step", "steps"));
  parts.push(`seed ${job.seed}`);
  return parts.join(" · ");
}
