// What was drawn, with its settings, and a closer look at it.
import { byId, icon, make, plural, seconds, setText } from "./dom.js";
import { show } from "./api.js";
import { describe, nameOf } from "./form.js";

const kPage = 24;  // full pictures are loaded: not all at once
const kEnded = { failed: "Failed", cancelled: "Cancelled", interrupted: "Interrupted" };
const cards = new Map();  // id → {node, of}
let actions = {};
let jobs = [];
let most = kPage;
let viewed = null;  // {id, index}

function action(name, label, job, run) {
  label = `${label}: ${nameOf(job)}`;
  return make("button", { type: "button", class: "button icon-button quiet", "aria-label": label, title: label, onclick: run }, icon(name));
}

function makeCard(job) {
  const images = job.images ?? [];
  let face;
  if (images.length) {
    face = make("button", { type: "button", class: "thumb", "aria-label": `Open: ${nameOf(job)}`, onclick: () => open(job.id, 0) });
    face.dataset.count = String(Math.min(images.length, 4));
    for (const { url, alpha } of images.slice(0, 4)) {
      const image = make("img", { alt: "", decoding: "async", ...(alpha ? { class: "clear" } : {}) });
      face.append(image);
      show(image, url);
    }
    if (images.length > 1) face.append(make("span", { class: "badge" }, plural(images.length, "picture", "pictures")));
  } else {
    face = make("div", { class: "thumb none" }, make("p", { class: "thumb-state" }, kEnded[job.state] ?? job.state), make("p", { class: "thumb-error" }, job.error || ""));
  }
  const buttons = [action("again", "Draw again", job, () => actions.again(job.id))];
  if (images.length) {
    buttons.push(action("edit", "Use as input", job, () => actions.use(job.id, 0)), action("save", "Download", job, () => actions.download(job.id, 0)));
  }
  buttons.push(images.length ? action("bin", "Delete", job, () => remove(job.id)) : action("close", "Dismiss", job, () => remove(job.id)));
  return make("li", { class: "card", "data-job": job.id, "data-state": job.state }, face,
    make("div", { class: "card-text" }, make("p", { class: "card-prompt", dir: "auto", title: job.prompt }, job.prompt), make("p", { class: "card-meta" }, describe({ ...job, steps: 0 }))),
    make("div", { class: "card-actions" }, ...buttons));
}

function remove(id) {
  const next = cards.get(id)?.node.nextElementSibling ?? cards.get(id)?.node.previousElementSibling;
  actions.remove(id);
  (next?.querySelector(".card-actions button:last-child") ?? byId("stage")).focus();
}

export function render(ended) {
  jobs = ended;
  const visible = jobs.slice(0, most);
  const list = byId("gallery");
  const wanted = new Set(visible.map(({ id }) => id));
  for (const [id, { node }] of cards) {
    if (wanted.has(id)) continue;
    node.remove();
    cards.delete(id);
  }
  visible.forEach((job, place) => {
    const of = `${job.state} ${job.images?.length}`;
    let card = cards.get(job.id);
    if (card?.of !== of) {
      const node = makeCard(job);
      card?.node.replaceWith(node);
      card = { node, of };
      cards.set(job.id, card);
    }
    if (list.children[place] !== card.node) list.insertBefore(card.node, list.children[place] ?? null);
    // A picture that could not be fetched is tried again.
    card.node.querySelectorAll(".thumb img").forEach((image, index) => show(image, job.images[index].url));
  });
  byId("gallery-empty").hidden = jobs.length > 0;
  byId("gallery-more").hidden = jobs.length <= most;
  setText(byId("gallery-count"), jobs.length ? plural(jobs.length, "drawing", "drawings") : "");
  if (viewed && !jobs.some(({ id }) => id === viewed.id)) byId("viewer").close();
}

// All pictures in the gallery's order, for the viewer.
const everything = () => jobs.flatMap((job) => (job.images ?? []).map((image, index) => ({ job, image, index })));

function turn(by) {
  const list = everything();
  const at = list.findIndex(({ job, index }) => job.id === viewed.id && index === viewed.index);
  const next = list[at + by];
  if (next) open(next.job.id, next.index);
}

function settingsOf(job, image) {
  const list = [["Size", `${image.width} × ${image.height}`], ["Seed", image.seed], ["Steps", job.steps], ["Guidance", job.cfg]];
  if (job.sigmas) list.push(["Noise levels", job.sigmas.join(", ")]);
  if (job.background) list.push(["Background", job.background]);
  if (job.negative_prompt?.trim()) list.push(["Negative prompt", job.negative_prompt]);
  if (job.input_images) list.push(["Made from", plural(job.input_images, "picture", "pictures") + (job.mask ? ", with a mask" : "")]);
  if (job.init_image) list.push(["Began with", job.mask ? "a picture and a mask" : "a picture"]);
  if (typeof job.strength === "number") list.push(["Change", `${Math.round(job.strength * 100)} %`]);
  if (job.finished > job.started) list.push(["Drawn in", seconds((job.finished - job.started) / 1000)]);
  if (job.created) list.push(["Drawn on", new Date(job.created).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" })]);
  return list;
}

export function open(id, index) {
  const job = jobs.find((other) => other.id === id);
  const image = job?.images?.[index];
  if (!image) return;
  viewed = { id, index };
  const list = everything();
  const at = list.findIndex((other) => other.job === job && other.index === index);
  byId("viewer-previous").disabled = at <= 0;
  byId("viewer-next").disabled = at >= list.length - 1;
  const picture = byId("viewer-image");
  picture.alt = job.prompt;
  picture.classList.toggle("clear", Boolean(image.alpha));
  picture.style.setProperty("aspect-ratio", `${image.width} / ${image.height}`);
  picture.style.setProperty("--ratio", String(image.width / image.height));
  show(picture, image.url);
  setText(byId("viewer-title"), job.images.length > 1 ? `Picture ${index + 1} of ${job.images.length}` : "Picture");
  setText(byId("viewer-prompt"), job.prompt);
  byId("viewer-settings").replaceChildren(...settingsOf(job, image).map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", { dir: "auto" }, String(value)))));
  byId("viewer-notes").replaceChildren(...(job.notes ?? []).map((note) => make("li", {}, note)));
  const close = (run) => () => {
    byId("viewer").close();
    run();
  };
  const named = (name, text, run) => make("button", { type: "button", class: "button", onclick: run }, icon(name), " ", text);
  byId("viewer-actions").replaceChildren(
    named("again", "Draw again …", close(() => actions.again(id))),
    named("edit", "Use as input", close(() => actions.use(id, index))),
    named("save", "Download", () => actions.download(id, index)),
    named("bin", job.images.length > 1 ? `Delete all ${job.images.length}` : "Delete", close(() => remove(id))));
  if (!byId("viewer").open) byId("viewer").showModal();
}

export function setUp(given) {
  actions = given;
  const viewer = byId("viewer");
  byId("gallery-more").addEventListener("click", () => {
    const first = byId("gallery").children.length;
    most += kPage;
    render(jobs);
    byId("gallery").children[first]?.querySelector("button")?.focus();
  });
  byId("viewer-close").addEventListener("click", () => viewer.close());
  byId("viewer-previous").addEventListener("click", () => turn(-1));
  byId("viewer-next").addEventListener("click", () => turn(1));
  viewer.addEventListener("keydown", (event) => {
    if (event.key === "ArrowLeft") turn(-1);
    else if (event.key === "ArrowRight") turn(1);
  });
  viewer.addEventListener("click", (event) => { if (event.target === viewer) viewer.close(); });
  viewer.addEventListener("close", () => { viewed = null; });
}
