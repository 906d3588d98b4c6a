// The pictures that a drawing begins with: chosen, dropped, pasted, or taken from the gallery.
import { byId, icon, make } from "./dom.js";

const kSent = ["image/png", "image/jpeg", "image/webp"];  // what the server reads
let pictures = [];  // {name, data (data URL), width, height, mask?: {data, strokes}}
let changed = () => {};
let failed = () => {};

export const all = () => pictures;

export function replaceAll(next) {
  pictures = next;
  render();
}

function toDataUrl(blob) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(blob);
  });
}

async function read(blob, name) {
  const data = await toDataUrl(blob);
  const image = new Image();
  image.src = data;
  try {
    await image.decode();
  } catch {
    throw new Error(`${name} is not a picture that can be read. PNG, JPEG and WebP work best.`);
  }
  const picture = { name, width: image.naturalWidth, height: image.naturalHeight };
  if (kSent.includes(blob.type)) return { ...picture, data };
  // The browser can read more kinds than the server: those go as PNG.
  const canvas = make("canvas", { width: picture.width, height: picture.height });
  canvas.getContext("2d").drawImage(image, 0, 0);
  return { ...picture, data: canvas.toDataURL("image/png") };
}

// Adds files one after the other, in their order; those that cannot be read are named.
export async function add(blobs) {
  const problems = [];
  for (const blob of blobs) {
    try {
      pictures = [...pictures, await read(blob, blob.name || "The pasted picture")];
      render();
    } catch (error) {
      problems.push(error.message);
    }
  }
  if (problems.length) failed(problems.join(" "));
}

function remove(picture) {
  const place = pictures.indexOf(picture);
  pictures = pictures.filter((other) => other !== picture);
  render();
  // The focus goes to a neighbour instead of getting lost.
  (byId("inputs").querySelectorAll("button")[Math.min(place, pictures.length - 1)] ?? byId("files")).focus();
}

function render() {
  const list = byId("inputs");
  list.hidden = pictures.length === 0;
  list.replaceChildren(...pictures.map((picture, index) => {
    const label = pictures.length > 1 ? `Picture ${index + 1}` : picture.name;
    return make("li", { class: "input" },
      make("img", { src: picture.data, alt: label, width: 72, height: 72 }),
      pictures.length > 1 ? make("span", { class: "input-number", "aria-hidden": "true" }, String(index + 1)) : "",
      make("button", { type: "button", class: "button icon-button input-remove", "aria-label": `Remove ${label}`, onclick: () => remove(picture) }, icon("close")));
  }));
  changed();
}

export function setUp({ onChange, onProblem }) {
  changed = onChange;
  failed = onProblem;
  const files = byId("files");
  const drop = byId("drop");
  files.addEventListener("change", () => {
    add([...files.files]);
    files.value = "";  // the same file can be chosen again
  });
  document.addEventListener("paste", (event) => {
    const blobs = [...(event.clipboardData?.files ?? [])].filter((file) => file.type.startsWith("image/"));
    if (!blobs.length || document.querySelector("dialog[open]")) return;
    event.preventDefault();
    add(blobs);
  });
  // The whole window takes drops: a picture that misses the frame must not replace the page.
  let depth = 0;
  const over = (delta) => {
    depth = Math.max(0, depth + delta);
    drop.classList.toggle("over", depth > 0);
  };
  addEventListener("dragenter", () => over(1));
  addEventListener("dragleave", () => over(-1));
  addEventListener("dragover", (event) => event.preventDefault());
  addEventListener("drop", (event) => {
    event.preventDefault();
    over(-depth);
    const blobs = [...(event.dataTransfer?.files ?? [])];
    if (blobs.length) add(blobs);
  });
}
