// What is drawn now, what waits, and what was drawn last.
import { byId, icon, make, plural, say, seconds, setText } from "./dom.js";
import { show } from "./api.js";
import { describe, nameOf } from "./form.js";

export const isActive = (job) => job.state === "queued" || job.state === "running";

const kStages = { "encode prompt": "Reading the prompt", "encode pictures": "Looking at the pictures", decode: "Finishing the picture" };
const previews = new Map();   // job → {picture, image} while it runs
const cancelling = new Set();
let actions = {};
let shown = null;             // the job on the stage
let heard = { at: 0 };        // when its time left was told
let told = {};                // what the live region said last
let lost = false;

export function setPreview(job, image) {
  previews.set(job.id, { picture: job.progress?.picture ?? 0, image });
}

function titleOf(job) {
  if (cancelling.has(job.id) && isActive(job)) return "Cancelling …";
  const { position, stage, step, steps, picture } = job.progress ?? {};
  switch (job.state) {
    case "queued": return position > 1 ? `Number ${position} in the queue` : "Next in the queue";
    case "running": {
      const which = job.n > 1 ? `Picture ${picture + 1} of ${job.n}: ` : "";
      const what = stage === "denoise" ? `step ${Math.min(step + 1, steps)} of ${steps}` : (kStages[stage] ?? "Starting").toLowerCase();
      return which ? which + what : what[0].toUpperCase() + what.slice(1);
    }
    case "done": return `Done in ${seconds(Math.max(0.1, (job.finished - job.started) / 1000))}`;
    case "failed": return "That did not work";
    case "cancelled": return "Cancelled";
    case "interrupted": return "Interrupted";
    default: return job.state;
  }
}

function detailOf(job) {
  if (job.state === "done" || job.state === "cancelled") return describe(job);
  if (!isActive(job)) return job.error || "";
  const { seconds_per_step: perStep, seconds_left: left } = job.progress ?? {};
  if (lost) return "The connection is lost. This page looks again by itself.";
  if (job.state === "queued") return "It begins when the ones before it are done.";
  const parts = [];
  if (perStep > 0) parts.push(`${seconds(perStep)} per step`);
  if (left > 0) parts.push(`${seconds(Math.max(1, Math.round(left - (performance.now() - heard.at) / 1000)))} left`);
  return parts.join(" · ") || "The time is not known yet.";
}

// One cell per picture from the beginning, so that nothing moves when they come.
function renderImages(job) {
  const box = byId("stage-images");
  if (box.dataset.job !== job.id) {
    box.dataset.job = job.id;
    box.replaceChildren(...Array.from({ length: job.n }, (_, index) => make("button",
      { type: "button", class: "cell", disabled: true, "aria-label": `Open picture ${index + 1}`, onclick: () => actions.open(job.id, index) }, make("img", { alt: "" }))));
    const columns = Math.ceil(Math.sqrt(job.n));
    box.style.setProperty("--columns", String(columns));
    box.style.setProperty("--rows", String(Math.ceil(job.n / columns)));
  }
  const preview = previews.get(job.id);
  [...box.children].forEach((cell, index) => {
    const image = cell.firstElementChild;
    const finished = job.images?.[index];
    if (job.width) cell.style.setProperty("--ratio", String(job.width / job.height));
    cell.disabled = !finished;
    cell.dataset.state = finished ? "done" : isActive(job) ? "wait" : "none";
    if (finished) {
      image.alt = job.prompt;
      image.classList.toggle("clear", Boolean(finished.alpha));
      show(image, finished.url);
    } else if (preview && preview.picture === index) {
      cell.dataset.state = "preview";
      image.alt = "Preview";
      image.classList.add("clear");  // an opaque one covers it
      show(image, preview.image);
    }
  });
}

function button(name, text, run, extra = {}) {
  return make("button", { type: "button", class: "button", onclick: run, ...extra }, ...(name ? [icon(name), " "] : []), text);
}

function renderActions(job) {
  const box = byId("stage-actions");
  const state = isActive(job) ? "active" : job.images?.length ? "pictures" : "ended";
  if (box.dataset.of === job.id + state) return;
  const focused = box.contains(document.activeElement);
  box.dataset.of = job.id + state;
  const again = button("again", "Draw again …", () => actions.again(job.id), { title: "Puts these settings into the form" });
  if (state === "active") box.replaceChildren(button("close", "Cancel", () => actions.cancel(job.id), { id: "cancel" }));
  else if (state === "ended") box.replaceChildren(again, button("close", "Dismiss", () => dismiss(job.id)));
  else box.replaceChildren(again, button("edit", "Use as input", () => actions.use(job.id, 0)), button("save", "Download", () => actions.download(job.id, 0)));
  if (focused) box.firstElementChild.focus();
}

function dismiss(id) {
  actions.remove(id);
  if (!byId("stage-actions").contains(document.activeElement)) byId("stage").focus();
}

function renderQueue(waiting) {
  byId("queue").hidden = waiting.length === 0;
  const list = byId("queue");
  const wanted = waiting.map((job) => job.id + titleOf(job)).join();
  if (list.dataset.of === wanted) return;
  list.dataset.of = wanted;
  const focused = list.contains(document.activeElement) ? document.activeElement.dataset.job : null;
  list.replaceChildren(...waiting.map((job) => make("li", { class: "queue-item" },
    make("span", { class: "queue-place" }, titleOf(job)),
    make("span", { class: "queue-prompt", dir: "auto" }, job.prompt),
    make("button", { type: "button", class: "button small", "data-job": job.id, "aria-label": `Cancel: ${nameOf(job)}`, onclick: () => actions.cancel(job.id) }, "Cancel"))));
  if (focused) list.querySelector(`[data-job="${CSS.escape(focused)}"]`)?.focus();
}

function announce(job) {
  const quarter = Math.floor((job.progress?.fraction ?? 0) * 4);
  const before = told;
  told = { id: job.id, state: job.state, quarter };
  if (before.id === job.id && before.state === job.state && (job.state !== "running" || before.quarter === quarter)) return;
  if (!isActive(job) && before.id !== job.id) return;  // it ended before this page was opened
  if (job.state === "done") say(`Done: ${plural(job.images.length, "picture", "pictures")}.`);
  else if (job.state === "running") say(quarter ? `${quarter * 25} per cent drawn. ${detailOf(job)}` : "Drawing has begun.");
  else say(`${titleOf(job)}. ${detailOf(job)}`);
}

function renderStatus() {
  const job = shown;
  setText(byId("stage-prompt"), job.prompt);
  setText(byId("stage-title"), titleOf(job));
  setText(byId("stage-detail"), detailOf(job));
  const percent = job.state === "done" ? 100 : job.state === "running" ? Math.floor(100 * (job.progress?.fraction ?? 0)) : 0;
  const bar = byId("bar");
  bar.dataset.state = lost && isActive(job) ? "lost" : job.state;
  bar.setAttribute("aria-valuenow", String(percent));
  bar.setAttribute("aria-valuetext", `${titleOf(job)}. ${detailOf(job)}`);
  byId("bar-fill").style.setProperty("--part", String(percent / 100));
  const badge = byId("stage-badge");
  badge.hidden = job.state !== "running" || !previews.has(job.id);
  setText(badge, "Preview");
}

// `job` is on the stage (null: nothing was ever drawn), `waiting` are those behind it, `gone`: the server is.
export function render(job, waiting, gone) {
  lost = gone;
  byId("stage-empty").hidden = job !== null;
  const none = job !== null && !isActive(job) && !job.images?.length;
  byId("stage-none").hidden = !none;
  byId("stage-images").hidden = job === null || none;
  renderQueue(waiting);
  if (job === null) {
    shown = null;
    byId("stage-images").dataset.job = "";
    byId("stage-actions").replaceChildren();
    byId("stage-actions").dataset.of = "";
    setText(byId("stage-prompt"), "");
    setText(byId("stage-title"), "Ready");
    setText(byId("stage-detail"), "Your pictures appear here while they are drawn.");
    byId("bar").dataset.state = "idle";
    byId("stage-badge").hidden = true;
    return;
  }
  const left = job.progress?.seconds_left;
  if (heard.id !== job.id || heard.left !== left) heard = { id: job.id, left, at: performance.now() };
  shown = job;
  if (!isActive(job)) {
    previews.delete(job.id);
    cancelling.delete(job.id);
  }
  renderImages(job);
  renderActions(job);
  renderStatus();
  announce(job);
}

export function markCancelling(id, on = true) {
  if (on) cancelling.add(id);
  else cancelling.delete(id);
  if (shown) renderStatus();
}

export function setUp(given) {
  actions = given;
  // The time left runs down between the server's messages, which are a step apart.
  setInterval(() => { if (shown?.state === "running") renderStatus(); }, 1000);
}
