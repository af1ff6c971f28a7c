'use strict';
// The curves: a panel a number, drawn by uPlot, with one cursor and one zoom over all of them.

const panels = [
  {id: 'loss', title: 'Loss', unit: 'nats a token', fields: ['loss'], main: true, smooth: true, log: true, evaluations: true},
  {id: 'bits', title: 'Bits per byte', unit: 'of the validation text', fields: ['bits_per_byte'], log: true, evaluations: true},
  {id: 'learning-rate', title: 'Learning rate', fields: ['learning_rate'], log: true},
  {id: 'gradient-norm', title: 'Gradient norm', unit: 'before clipping', fields: ['grad_norm'], smooth: true, log: true, note: clipped},
  {id: 'reward', title: 'Reward', unit: 'mean of the batch', fields: ['reward'], smooth: true, evaluations: true},
  {id: 'answers', title: 'Answer length', unit: 'tokens, mean of the batch', fields: ['completion_length'], smooth: true},
  {id: 'margins', title: 'Reward margin', unit: 'of better over worse answers', fields: ['rewards_margins'], smooth: true, evaluations: true},
  {id: 'ranked', title: 'Pairs ranked right', unit: '%', fields: ['rewards_accuracies'], scale: 100, smooth: true, evaluations: true},
  {id: 'speed', title: 'Tokens a second', fields: ['tokens_per_second'], smooth: true, log: true, note: stalls},
  {id: 'mfu', title: 'MFU', unit: '% of the measured peak', fields: ['mfu'], scale: 100, smooth: true},
  {id: 'memory', title: 'Memory', unit: 'MiB, most at once', fields: ['memory_bytes', 'planned_memory_bytes'], second: 'planned', scale: 1 / (1 << 20)},
  {id: 'data-wait', title: 'Waiting for data', unit: 'ms a step', fields: ['data_seconds'], scale: 1000, smooth: true, log: true},
  {id: 'ranks', title: "Ranks' own work", unit: 'ms a step', fields: ['slowest_rank_seconds', 'median_rank_seconds'], first: 'slowest', second: 'median', scale: 1000, log: true, sparse: true, smooth: true},
  {id: 'stragglers', title: 'Straggler score', unit: 'lowest of the ranks; 1 is as fast as the fastest', fields: ['straggler_score', 'straggler_own_score'], first: 'against other ranks', second: 'against itself', sparse: true},
  {id: 'experts', title: 'Fullest expert', unit: 'times an even part', fields: ['fullest_expert'], smooth: true},
  {id: 'loss-scale', title: 'Loss scale', fields: ['loss_scale'], log: true, note: skipped, varies: true},
];
const drawn = new Map(); // panel id -> {figure, plot, out, note, far, chart, list}
let zoom = null; // [from, to] on the x axis; null: all
let extent = [0, 1]; // of the x axis, of all charts alike
let pointing = false; // a cursor moves the others

const settings = () => ({x: $('x').value, smoothing: Number($('smoothing').value), log: $('log').checked, all: $('all').checked});

// abscissa is where each row of columns lies under the chosen x axis.
function abscissa(run, columns) {
  const x = $('x').value;
  if (x !== 'hours') return column(columns, x);
  const start = column(run.steps, 'time')[0] ?? column(columns, 'time')[0];
  return column(columns, 'time').map((t) => (t - start) / 3600);
}

// extend finds what the x axes show: every step of the runs that are drawn.
function extend() {
  let low = Infinity, high = -Infinity;
  data.runs.forEach((run, i) => {
    if (hidden.has(i)) return;
    for (const columns of [run.steps, ...Object.values(run.evaluations)]) for (const x of abscissa(run, columns)) if (known(x)) { low = Math.min(low, x); high = Math.max(high, x); }
  });
  extent = low < high ? [low, high] : low === high ? [low - 1, high + 1] : [0, 1];
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

function values(panel, field, columns, log) {
  const k = panel.scale ?? 1;
  return column(columns, field).map((v) => v === null || (log && v <= 0) ? null : v * k);
}

// without leaves out the places where there is no value: what is logged now and then is a line all the same.
function without([xs, ys]) {
  const at = ys.flatMap((y, i) => y === null ? [] : [i]);
  return [at.map((i) => xs[i]), at.map((i) => ys[i])];
}

const prefixed = (run, word) => data.runs.length > 1 ? (word ? `${run.name} ${word}` : run.name) : word;

// curves are the lines of a panel: label, points, style. What has no label is the faint line of the values as logged.
function curves(panel) {
  const {log: wanted, smoothing} = settings(), log = panel.log && wanted, s = panel.smooth ? smoothing : 0, list = [];
  data.runs.forEach((run, i) => {
    if (hidden.has(i)) return;
    const xs = abscissa(run, run.steps), stroke = runColour(i);
    panel.fields.forEach((field, n) => {
      let points = rising(xs, values(panel, field, run.steps, log));
      if (!points[1].some((y) => y !== null)) return;
      if (panel.sparse) points = without(points);
      const word = n ? panel.second : panel.first ?? (panel.evaluations ? 'training' : '');
      if (s) list.push({label: '', points, stroke, alpha: 0.3, width: 1});
      list.push({label: prefixed(run, word) || (s ? 'smoothed' : panel.title.toLowerCase()), points: s ? [points[0], smoothed(points[1], s)] : points, stroke, alpha: 1, width: n ? 1.5 : 2, dash: n ? [4, 4] : undefined});
    });
    const e = panel.evaluations && run.evaluations.validation;
    if (!e) return;
    const points = without(rising(abscissa(run, e), values(panel, panel.fields[0], e, log)));
    if (points[0].length) list.push({label: prefixed(run, 'validation'), points, stroke, alpha: 1, width: 1.5, dash: [6, 4], dots: true});
  });
  return list;
}

function joined(list) {
  return list.length === 1 ? list[0].points : uPlot.join(list.map((c) => c.points));
}

// interesting tells whether a panel has something to show: values, of a loss scale other ones than 1.
function interesting(panel) {
  const wanted = (v) => v !== null && !(panel.varies && v === 1);
  return data.runs.some((r) => panel.fields.some((f) => column(r.steps, f).some(wanted)) ||
    (panel.evaluations && r.evaluations.validation && panel.fields.some((f) => column(r.evaluations.validation, f).some(wanted))));
}

function clipped(run) {
  const {clipped, clip_at} = run.state.summary;
  return clipped === null ? '' : `${percent(clipped)} clipped at ${clip_at}`;
}

function skipped(run) {
  return plural(run.state.summary.skipped, 'step') + ' skipped';
}

// stalls are steps that took more than three times the median.
function stalls(run) {
  const seconds = column(run.steps, 'seconds'), usual = median(seconds);
  run.stalled = usual === null ? [] : seconds.flatMap((v, i) => v !== null && v > 3 * usual ? [i] : []);
  return run.stalled.length ? plural(run.stalled.length, 'stall') : '';
}

// fit is the height of an axis: that of the values, without the few that lie far outside where `all` is off.
function fit(values, {log, all}) {
  const every = Math.max(1, Math.ceil(values.length / 4000)), sorted = values.filter((_, i) => i % every === 0).sort((a, b) => a - b);
  let low = Infinity, high = -Infinity;
  for (const v of values) { low = Math.min(low, v); high = Math.max(high, v); }
  if (!(low <= high)) return [0, 1];
  const at = (q) => sorted[Math.min(sorted.length - 1, Math.max(0, Math.round(q * (sorted.length - 1))))];
  const scale = log ? Math.log : (v) => v, back = log ? Math.exp : (v) => v;
  let [a, b] = [scale(low), scale(high)];
  const p = scale(at(0.02)), q = scale(at(0.98)), spread = q - p;
  if (!all && sorted.length >= 20 && spread > 0) {
    if (b > q + spread) b = q + spread / 8;
    if (a < p - spread) a = p - spread / 8;
  }
  if (b - a <= 1e-9 * Math.max(Math.abs(a), Math.abs(b))) {
    const around = log ? 0.1 : 0.05 * Math.abs(a) || 1;
    return [back(a - around), back(a + around)];
  }
  const pad = (b - a) / 25;
  return [!log && low >= 0 && a >= 0 ? Math.max(0, a - pad) : back(a - pad), back(b + pad)];
}

// inView are the values of a chart that its x axis shows.
function inView(u) {
  const xs = u.data[0], [from, to] = zoom ?? [-Infinity, Infinity], list = [];
  for (let s = 1; s < u.data.length; s++) {
    u.data[s].forEach((v, i) => { if (known(v) && xs[i] >= from && xs[i] <= to) list.push(v); });
  }
  return list;
}

// nearest is the row closest to one in which a curve has a value, so that runs that logged other steps are read too.
function nearest(values, at) {
  for (let by = 0; by <= 200; by++) {
    if (known(values[at - by])) return at - by;
    if (known(values[at + by])) return at + by;
  }
  return at;
}

// readout shows the values at the cursor, or the last ones.
function readout(panel, made) {
  const out = made.out, u = made.chart, at = u?.cursor.idx ?? null;
  out.replaceChildren();
  if (!u) return;
  const name = {iteration: 'step', tokens: 'tokens', hours: 'hours'}[$('x').value];
  element('span', at === null ? 'last' : `${name} ${short(u.data[0][at])}`, out, 'where');
  made.list.forEach((c, i) => {
    if (!c.label && data.runs.length > 1) return;
    const list = u.data[i + 1], v = at === null ? lastKnown(list) : list[nearest(list, at)];
    if (!known(v)) return;
    const one = element('span', undefined, out, 'value');
    swatch(one, c.stroke).classList.toggle('dashed', !!c.dash);
    if (!c.label) one.firstChild.classList.add('faint');
    element('span', `${c.label || 'as logged'} `, one);
    element('b', short(v), one);
  });
}

function describe(panel, list) {
  const shown = list.filter((c) => c.label).map((c) => `${c.label}: last ${short(lastKnown(c.points[1]))}`);
  return `${panel.title}. ${shown.join('; ')}`;
}

// firstFrom is the position of the first of rising values that is not below v.
function firstFrom(values, v) {
  let low = 0, high = values.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] < v) low = middle + 1; else high = middle;
  }
  return low;
}

// placeOf is where a step stands on the x axis: at its row, or at the last one before it.
function placeOf(run, iteration) {
  const xs = abscissa(run, run.steps);
  return xs[Math.min(firstFrom(column(run.steps, 'iteration'), iteration), xs.length - 1)] ?? null;
}

function place() {
  for (const run of data.runs) run.placed = run.state.marks.map((m) => ({kind: m.kind, place: placeOf(run, m.iteration)}));
}

// vertical draws a line over a part of the chart's height, where x is in view.
function vertical(u, x, from, to) {
  const {ctx, bbox} = u, at = Math.round(u.valToPos(x, 'x', true));
  if (at < bbox.left || at > bbox.left + bbox.width) return;
  ctx.beginPath();
  ctx.moveTo(at, bbox.top + from * bbox.height);
  ctx.lineTo(at, bbox.top + to * bbox.height);
  ctx.stroke();
}

function drawMarks(u) {
  const {ctx} = u;
  ctx.save();
  data.runs.forEach((run, i) => {
    if (hidden.has(i)) return;
    for (const {kind, place} of run.placed) {
      if (place === null || (kind === 'checkpoint' && data.runs.length > 1)) continue;
      ctx.strokeStyle = colour(kind);
      ctx.lineWidth = kind === 'checkpoint' || kind === 'alert' ? devicePixelRatio : 2 * devicePixelRatio;
      ctx.setLineDash(kind === 'checkpoint' ? [2, 4] : []);
      vertical(u, place, 0, 1);
    }
  });
  ctx.restore();
}

// drawStalls puts a tick below each step that took long.
function drawStalls(u) {
  const {ctx} = u;
  ctx.save();
  ctx.strokeStyle = colour('stall');
  ctx.lineWidth = 2 * devicePixelRatio;
  data.runs.forEach((run, i) => {
    const xs = abscissa(run, run.steps);
    if (!hidden.has(i)) for (const at of run.stalled ?? []) vertical(u, xs[at], 0.92, 1);
  });
  ctx.restore();
}

// insert puts a figure among others in the order of ids, whichever has something to show first.
function insert(parent, figure, ids) {
  parent.insertBefore(figure, ids.slice(ids.indexOf(figure.id) + 1).map($).find(Boolean) ?? null);
}

function frame(panel) {
  const figure = element('figure');
  figure.id = panel.id;
  figure.className = panel.main ? 'main' : '';
  insert($('charts'), figure, panels.map((p) => p.id));
  const caption = element('figcaption', undefined, figure), title = element('span', undefined, caption);
  element('b', panel.title, title);
  element('span', panel.unit ?? '', title, 'unit');
  const note = element('span', '', caption, 'unit'), far = element('span', '', caption, 'unit');
  const out = element('output', '', figure), plot = element('div', undefined, figure, 'plot');
  plot.tabIndex = 0;
  plot.setAttribute('role', 'img');
  const made = {figure, plot, out, note, far};
  menu(panel.title, panel.id, caption, [['PNG', () => picture(panel, made)], ['CSV', () => saveCommas(panel.id, commas(made))]]);
  plot.addEventListener('keydown', (e) => step(made, e));
  plot.addEventListener('mousemove', () => out.setAttribute('aria-live', 'off'));
  plot.addEventListener('mouseleave', () => point(null, null));
  drawn.set(panel.id, made);
  return made;
}

// menu is what can be taken from a panel: a picture, its numbers, a link to it.
function menu(title, id, caption, offers) {
  const d = element('details', undefined, caption, 'menu');
  element('summary', '⋯', d).setAttribute('aria-label', `Save or link: ${title}`);
  const list = element('div', undefined, d);
  for (const [name, press] of offers) button(name, list, press);
  button('Copy link', list, (e) => copy(location.href.split('#')[0] + '#' + address(id), e.target));
  d.addEventListener('keydown', (e) => { if (e.key === 'Escape') { d.open = false; d.firstChild.focus(); } });
  d.addEventListener('focusout', (e) => { if (!d.contains(e.relatedTarget)) d.open = false; });
}

// cell is a text in CSV; one that a spreadsheet would take for a formula is quoted behind an apostrophe.
const cell = (text) => `"${text.replace(/^(?=[=+\-@\t\r])/, "'").replaceAll('"', '""')}"`;

const saveCommas = (id, text) => save(id + '.csv', new Blob([text], {type: 'text/csv'}));

// commas are the numbers of a chart as CSV.
function commas(made) {
  const head = [$('x').value, ...made.list.map((c, i) => c.label || `${made.list[i + 1]?.label ?? ''} as logged`.trim())];
  const u = made.chart.data, lines = [head.map(cell).join(',')];
  u[0].forEach((x, i) => lines.push(u.map((values) => values[i] ?? '').join(',')));
  return lines.join('\n') + '\n';
}

// picture saves a chart with its title and its curves' names.
function picture(panel, made) {
  const from = made.chart.ctx.canvas, k = devicePixelRatio, high = 46 * k, canvas = element('canvas');
  canvas.width = from.width;
  canvas.height = from.height + high;
  const ctx = canvas.getContext('2d');
  ctx.fillStyle = colour('panel');
  ctx.fillRect(0, 0, canvas.width, canvas.height);
  ctx.fillStyle = colour('ink');
  ctx.font = `600 ${14 * k}px system-ui, sans-serif`;
  ctx.fillText([panel.title, panel.unit].filter(Boolean).join(', '), 10 * k, 18 * k);
  ctx.font = `${12 * k}px system-ui, sans-serif`;
  let x = 10 * k;
  for (const c of made.list.filter((c) => c.label)) {
    ctx.fillStyle = colour(c.stroke);
    ctx.fillText(`${c.dash ? '- -' : '––'} ${c.label}`, x, 38 * k);
    x += ctx.measureText(`${c.dash ? '- -' : '––'} ${c.label}   `).width;
  }
  ctx.drawImage(from, 0, high);
  canvas.toBlob((blob) => save(panel.id + '.png', blob));
}

// step moves the cursor by the arrow keys, and says what is there.
function step(made, e) {
  const by = {ArrowLeft: -1, ArrowRight: 1, PageUp: -50, PageDown: 50, Home: -Infinity, End: Infinity}[e.key];
  const u = made.chart;
  if (e.key === 'Escape') zoomTo(null);
  if (by === undefined || !u) return;
  e.preventDefault();
  made.out.setAttribute('aria-live', 'polite');
  const at = Math.min(u.data[0].length - 1, Math.max(0, (u.cursor.idx ?? 0) + by));
  u.setCursor({left: u.valToPos(u.data[0][at], 'x'), top: u.over.clientHeight / 2});
}

// point puts the cursor of every chart but one at a place of the x axis; null: nowhere.
function point(x, but) {
  if (pointing) return;
  pointing = true;
  for (const made of drawn.values()) {
    const u = made.chart;
    if (!u || u === but || made.figure.hidden) continue;
    u.setCursor(x === null ? {left: -10, top: -10} : {left: u.valToPos(x, 'x'), top: 1});
  }
  pointing = false;
}

// zoomTo shows a part of the x axis in all charts; null: all of it.
function zoomTo(range) {
  zoom = range;
  $('reset').hidden = !zoom;
  pointing = true;
  for (const made of drawn.values()) made.chart?.setData(made.chart.data, true);
  pointing = false;
  remember();
}

function options(panel, made, list) {
  const {log: wanted, all} = settings(), log = !!panel.log && wanted, font = '12px system-ui, sans-serif';
  const axis = () => ({stroke: colour('quiet'), grid: {stroke: colour('rule'), width: 1}, ticks: {stroke: colour('rule'), width: 1, size: 5}, font});
  const wide = made.plot.clientWidth, height = panel.main ? (wide < 600 ? 240 : 320) : 200;
  return {
    width: wide, height, legend: {show: false}, padding: [8, 18, 0, 4],
    cursor: {points: {size: 7}, y: false, drag: {x: true, y: false}, dataIdx: (u, s, at) => s ? nearest(u.data[s], at) : at, bind: {dblclick: () => () => { zoomTo(null); return null; }}},
    scales: {
      x: {time: false, range: () => zoom ?? extent},
      y: {...(log ? {distr: 3, log: 10} : {}), range: (u) => made.range = fit(inView(u), {log, all})},
    },
    axes: [
      {...axis(), size: 28, splits: (u, _, low, high) => ticks(low, high, Math.max(6, Math.min(10, Math.floor(wide / 46))), $('x').value !== 'hours'), values: (_, list) => labels(list)},
      {...axis(), size: (u, list) => Math.ceil(10 + Math.max(...(list ?? ['']).map((text) => measured(u.ctx, text, font)))),
        splits: (_, __, low, high) => (log ? tens : ticks)(low, high, panel.main ? 10 : 7), values: (_, list) => log && last(list) >= 10 * list[0] ? powers(list) : labels(list)},
    ],
    series: [{}, ...list.map((c) => ({stroke: colour(c.stroke), alpha: c.alpha, width: c.width, dash: c.dash, spanGaps: !!c.dots, points: {show: c.dots || c.points[0].length < 2, size: 5, fill: colour(c.stroke)}}))],
    hooks: {
      draw: panel.id === 'speed' ? [drawMarks, drawStalls] : [drawMarks],
      setCursor: [(u) => { readout(panel, made); point(u.cursor.idx === null ? null : u.data[0][u.cursor.idx], u); }],
      setSelect: [(u) => { if (u.select.width > 3) zoomTo([u.posToVal(u.select.left, 'x'), u.posToVal(u.select.left + u.select.width, 'x')]); u.setSelect({left: 0, top: 0, width: 0, height: 0}, false); }],
    },
  };
}

function measured(ctx, text, font) {
  ctx.save();
  ctx.font = font;
  const {width} = ctx.measureText(text ?? '');
  ctx.restore();
  return width + 8;
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
    made.chart = list.length ? new uPlot(options(panel, made, list), points, made.plot) : undefined;
  } else {
    made.chart.setData(points, true);
  }
  made.figure.dataset.points = points[0].length;
  made.plot.setAttribute('aria-label', describe(panel, list));
  made.note.textContent = panel.note ? data.runs.map((r) => [r, panel.note(r)]).filter(([, said]) => said).map(([r, said]) => data.runs.length > 1 ? `${r.name}: ${said}` : said).join(', ') : '';
  outside(made);
  readout(panel, made);
}

// outside says how many values the axis leaves out.
function outside(made) {
  const u = made.chart, range = made.range;
  const n = u && range ? inView(u).filter((v) => v < range[0] || v > range[1]).length : 0;
  made.far.textContent = n ? `${plural(n, 'value')} outside` : '';
}

// keyed is one of the legend's entries, with a small drawing.
function keyed(parent, name, attributes, points) {
  const one = element('span', undefined, parent), s = svg('svg', {width: 24, height: 12, 'aria-hidden': 'true'}, one);
  svg('path', {d: points ?? 'M0 6H24', fill: 'none', ...attributes}, s);
  element('span', name, one);
}

// legend says what the lines are, of those that are there.
function legend() {
  const box = $('legend'), is = (kind) => data.runs.some((r) => r.state.marks.some((m) => m.kind === kind)), line = {stroke: 'currentColor', 'stroke-width': 2};
  box.replaceChildren();
  if (settings().smoothing) {
    keyed(box, 'as logged', {...line, 'stroke-width': 1, opacity: 0.4}, 'M0 8L5 3L10 9L16 2L24 7');
    keyed(box, 'smoothed', line);
  }
  if (data.runs.some((r) => r.evaluations.validation)) keyed(box, 'validation', {...line, 'stroke-dasharray': '6 4'});
  for (const [kind, dash] of [['checkpoint', '2 3'], ['alert', ''], ['restart', ''], ['verdict', '']]) {
    if (is(kind) && !(kind === 'checkpoint' && data.runs.length > 1)) keyed(box, kind, {class: 'mark-' + kind, 'stroke-width': kind === 'alert' || dash ? 1.5 : 2.5, 'stroke-dasharray': dash}, 'M12 0V12');
  }
  if (data.runs.some((r) => r.stalled?.length)) keyed(box, 'stall (a step of more than 3 times the median)', {class: 'mark-stall', 'stroke-width': 2.5}, 'M12 5V12');
}

function draw(anew) {
  const nothing = data.runs.every((r) => !r.steps[0].length);
  $('controls').hidden = $('legend').hidden = nothing;
  place();
  extend();
  for (const panel of panels) show(panel, anew);
  legend();
}

// address is the state of the page as text: the link to a panel.
function address(panel) {
  const s = settings(), p = new URLSearchParams();
  if (panel) p.set('p', panel);
  if (s.x !== 'iteration') p.set('x', s.x);
  p.set('s', s.smoothing);
  if (s.log) p.set('log', 1);
  if (s.all) p.set('all', 1);
  if (zoom) p.set('zoom', zoom.map((v) => Number(v.toPrecision(8))).join('_'));
  if (hidden.size) p.set('off', [...hidden].join('_'));
  return p.toString();
}

// remember keeps the state in the page's address, without a new entry in the browser's history.
function remember() {
  try {
    history.replaceState(null, '', '#' + address(new URLSearchParams(location.hash.slice(1)).get('p')));
  } catch {
    // a browser that allows none of a page from disk: the state is in its links all the same
  }
}

// recall takes the state that the address has.
function recall() {
  const p = new URLSearchParams(location.hash.slice(1)), smoothing = Number(p.get('s') ?? NaN);
  if (['iteration', 'tokens', 'hours'].includes(p.get('x'))) $('x').value = p.get('x');
  if (smoothing >= 0 && smoothing < 1) $('smoothing').value = smoothing;
  $('log').checked = p.has('log');
  $('all').checked = p.has('all');
  const range = (p.get('zoom') ?? '').split('_').map(Number);
  zoom = range.length === 2 && range.every(isFinite) && range[0] < range[1] ? range : null;
  $('reset').hidden = !zoom;
  hidden.clear();
  for (const i of (p.get('off') ?? '').split('_').filter(Boolean).map(Number)) if (i in data.runs) hidden.add(i);
  return panels.some((panel) => panel.id === p.get('p')) || detailed.includes(p.get('p')) ? p.get('p') : null;
}
