// The mask brush: paints over a picture what shall be drawn anew.
import { byId, make } from "./dom.js";

const kTint = "#ff2e88";
const dialog = byId("mask");
const canvas = byId("mask-canvas");
const size = byId("mask-size");
const view = canvas.getContext("2d");
const layer = make("canvas");  // the mask: painted where opaque
const ink = layer.getContext("2d");

let picture = null;   // the one being painted on
let image = null;     // its pixels
let strokes = [];     // {erase, width, points} or {invert}; undo draws all but the last again
let current = null;   // the stroke under way
let cursor = null;    // where the brush is, in pixels of the canvas
let finish = () => {};
let waiting = false;  // for the next frame

const erasing = () => dialog.querySelector("[name=tool]:checked").value === "erase";
// The brush's width: up to a third of the longer side, finer for small values.
const brush = () => Math.max(2, (size.value / 100) ** 1.5 * Math.max(canvas.width, canvas.height) / 3);

function drawStroke({ erase, width, points, invert }) {
  ink.globalCompositeOperation = invert ? "source-out" : erase ? "destination-out" : "source-over";
  ink.strokeStyle = ink.fillStyle = kTint;
  if (invert) {
    ink.fillRect(0, 0, layer.width, layer.height);
    return;
  }
  ink.lineWidth = width;
  ink.lineCap = ink.lineJoin = "round";
  ink.beginPath();
  ink.moveTo(points[0].x, points[0].y);
  for (const { x, y } of points) ink.lineTo(x, y);  // a single point becomes a dot
  ink.stroke();
}

function drawAll() {
  ink.globalCompositeOperation = "source-over";
  ink.clearRect(0, 0, layer.width, layer.height);
  strokes.forEach(drawStroke);
  refresh();
}

function refresh() {
  byId("mask-undo").disabled = byId("mask-clear").disabled = strokes.length === 0;
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => {
    waiting = false;
    if (!image) return;
    view.globalAlpha = 1;
    view.drawImage(image, 0, 0, canvas.width, canvas.height);
    view.globalAlpha = 0.55;
    view.drawImage(layer, 0, 0);
    view.globalAlpha = 1;
    if (!cursor) return;
    for (const [colour, width] of [["#000", 4], ["#fff", 2]]) {
      view.strokeStyle = colour;
      view.lineWidth = width * canvas.width / (canvas.clientWidth || canvas.width);
      view.beginPath();
      view.arc(cursor.x, cursor.y, brush() / 2, 0, 2 * Math.PI);
      view.stroke();
    }
  });
}

function begin(point) {
  current = { erase: erasing(), width: brush(), points: [point] };
  strokes.push(current);
  drawStroke(current);
  refresh();
}

function extend(points) {
  const last = current.points.at(-1);
  current.points.push(...points);
  drawStroke({ ...current, points: [last, ...points] });
}

function place(event) {
  const box = canvas.getBoundingClientRect();
  return { x: (event.clientX - box.left) * canvas.width / box.width, y: (event.clientY - box.top) * canvas.height / box.height };
}

function undo() {
  strokes.pop();
  current = null;
  drawAll();
}

function changeSize(delta) {
  size.value = Number(size.value) + delta;
  refresh();
}

function onKey(event) {
  const step = (event.shiftKey ? 0.1 : 0.5) * brush();
  const moves = { ArrowLeft: [-step, 0], ArrowRight: [step, 0], ArrowUp: [0, -step], ArrowDown: [0, step] };
  cursor ??= { x: canvas.width / 2, y: canvas.height / 2 };
  if (moves[event.key]) {
    const [dx, dy] = moves[event.key];
    cursor = { x: Math.min(canvas.width, Math.max(0, cursor.x + dx)), y: Math.min(canvas.height, Math.max(0, cursor.y + dy)) };
    if (current) extend([cursor]);
    refresh();
  } else if (event.key === " ") {
    if (!current) begin(cursor);
  } else {
    return;
  }
  event.preventDefault();
}

// White where painted, black elsewhere; null if nothing is.
function result() {
  const out = make("canvas", { width: layer.width, height: layer.height });
  const context = out.getContext("2d", { willReadFrequently: true });
  context.drawImage(layer, 0, 0);
  context.globalCompositeOperation = "source-in";
  context.fillStyle = "#fff";
  context.fillRect(0, 0, out.width, out.height);
  context.globalCompositeOperation = "destination-over";
  context.fillStyle = "#000";
  context.fillRect(0, 0, out.width, out.height);
  const pixels = context.getImageData(0, 0, out.width, out.height).data;
  for (let i = 0; i < pixels.length; i += 4) {
    if (pixels[i] >= 128) return { data: out.toDataURL("image/png"), strokes };
  }
  return null;
}

// Lets the user paint. `done` gets the mask, or null if nothing is painted; it is not called if the user leaves.
export async function paint(target, done) {
  picture = target;
  finish = done;
  image = new Image();
  image.src = picture.data;
  await image.decode();
  // The server brings the mask to the picture's size. Smooth strokes need some pixels, memory sets the limit.
  const scale = Math.min(2048, Math.max(1024, picture.width, picture.height)) / Math.max(picture.width, picture.height);
  for (const surface of [canvas, layer]) {
    surface.width = Math.max(1, Math.round(picture.width * scale));
    surface.height = Math.max(1, Math.round(picture.height * scale));
  }
  canvas.style.setProperty("aspect-ratio", `${canvas.width} / ${canvas.height}`);
  canvas.style.setProperty("--ratio", canvas.width / canvas.height);
  strokes = [...(picture.mask?.strokes ?? [])];
  current = cursor = null;
  dialog.showModal();
  canvas.focus();
  drawAll();
}

export function setUp() {
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0 || current) return;
    canvas.setPointerCapture(event.pointerId);
    begin(cursor = place(event));
  });
  canvas.addEventListener("pointermove", (event) => {
    cursor = place(event);
    if (current && canvas.hasPointerCapture(event.pointerId)) {
      const events = event.getCoalescedEvents?.() ?? [];
      extend((events.length ? events : [event]).map(place));
    }
    refresh();
  });
  for (const kind of ["pointerup", "pointercancel"]) canvas.addEventListener(kind, () => { current = null; });
  canvas.addEventListener("pointerleave", () => {
    if (!current) cursor = null;
    refresh();
  });
  canvas.addEventListener("keydown", onKey);
  canvas.addEventListener("keyup", (event) => { if (event.key === " ") current = null; });
  canvas.addEventListener("blur", () => { current = null; });
  dialog.addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "z") undo();
    else if (event.key === "[") changeSize(-5);
    else if (event.key === "]") changeSize(5);
    else return;
    event.preventDefault();
  });
  size.addEventListener("input", () => {
    cursor ??= { x: canvas.width / 2, y: canvas.height / 2 };  // shows how large it is now
    refresh();
  });
  byId("mask-undo").addEventListener("click", undo);
  byId("mask-clear").addEventListener("click", () => {
    strokes = [];
    drawAll();
  });
  byId("mask-invert").addEventListener("click", () => {
    strokes.push({ invert: true });
    drawAll();
  });
  byId("mask-cancel").addEventListener("click", () => dialog.close());
  byId("mask-done").addEventListener("click", () => {
    finish(result());
    dialog.close();
  });
  dialog.addEventListener("close", () => { image = null; });
}
