// Starts the page, keeps it in step with the server, and does what the buttons say.
import * as api from "./api.js";
import * as form from "./form.js";
import * as gallery from "./gallery.js";
import * as pictures from "./pictures.js";
import * as stage from "./stage.js";
import { byId, make, plural, say, setText, toast } from "./dom.js";

const kBusy = 2, kIdle = 5, kPatience = [1, 2, 4, 8, 15];  // seconds between looks at the server
const kKeptRequests = 20;

let info = null;
let jobs = [];                 // newest first, as the server has them
let link = "wait";             // wait, ok, gone, locked
let failures = 0;
let nextLook = 0;              // the timer
let looking = false, lookAgain = false;
let followed = null;           // {id, controller}: the job whose events are read
let staged = null;             // id of the job on the stage when nothing is drawn
let doneUnseen = false;        // finished while the page was hidden
const removed = new Map();     // id → what ends the time to undo
const apologies = [];          // what closes the toasts that say that the server does not answer
const sent = new Map();        // id → {pictures, …} of jobs that this page asked for

const find = (id) => jobs.find((job) => job.id === id);

// --- what is seen ---

function merge(job) {
  const place = jobs.findIndex(({ id }) => id === job.id);
  if (place >= 0) jobs[place] = job;
  else jobs.unshift(job);
}

function render() {
  const visible = jobs.filter(({ id }) => !removed.has(id));
  const active = visible.filter(stage.isActive).reverse();
  active.sort((a, b) => (a.state === "running" ? 0 : a.progress?.position ?? 1) - (b.state === "running" ? 0 : b.progress?.position ?? 1));
  const ended = visible.filter((job) => !stage.isActive(job));
  const now = active[0] ?? ended.find(({ id }) => id === staged) ?? ended.find((job) => job.state === "done") ?? null;
  if (active[0]) staged = active[0].id;
  stage.render(now, active.slice(1), link === "gone");
  // What was cancelled is nothing to keep, unless some of its pictures were done.
  gallery.render(ended.filter((job) => job.state !== "cancelled" || job.images?.length));
  renderTitle(active[0]);
}

function renderTitle(job) {
  let text = "Qwen-Image";
  if (job?.state === "running") text = `${Math.floor(100 * (job.progress?.fraction ?? 0))} % · ${text}`;
  else if (job) text = `Waiting · ${text}`;
  else if (doneUnseen) text = `Done · ${text}`;
  if (document.title !== text) document.title = text;
}

function renderInfo() {
  setText(byId("model"), info.model);
  setText(byId("about"), `qwen-image ${info.version} · ${info.variant || "model"} · ${plural(info.threads, "thread", "threads")}`);
  form.setInfo(info);
}

function setLink(state, text) {
  const before = link;
  link = state;
  byId("link").dataset.state = state;
  setText(byId("link-text"), { wait: "Connecting …", ok: "Connected", gone: "No connection", locked: "Locked" }[state]);
  byId("banner").hidden = state === "ok" || state === "wait";
  setText(byId("banner-retry"), state === "locked" ? "Enter the key" : "Try now");
  if (text) setText(byId("banner-text"), text);
  if (state !== "ok") return;
  form.settle("gone");
  apologies.splice(0).forEach((close) => close());
  if (before === "gone") toast("The server is back.");
}

// --- in step with the server ---

function later(wait) {
  clearTimeout(nextLook);
  nextLook = setTimeout(look, wait * 1000);
}

// Asks the server how things stand. Called again and again; by hand when something happened.
async function look() {
  if (looking) {
    lookAgain = true;
    return;
  }
  looking = true;
  clearTimeout(nextLook);
  try {
    if (!info || link !== "ok") {
      info = await api.call("GET", "/info");  // another model may be there after a pause
      renderInfo();
    }
    jobs = (await api.call("GET", "/jobs")).jobs;
    failures = 0;
    setLink("ok");
    const waiting = jobs.filter(({ state }) => state === "queued").length;
    if (waiting < info.limits.queue && form.settle("busy")) toast("There is room in the queue again: press Draw.");
    render();
    followRunning();
    later(document.hidden || jobs.some(stage.isActive) ? kBusy : kIdle);
  } catch (error) {
    onTrouble(error);
  } finally {
    looking = false;
    if (lookAgain) {
      lookAgain = false;
      later(0);
    }
  }
}

function onTrouble(error) {
  if (error instanceof api.Refused && error.status === 401) {
    askForKey();
    return;
  }
  if (!(error instanceof api.Gone || error instanceof api.Refused)) throw error;
  const wait = kPatience[Math.min(failures, kPatience.length - 1)];
  failures += 1;
  const reason = error instanceof api.Refused ? `The server has a problem: ${error.message}` : "The server does not answer. It may be stopped, or very busy.";
  setLink("gone", `${reason} This page tries again by itself; what you wrote is kept.`);
  render();
  later(wait);
}

// Reads the events of the job that is drawn. Hidden pages only look now and then: browsers keep few connections.
async function followRunning() {
  const job = document.hidden ? undefined : jobs.find(({ state, id }) => state === "running" && !removed.has(id));
  if (followed && followed.id === job?.id) return;
  followed?.controller.abort();
  followed = null;
  if (!job) return;
  const mine = { id: job.id, controller: new AbortController() };
  followed = mine;
  const progress = (next) => {
    merge(next);
    render();
  };
  const preview = ({ image }) => {
    const current = find(job.id);
    if (!current) return;
    stage.setPreview(current, image);
    render();
  };
  try {
    await api.follow(job.id, { progress, preview, end: onEnd }, mine.controller.signal);
  } catch { /* the next look says what is wrong */ }
  if (followed === mine) {
    followed = null;
    later(0.1);
  }
}

function onEnd(job) {
  merge(job);
  if (document.hidden) doneUnseen = true;
  render();
}

// --- what the buttons do ---

function busyWords(error) {
  const wait = error.retryAfter;
  return `The server is busy. ${wait ? `Try again in about ${plural(wait, "second", "seconds")}` : "Try again in a moment"}; your settings stay here.`;
}

async function draw() {
  const button = byId("draw");
  if (button.getAttribute("aria-disabled") === "true") return;
  if (!info) {
    form.showMessage("The server is not there yet. Your prompt is kept; try again when it is.", undefined, "gone");
    return;
  }
  const asked = form.collect();
  if (!asked) return;
  button.setAttribute("aria-disabled", "true");
  setText(button, "Sending …");
  try {
    const job = await api.call("POST", "/jobs", { request: asked.request });
    sent.set(job.id, asked.kept);
    if (sent.size > kKeptRequests) sent.delete(sent.keys().next().value);
    doneUnseen = false;
    staged = job.id;
    merge(job);
    render();
    if (matchMedia("(max-width: 899px)").matches) byId("stage").scrollIntoView({ block: "start" });
    look();
  } catch (error) {
    if (error instanceof api.Refused && error.status === 429) form.showMessage(busyWords(error), undefined, "busy");
    else if (error instanceof api.Refused && error.status === 413) form.showMessage("The pictures are too large for this server. Smaller ones will do: the model works at about its own size anyway.", "files");
    else if (error instanceof api.Refused && error.status !== 401) form.showMessage(error.message, error.param);
    else if (error instanceof api.Gone) form.showMessage("The server does not answer, so nothing was sent. Your settings stay here: press Draw when it is back.", undefined, "gone");
    if (error instanceof api.Gone || error.status === 401) onTrouble(error);
    else if (!(error instanceof api.Refused)) throw error;
  } finally {
    button.removeAttribute("aria-disabled");
    setText(button, "Draw");
  }
}

// Says what went wrong with something that a button did.
function excuse(error) {
  const close = toast(error.message);
  if (!(error instanceof api.Gone || error.status === 401)) return;
  apologies.push(close);
  onTrouble(error);
}

async function cancel(id) {
  stage.markCancelling(id);
  try {
    await api.call("DELETE", `/jobs/${encodeURIComponent(id)}`);
  } catch (error) {
    stage.markCancelling(id, false);
    if (error.status !== 404) excuse(error);
  }
  look();
}

// Deleting can be undone for a while; the server hears of it only then.
function remove(id) {
  const job = find(id);
  const forgetNow = async (keepalive) => {
    if (removed.get(id) !== forgetNow) return;
    removed.set(id, null);
    try {
      await api.call("DELETE", `/jobs/${encodeURIComponent(id)}`, { keepalive });
      api.forget(job);
      jobs = jobs.filter((other) => other.id !== id);
    } catch (error) {
      if (error.status !== 404) excuse(error);
    }
    removed.delete(id);
    render();
  };
  removed.set(id, forgetNow);
  render();
  toast(job.images?.length ? "Deleted." : "Dismissed.", {
    seconds: 8,
    action: { label: "Undo", run: () => {
      removed.delete(id);
      render();
      say("It is back.");
    } },
    onGone: () => forgetNow(),
  });
}

function again(id) {
  const job = find(id);
  const whole = form.fill(job, sent.get(id));
  byId("form").scrollIntoView({ block: "start" });
  byId("draw").focus({ preventScroll: !matchMedia("(max-width: 899px)").matches });
  if (whole) toast("The settings are in the form. With this seed the same picture comes out; change what you like, then draw.");
  else form.showMessage("The settings are in the form, but not the pictures that it was made from: the server does not keep them. Add them again, please.", "files");
}

async function use(id, index) {
  const { url } = find(id).images[index];
  try {
    const blob = await api.fetchBlob(url);
    await pictures.add([new File([blob], "picture.png", { type: "image/png" })]);
    byId("form").scrollIntoView({ block: "start" });
    byId("prompt").focus({ preventScroll: true });
    byId("prompt").select();
    toast("The picture is in the form. Write what to change.");
  } catch (error) {
    excuse(error);
  }
}

async function download(id, index) {
  const { url } = find(id).images[index];
  const link = make("a", { href: `${url}?download=1`, download: `qwen-image-${id}-${index}.png` });
  try {
    if (api.hasKey()) link.href = await api.source(url);
    link.click();
  } catch (error) {
    excuse(error);
  }
}

function askForKey() {
  const tried = api.hasKey();
  setLink("locked", "This server needs a key before it draws.");
  byId("key-error").hidden = !tried;
  setText(byId("key-error"), tried ? "The server does not take this key." : "");
  api.setKey(undefined);
  if (!byId("key").open) byId("key").showModal();
}

function setUp() {
  const actions = { again, use, download, cancel, remove, open: gallery.open };
  form.setUp({ onDraw: draw });
  stage.setUp(actions);
  gallery.setUp(actions);
  byId("examples").addEventListener("click", ({ target }) => {
    if (!target.matches("button")) return;
    byId("prompt").value = target.textContent;
    form.refresh();
    byId("prompt").focus();
  });
  // The banner stays in sight; what else sticks to the top, and what is scrolled to, stays clear of it.
  new ResizeObserver(() => {
    document.documentElement.style.setProperty("--banner", `${byId("banner").hidden ? 0 : byId("banner").offsetHeight + 8}px`);
  }).observe(byId("banner"));
  byId("banner-retry").addEventListener("click", () => (link === "locked" ? byId("key").showModal() : look()));
  byId("key-form").addEventListener("submit", (event) => {
    event.preventDefault();
    api.setKey(byId("key-input").value);
    byId("key-input").value = "";
    byId("key").close();
    look();
  });
  document.addEventListener("visibilitychange", () => {
    doneUnseen = false;
    look();
  });
  addEventListener("online", look);
  addEventListener("pagehide", () => removed.forEach((forgetNow) => forgetNow?.(true)));
  look();
}

setUp();
