// Small helpers for the document. Text always goes in as text, never as markup.

export const byId = (id) => document.getElementById(id);

// make("button", {class: "button", onclick: f, "aria-label": "…"}, "text", node, …)
export function make(tag, properties = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children);
  return node;
}

export function icon(name) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  const use = document.createElementNS("http://www.w3.org/2000/svg", "use");
  use.setAttribute("href", `#i-${name}`);
  svg.append(use);
  return svg;
}

// Writes only what changed, so that readers of live regions are not told twice.
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export function say(text) {
  setText(byId("live"), text);
}

// A line at the bottom that goes away by itself, unless the pointer or the focus is on it. `action`: {label, run}.
// `onGone` is called when it went without the action.
export function toast(text, { action, seconds = 6, onGone } = {}) {
  const node = make("div", { class: "toast" }, make("span", {}, text));
  let left = seconds;
  const close = (acted) => {
    clearInterval(timer);
    if (!node.isConnected) return;
    node.remove();
    if (!acted) onGone?.();
  };
  const timer = setInterval(() => {
    if (node.matches(":hover, :focus-within")) return;
    left -= 1;
    if (left <= 0) close(false);
  }, 1000);
  if (action) {
    node.append(make("button", { type: "button", class: "button small", onclick: () => {
      action.run();
      close(true);
    } }, action.label));
  }
  byId("toasts").append(node);
  return close;
}

// sessionStorage, where the browser lets us have it.
export function remember(name, value) {
  try {
    if (value === undefined) sessionStorage.removeItem(name);
    else sessionStorage.setItem(name, JSON.stringify(value));
  } catch { /* it is a convenience only */ }
}

export function recall(name) {
  try {
    return JSON.parse(sessionStorage.getItem(name)) ?? undefined;
  } catch {
    return undefined;
  }
}

export function seconds(value) {
  if (value >= 3600) return `${Math.floor(value / 3600)} h ${Math.round((value % 3600) / 60)} min`;
  if (value >= 90) return `${Math.floor(value / 60)} min ${Math.round(value % 60)} s`;
  if (value >= 10) return `${Math.round(value)} s`;
  return `${Number(value.toPrecision(2))} s`;
}

// A text as part of a name: one line, and not too long to listen to.
export function brief(text, most = 60) {
  const letters = [...text.trim().replace(/\s+/g, " ")];
  return letters.length <= most ? letters.join("") : `${letters.slice(0, most - 1).join("").trim()}…`;
}

export const plural = (count, one, many) => `${count} ${count === 1 ? one : many}`;
