'use strict';
// The page of one or several runs. Its data is inlined, or comes from /data and then /events.
// Text from outside goes through textContent alone.

const panels = [
  {id: 'loss', title: 'Loss', unit: 'nats a token', field: 'loss', main: true, smooth: true, log: true, evaluations: true},
  {id: 'learning-rate', title: 'Learning rate', field: 'learning_rate'},
  {id: 'gradient-norm', title: 'Gradient norm', unit: 'before clipping', field: 'grad_norm', smooth: true, log: true, note: clipped},
  {id: 'speed', title: 'Tokens a second', field: 'tokens_per_second', smooth: true, log: true},
  {id: 'mfu', title: 'MFU', unit: '% of the measured peak', field: 'mfu', scale: 100, smooth: true},
  {id: 'memory', title: 'Memory', unit: 'MiB, most at once', field: 'memory_bytes', scale: 1 / (1 << 20)},
  {id: 'data-wait', title: 'Waiting for data', unit: 'ms a step', field: 'data_seconds', scale: 1000, smooth: true, log: true},
  {id: 'loss-scale', title: 'Loss scale', field: 'loss_scale', log: true, note: skipped, varies: true},
];
const colours = 6;
const hidden = new Set();
const drawn = new Map(); // panel id -> {figure, plot, caption, out, chart, zoomed}
let data, source;

const $ = (id) => document.getElementById(id);

function element(name, text, parent) {
  const e = document.createElement(name);
  if (text !== undefined) e.textContent = text;
  if (parent) parent.append(e);
  return e;
}

function table(parent, head, rows) {
  parent.replaceChildren();
  const t = element('table', undefined, parent);
  const top = element('tr', undefined, element('thead', undefined, t));
  for (const h of head) element('th', h, top).scope = 'col';
  const body = element('tbody', undefined, t);
  for (const row of rows) {
    const tr = element('tr', undefined, body);
    row.forEach((cell, i) => { const c = element(i ? 'td' : 'th', cell, tr); if (!i) c.scope = 'row'; });
  }
}

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue('--' + name).trim();
const runColour = (i) => colour('run' + i % colours);
const column = (columns, name) => columns[data.fields.indexOf(name)];
const last = (list) => list[list.length - 1];

function short(v) {
  if (v === null || v === undefined || !isFinite(v)) return '–';
  const a = Math.abs(v);
  if (a >= 1e9) return (v / 1e9).toPrecision(3) + 'G';
  if (a >= 1e6) return (v / 1e6).toPrecision(3) + 'M';
  if (a >= 1e4) return (v / 1e3).toPrecision(3) + 'k';
  if (a !== 0 && a < 1e-3) return v.toExponential(2);
  return String(Number(v.toPrecision(4)));
}

// abscissa is where each row of columns lies under the chosen x axis.
function abscissa(run, columns) {
  const x = $('x').value;
  if (x !== 'hours') return column(columns, x);
  const start = column(run.steps, 'time')[0] ?? column(columns, 'time')[0];
  return column(columns, 'time').map((t) => (t - start) / 3600);
}

// smoothed is a moving average that weighs the past by s a step and starts unbiased.
function smoothed(values, s) {
  let sum = 0, weight = 0;
  return values.map((v) => {
    if (v === null) return null;
    sum = s * sum + (1 - s) * v;
    weight = s * weight + (1 - s);
    return sum / weight;
  });
}

// rising leaves out rows whose x does not rise, as clocks may.
function rising(xs, ys) {
  const out = [[], []];
  let before = -Infinity;
  xs.forEach((x, i) => {
    if (!(x > before)) return;
    before = x;
    out[0].push(x);
    out[1].push(ys[i]);
  });
  return out;
}

function values(panel, columns, log) {
  const k = panel.scale ?? 1;
  return column(columns, panel.field).map((v) => v === null || (log && v <= 0) ? null : v * k);
}

// curves are the lines of a panel: label, points, style.
function curves(panel) {
  const log = panel.log && $('log').checked, s = panel.smooth ? Number($('smoothing').value) : 0, list = [];
  data.runs.forEach((run, i) => {
    if (hidden.has(i)) return;
    const xs = abscissa(run, run.steps), ys = values(panel, run.steps, log), stroke = runColour(i);
    if (ys.some((y) => y !== null)) {
      if (s) list.push({label: '', points: rising(xs, ys), stroke, alpha: 0.28, width: 1});
      list.push({label: run.name, points: rising(xs, s ? smoothed(ys, s) : ys), stroke, alpha: 1, width: 2});
    }
    if (!panel.evaluations || !run.evaluations.validation) return;
    const e = run.evaluations.validation;
    list.push({label: run.name + ' validation', points: rising(abscissa(run, e), values(panel, e, log)), stroke, alpha: 1, width: 1.5, dash: [6, 4], dots: true});
  });
  return list;
}

function joined(list) {
  return list.length === 1 ? list[0].points : uPlot.join(list.map((c) => c.points));
}

// interesting tells whether a panel has something to show: values, of a loss scale other ones than 1.
function interesting(panel) {
  const wanted = (v) => v !== null && !(panel.varies && v === 1);
  return data.runs.some((r) => column(r.steps, panel.field).some(wanted) ||
    (panel.evaluations && r.evaluations.validation));
}

function clipped(run) {
  const at = Number(run.flags?.['clip-grad'] ?? 1), norms = column(run.steps, 'grad_norm').filter((v) => v !== null);
  if (!(at > 0) || !norms.length || !run.flags) return '';
  const over = norms.filter((v) => v > at).length;
  return `${Math.round(100 * over / norms.length)}% clipped at ${at}`;
}

function skipped(run) {
  const n = column(run.steps, 'skipped').filter(Boolean).length;
  return `${n} step${n === 1 ? '' : 's'} skipped`;
}

function readout(panel, chart, list, at) {
  if (at === null || at === undefined) return '';
  const parts = list.map((c, i) => [c, chart.data[i + 1][at]]).filter(([c, v]) => c.label && v !== null && v !== undefined)
    .map(([c, v]) => `${c.label} ${short(v)}`);
  return `${$('x').value === 'iteration' ? 'step' : $('x').value} ${short(chart.data[0][at])}: ${parts.join(', ')}`;
}

function describe(panel, list) {
  const shown = list.filter((c) => c.label).map((c) => `${c.label}: last ${short(last(c.points[1].filter((v) => v !== null)))}`);
  return `${panel.title}. ${shown.join('; ')}`;
}

// place says where each mark stands on the x axis: at its step, or at the last one before it.
function place() {
  for (const run of data.runs) {
    const steps = column(run.steps, 'iteration'), xs = abscissa(run, run.steps);
    run.placed = run.marks.map((m) => {
      const i = steps.findIndex((s) => s >= m.iteration);
      return {kind: m.kind, place: (i < 0 ? last(xs) : xs[i]) ?? null};
    });
  }
}

function drawMarks(u) {
  const {ctx, bbox} = u;
  ctx.save();
  data.runs.forEach((run, i) => {
    if (hidden.has(i)) return;
    for (const {kind, place} of run.placed) {
      if (place === null) continue;
      const x = Math.round(u.valToPos(place, 'x', true));
      if (x < bbox.left || x > bbox.left + bbox.width) continue;
      ctx.strokeStyle = colour(kind);
      ctx.lineWidth = kind === 'checkpoint' ? 1 : 2;
      ctx.setLineDash(kind === 'checkpoint' ? [2, 4] : []);
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
    }
  });
  ctx.restore();
}

function frame(panel) {
  const figure = element('figure', undefined, $('charts'));
  figure.id = panel.id;
  figure.className = panel.main ? 'main' : '';
  const caption = element('figcaption', undefined, figure);
  element('b', panel.title + (panel.unit ? `, ${panel.unit}` : ''), caption);
  const note = element('span', '', caption);
  const plot = element('div', undefined, figure);
  plot.className = 'plot';
  plot.tabIndex = 0;
  plot.setAttribute('role', 'img');
  const out = element('output', '', figure);
  const made = {figure, plot, out, note, zoomed: false};
  plot.addEventListener('keydown', (e) => step(made, e));
  plot.addEventListener('mousemove', () => out.setAttribute('aria-live', 'off'));
  plot.addEventListener('dblclick', () => { made.zoomed = false; });
  drawn.set(panel.id, made);
  return made;
}

// step moves the cursor by the arrow keys, and says what is there.
function step(made, e) {
  const by = {ArrowLeft: -1, ArrowRight: 1, PageUp: -50, PageDown: 50, Home: -Infinity, End: Infinity}[e.key];
  const u = made.chart;
  if (by === undefined || !u) return;
  e.preventDefault();
  made.out.setAttribute('aria-live', 'polite');
  const at = Math.min(u.data[0].length - 1, Math.max(0, (u.cursor.idx ?? 0) + by));
  u.setCursor({left: u.valToPos(u.data[0][at], 'x'), top: u.over.clientHeight / 2});
}

function options(panel, made, list) {
  const axis = () => ({stroke: colour('quiet'), grid: {stroke: colour('rule'), width: 1}, ticks: {stroke: colour('rule'), width: 1}, font: '12px system-ui, sans-serif'});
  const log = panel.log && $('log').checked;
  return {
    width: made.plot.clientWidth, height: panel.main ? 340 : 210, legend: {show: false}, cursor: {points: {size: 6}},
    scales: {x: {time: false}, y: log ? {distr: 3, log: 10} : {}},
    axes: [{...axis(), values: (_, vs) => vs.map(short)}, {...axis(), size: 58, values: (_, vs) => vs.map((v) => v === null ? '' : short(v))}],
    series: [{}, ...list.map((c) => ({stroke: c.stroke, alpha: c.alpha, width: c.width, dash: c.dash, spanGaps: false, points: {show: c.dots || c.points[0].length < 2, size: 5}}))],
    hooks: {draw: [drawMarks], setCursor: [(u) => { made.out.textContent = readout(panel, u, made.list, u.cursor.idx); }], setSelect: [() => { made.zoomed = true; }]},
  };
}

// show draws a panel, anew where its curves or its axes are others.
function show(panel, anew) {
  let made = drawn.get(panel.id);
  if (!interesting(panel)) {
    if (made) made.figure.hidden = true;
    return;
  }
  made ??= frame(panel);
  made.figure.hidden = false;
  const list = curves(panel), points = list.length ? joined(list) : [[]];
  const same = made.chart && made.list.length === list.length;
  made.list = list;
  if (anew || !same) {
    made.chart?.destroy();
    made.zoomed = false;
    made.chart = list.length ? new uPlot(options(panel, made, list), points, made.plot) : undefined;
  } else {
    made.chart.setData(points, !made.zoomed);
    if (made.zoomed) made.chart.redraw(true);
  }
  made.figure.dataset.points = points[0].length;
  made.plot.setAttribute('aria-label', describe(panel, list));
  made.note.textContent = panel.note ? data.runs.map((r) => panel.note(r)).filter(Boolean).join(', ') : '';
}

function median(values) {
  const sorted = values.filter((v) => v !== null).sort((a, b) => a - b);
  return sorted.length ? sorted[sorted.length >> 1] : null;
}

function summary() {
  table($('summary'), ['run', 'step', 'tokens', 'loss', 'validation', 'best validation', 'tokens/s', 'MFU', 'hours'], data.runs.map((r) => {
    const v = r.evaluations.validation ? column(r.evaluations.validation, 'loss').filter((x) => x !== null) : [];
    const of = (name) => column(r.steps, name), time = of('time'), mfu = median(of('mfu'));
    return [r.name, last(of('iteration')) ?? '–', short(last(of('tokens'))), short(last(of('loss'))), short(last(v)), short(v.length ? v.reduce((a, b) => Math.min(a, b)) : null),
      short(median(of('tokens_per_second'))), mfu === null ? '–' : (100 * mfu).toFixed(1) + '%', short(time.length ? (last(time) - time[0]) / 3600 : null)];
  }));
  for (const r of data.runs) {
    const said = [r.note, r.torn ? `${r.torn} torn line${r.torn === 1 ? '' : 's'} skipped` : '', r.replaced ? `${r.replaced} lines replaced by training again` : ''].filter(Boolean);
    if (said.length) element('p', `${r.name}: ${said.join('; ')}.`, $('summary')).className = 'note';
  }
}

function differences() {
  const box = $('differences'), d = data.differences;
  if (data.runs.length < 2) {
    box.parentElement.hidden = true;
  } else if (d.length) {
    table(box, ['flag', ...data.runs.map((r) => r.name)], d.map((row) => ['--' + row.flag, ...row.values]));
  } else {
    box.replaceChildren();
    element('p', 'No flag that is known differs.', box);
  }
}

function events() {
  const rows = data.runs.flatMap((r) => r.marks.map((m) => [r.name, m.kind, String(m.iteration), m.text]));
  table($('events'), ['run', 'what', 'step', ''], rows.slice(-200));
  if (!rows.length) $('events').replaceChildren(element('p', 'None.'));
}

function numbers() {
  const rows = data.runs.flatMap((r) => {
    const n = r.steps[0].length, every = Math.max(1, Math.ceil(n / 50)), picked = [];
    for (let i = n - 1; i >= 0; i -= every) picked.unshift([r.name, ...r.steps.map((c) => c[i] === null ? '' : String(c[i]))]);
    return picked;
  });
  table($('values'), ['run', ...data.fields], rows);
}

function chooseRuns() {
  data.runs.forEach((run, i) => {
    const label = element('label', undefined, $('runs')), box = element('input', undefined, label), swatch = element('span', undefined, label);
    box.type = 'checkbox';
    box.checked = true;
    box.addEventListener('change', () => { box.checked ? hidden.delete(i) : hidden.add(i); draw(true); });
    swatch.className = 'swatch';
    swatch.style.background = `var(--run${i % colours})`;
    element('span', run.name, label);
  });
}

function draw(anew) {
  place();
  for (const panel of panels) show(panel, anew);
}

function tell() {
  differences();
  summary();
  events();
  numbers();
}

// take adds a row: a step that was trained again replaces itself and what followed it.
function take(news) {
  const run = data.runs[news.run], at = data.fields.indexOf('iteration'), i = news.row[at];
  const cut = (columns, from) => {
    let n = columns[at].length;
    while (n && columns[at][n - 1] >= from) n--;
    run.replaced += columns[at].length - n;
    for (const c of columns) c.length = n;
  };
  const push = (columns) => news.row.forEach((v, k) => columns[k].push(v));
  if (!news.split) {
    cut(run.steps, i);
    for (const e of Object.values(run.evaluations)) cut(e, i);
    push(run.steps);
    return;
  }
  const e = run.evaluations[news.split] ??= data.fields.map(() => []);
  const old = run.replaced;
  cut(e, i);
  run.replaced = old;
  push(e);
}

let due = 0;
function soon() {
  due ||= setTimeout(() => { due = 0; tell(); draw(false); }, 300);
}

function listen() {
  source = new EventSource('events?from=' + encodeURIComponent(data.position));
  source.onopen = () => { $('state').textContent = 'Live: new steps appear by themselves.'; };
  source.onerror = () => { $('state').textContent = 'No connection; trying again.'; };
  source.addEventListener('row', (e) => { take(JSON.parse(e.data)); soon(); });
  source.addEventListener('marks', (e) => { JSON.parse(e.data).forEach((m, i) => { data.runs[i].marks = m ?? []; }); soon(); });
  source.addEventListener('again', () => { source.close(); start(); });
}

async function start() {
  const inlined = JSON.parse($('data').textContent);
  data = inlined ?? await (await fetch('data')).json();
  $('runs').replaceChildren($('runs').firstElementChild);
  document.title = data.runs.map((r) => r.name).join(', ') + ' – monotron';
  document.querySelector('h1').textContent = data.runs.map((r) => r.name).join(', ');
  chooseRuns();
  tell();
  draw(true);
  if (!inlined) listen();
  document.body.dataset.ready = 'yes';
}

for (const id of ['x', 'smoothing', 'log']) $(id).addEventListener('input', () => draw(true));
$('controls').addEventListener('submit', (e) => e.preventDefault());
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => draw(true));
let width = innerWidth;
addEventListener('resize', () => { if (innerWidth !== width) { width = innerWidth; draw(true); } });
start().catch((e) => { $('state').textContent = 'This page could not be drawn: ' + e.message; });
