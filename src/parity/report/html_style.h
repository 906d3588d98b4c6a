// Style sheet of HTML reports, and the script of the one about two runs. Internal to this folder.
#pragma once

#include <string_view>

namespace qwen_image::report {

inline constexpr std::string_view kHtmlStyle = R"css(
:root { color-scheme: light dark; --text: #1d2430; --dim: #5d6878; --paper: #ffffff; --panel: #f4f6f9; --line: #dde2ea;
  --good: #11733b; --bad: #c22a25; --c0: #0068b5; --c1: #c75100; --c2: #117f5a; --c3: #8a4fb3; --c4: #8a6d00; --c5: #6b7280; }
@media (prefers-color-scheme: dark) { :root { --text: #e4e8ee; --dim: #9aa5b4; --paper: #14181f; --panel: #1d232d;
  --line: #333c49; --good: #56c785; --bad: #ff7b72; --c0: #5eb1ef; --c1: #f5934b; --c2: #4cc38a; --c3: #c29af0;
  --c4: #e0c050; --c5: #a3adba; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 16px; max-width: 1160px; background: var(--paper); color: var(--text);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5em; margin: .2em 0; } h2 { font-size: 1.2em; margin: 2em 0 .5em; }
h3 { font-size: 1em; margin: 1.4em 0 0; overflow-wrap: anywhere; } h3 small, .dim { color: var(--dim); font-weight: normal; }
p { margin: .4em 0; } code, td, .values10 { font-family: ui-monospace, monospace; font-size: 13px; }
code { overflow-wrap: anywhere; }
.good { color: var(--good); } .bad { color: var(--bad); }
.badge { display: inline-block; padding: 0 .6em; border-radius: 6px; color: var(--paper); background: var(--bad); }
.badge.good { background: var(--good); color: var(--paper); }
.panel { background: var(--panel); border: 1px solid var(--line); border-radius: 8px; padding: 12px 16px; margin: 12px 0; }
.panel h2 { margin: 0 0 .4em; } .hint { border-left: 4px solid var(--c1); padding-left: 12px; margin: 10px 0; }
.scroll, .chart { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; } th, td { padding: 3px 10px 3px 0; text-align: left; vertical-align: top; }
th { border-bottom: 2px solid var(--line); font-size: 13px; white-space: nowrap; } td { border-bottom: 1px solid var(--line); }
th button { all: unset; cursor: pointer; } th button:focus-visible { outline: 2px solid var(--c0); }
#tensors td { white-space: nowrap; } #tensors td:first-child { white-space: normal; overflow-wrap: anywhere; min-width: 16em; }
#tensors tr.f td { color: var(--bad); }
.panel td { white-space: nowrap; } .panel td.values10 { white-space: normal; }
.chart svg { width: 100%; min-width: 760px; display: block; } svg text { fill: var(--dim); font: 12px system-ui, sans-serif; }
svg .tick, svg .end { text-anchor: end; } svg .middle { text-anchor: middle; }
svg .grid { stroke: var(--line); } svg path { fill: none; }
svg .curve { stroke: var(--dim); stroke-width: .6; opacity: .7; } svg .limit { stroke: var(--bad); stroke-width: 1; opacity: .55; }
svg .dots { stroke-width: 4; stroke-linecap: round; } svg .dots.failed { stroke: var(--bad); stroke-width: 8; opacity: .45; }
svg .dots.failed.wide { stroke-width: 14; }
svg .c0 { stroke: var(--c0); } svg .c1 { stroke: var(--c1); } svg .c2 { stroke: var(--c2); } svg .c3 { stroke: var(--c3); }
svg .c4 { stroke: var(--c4); } svg .c5 { stroke: var(--c5); } svg .point { fill: var(--paper); stroke-width: 2; }
svg[id$=steps] .curve, svg[id$=blocks] .curve { stroke-width: 1.5; }
.legend { display: flex; flex-wrap: wrap; gap: 4px 16px; font-size: 13px; color: var(--dim); } span.legend { display: inline-flex; }
.legend i { display: inline-block; width: 12px; height: 12px; border-radius: 6px; margin-right: 5px; vertical-align: -1px; }
i.c0 { background: var(--c0); } i.c1 { background: var(--c1); } i.c2 { background: var(--c2); } i.c3 { background: var(--c3); }
i.c4 { background: var(--c4); } i.c5 { background: var(--c5); } i.failed { background: var(--bad); opacity: .45; }
i.limit { background: var(--bad); height: 2px !important; vertical-align: 4px !important; opacity: .55; }
.figures, .pictures { display: flex; flex-wrap: wrap; gap: 16px; align-items: flex-start; }
figure { margin: 8px 0; flex: 1 1 260px; max-width: 380px; } figcaption { font-size: 12px; color: var(--dim); }
.map { width: 100%; height: auto; min-height: 28px; max-height: 380px; image-rendering: pixelated; border: 1px solid var(--line); }
.picture { width: 100%; height: auto; image-rendering: pixelated; border: 1px solid var(--line); }
.clear { background: repeating-conic-gradient(#c8c8c8 0 25%, #fff 0 50%) 0 / 16px 16px; }
.histogram { width: 100%; } .histogram .bar { fill: var(--c5); }
.values.ref { stroke: var(--c0); fill: var(--c0); fill-opacity: .18; } .values.run { stroke: var(--c1); stroke-width: 1.4; }
.heat { display: inline-block; width: 90px; height: 10px; vertical-align: -1px;
  background: linear-gradient(90deg, #08061e, #5a146e, #be3750, #f89114, #fdfdaa); }
#tip { position: fixed; pointer-events: none; background: var(--panel); border: 1px solid var(--line); border-radius: 6px;
  padding: 3px 8px; font-size: 12px; max-width: 90vw; overflow-wrap: anywhere; }
.controls { display: flex; flex-wrap: wrap; gap: 8px 16px; margin: 8px 0; align-items: center; }
.controls input[type=search] { flex: 1 1 220px; padding: 5px 8px; font: inherit; color: inherit; background: var(--panel);
  border: 1px solid var(--line); border-radius: 6px; }
@media (max-width: 640px) { body { padding: 10px; } .wide-only { display: none; } #tensors td:first-child { min-width: 9em; } }
)css";

// Rows keep the order of the run, so that a point of the curve finds its row.
inline constexpr std::string_view kHtmlScript = R"js(
'use strict';
(() => {
  const table = document.getElementById('tensors');
  if (!table) return;
  const body = table.tBodies[0], rows = [...body.rows];
  const find = document.getElementById('find'), bad = document.getElementById('bad');
  const shown = document.getElementById('shown');
  const filter = () => {
    const words = find.value.toLowerCase().split(/\s+/);
    let count = 0;
    for (const row of rows) {
      const name = row.cells[0].textContent.toLowerCase();
      row.hidden = (bad.checked && row.className !== 'f') || !words.every(w => name.includes(w));
      if (!row.hidden) count++;
    }
    shown.textContent = count + ' of ' + rows.length;
  };
  find.addEventListener('input', filter);
  bad.addEventListener('change', filter);
  filter();

  let sorted = -1, direction = 1;
  const keyOf = (row, column) => {
    const text = row.cells[column].textContent;
    if (!table.tHead.rows[0].cells[column].dataset.number) return text;
    const value = parseFloat(text);
    return Number.isNaN(value) ? Infinity : value;
  };
  table.tHead.addEventListener('click', event => {
    const head = event.target.closest('th');
    if (!head) return;
    const column = head.cellIndex;
    direction = column === sorted ? -direction : head.dataset.number ? -1 : 1;
    sorted = column;
    const keys = new Map(rows.map((row, i) => [row, [keyOf(row, column), i]]));
    const order = [...rows].sort((a, b) => {
      const [x, i] = keys.get(a), [y, k] = keys.get(b);
      return x < y ? -direction : x > y ? direction : i - k;
    });
    body.append(...order);
  });

  const chart = document.getElementById('network'), tip = document.getElementById('tip');
  if (!chart) return;
  const rowAt = event => {
    const box = chart.getBoundingClientRect();
    const x = (event.clientX - box.left) / box.width * 1000, left = +chart.dataset.left;
    const i = Math.floor((x - left) / (+chart.dataset.right - left) * rows.length);
    return rows[i];
  };
  chart.addEventListener('mousemove', event => {
    const row = rowAt(event);
    tip.hidden = !row;
    if (!row) return;
    tip.textContent = row.cells[0].textContent + ': NMSE ' + row.cells[4].textContent;
    const right = event.clientX > innerWidth / 2;
    tip.style.left = right ? '' : event.clientX + 14 + 'px';
    tip.style.right = right ? innerWidth - event.clientX + 14 + 'px' : '';
    tip.style.top = event.clientY + 14 + 'px';
  });
  chart.addEventListener('mouseleave', () => { tip.hidden = true; });
  chart.addEventListener('click', event => {
    const row = rowAt(event);
    if (!row) return;
    find.value = row.cells[0].textContent;
    bad.checked = false;
    filter();
    row.scrollIntoView({block: 'center'});
  });
})();
)js";

}  // namespace qwen_image::report
