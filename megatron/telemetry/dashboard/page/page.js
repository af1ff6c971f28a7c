'use strict';
// The page of one or several runs. Its data is inlined, or comes from /data and then /events.
// Text from outside goes through textContent alone.

const panels = [
  {id: 'loss', title: 'Loss', unit: 'nats a token', fields: ['loss'], main: true, smooth: true, log: true, evaluations: true},
  {id: 'learning-rate', title: 'Learning rate', fields: ['learning_rate']},
  {id: 'gradient-norm', title: 'Gradient norm', unit: 'before clipping', fields: ['grad_norm'], smooth: true, log: true, note: clipped},
  {id: 'margins', title: 'Reward margin', unit: 'of better over worse answers', fields: ['rewards_margins'], smooth: true, evaluations: true},
  {id: 'reward', title: 'Reward', unit: 'mean of the batch', fields: ['reward'], smooth: true, evaluations: true},
  {id: 'answers', title: 'Answer length', unit: 'tokens, mean of the batch', fields: ['completion_length'], smooth: true},
  {id: 'ranked', title: 'Pairs ranked right', unit: '%', fields: ['rewards_accuracies'], scale: 100, smooth: true, evaluations: true},
  {id: 'speed', title: 'Tokens a second', fields: ['tokens_per_second'], smooth: true, log: true, note: stalls},
  {id: 'mfu', title: 'MFU', unit: '% of the measured peak', fields: ['mfu'], scale: 100, smooth: true},
  {id: 'memory', title: 'Memory', unit: 'MiB, most at once', fields: ['memory_bytes', 'planned_memory_bytes'], second: 'planned', scale: 1 / (1 << 20)},
  {id: 'data-wait', title: 'Waiting for data', unit: 'ms a step', fields: ['data_seconds'], scale: 1000, smooth: true, log: true},
  {id: 'ranks', title: "Ranks' own work", unit: 'ms a step: slowest, and median (dashed)', fields: ['slowest_rank_seconds', 'median_rank_seconds'], second: 'median', scale: 1000, log: true, sparse: true},
  {id: 'experts', title: 'Fullest expert', unit: 'times an even part', fields: ['fullest_expert'], smooth: true},
  {id: 'loss-scale', title: 'Loss scale', fields: ['loss_scale'], log: true, note: skipped, varies: true},
];
const colours = 6;
const hidden = new Set();
const drawn = new Map(); // panel id -> {figure, plot, caption, out, chart, zoomed}
let data, source, rows = 0;

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

function values(panel, field, columns, log) {
  const k = panel.scale ?? 1;
  return column(columns, field).map((v) => v === null || (log && v <= 0) ? null : v * k);
}

// known leaves out the places where there is no value: what is told now and then is a line all the same.
function known([xs, ys]) {
  const at = ys.flatMap((y, i) => y === null ? [] : [i]);
  return [at.map((i) => xs[i]), at.map((i) => ys[i])];
}

// curves are the lines of a panel: label, points, style.
function curves(panel) {
  const log = panel.log && $('log').checked, s = panel.smooth ? Number($('smoothing').value) : 0, list = [];
  data.runs.forEach((run, i) => {
    if (hidden.has(i)) return;
    const xs = abscissa(run, run.steps), stroke = runColour(i);
    panel.fields.forEach((field, n) => {
      const ys = values(panel, field, run.steps, log);
      if (!ys.some((y) => y !== null)) return;
      const points = (list) => panel.sparse ? known(rising(xs, list)) : rising(xs, list);
      if (s) list.push({label: '', points: points(ys), stroke, alpha: 0.28, width: 1});
      list.push({label: n ? `${run.name} ${panel.second}` : run.name, points: points(s ? smoothed(ys, s) : ys), stroke, alpha: 1, width: n ? 1.5 : 2, dash: n ? [4, 4] : undefined});
    });
    if (!panel.evaluations || !run.evaluations.validation) return;
    const e = run.evaluations.validation, ys = values(panel, panel.fields[0], e, log);
    if (ys.some((y) => y !== null)) list.push({label: run.name + ' validation', points: rising(abscissa(run, e), ys), stroke, alpha: 1, width: 1.5, dash: [6, 4], dots: true});
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

const percent = (v) => (100 * v).toFixed(v < 0.1 ? 1 : 0) + '%';

function clipped(run) {
  const {clipped, clip_at} = run.state.summary;
  return clipped === null ? '' : `${percent(clipped)} clipped at ${clip_at}`;
}

function skipped(run) {
  const n = run.state.summary.skipped;
  return `${n} step${n === 1 ? '' : 's'} skipped`;
}

// stalls are steps that took more than three times the median.
function stalls(run) {
  const seconds = column(run.steps, 'seconds'), usual = median(seconds);
  run.stalled = usual === null ? [] : seconds.flatMap((v, i) => v !== null && v > 3 * usual ? [i] : []);
  const n = run.stalled.length;
  return n ? `${n} stall${n === 1 ? '' : 's'}` : '';
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

// firstFrom is the place of the first of rising values that is not below v.
function firstFrom(values, v) {
  let low = 0, high = values.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] < v) low = middle + 1; else high = middle;
  }
  return low;
}

// place says where each mark stands on the x axis: at its step, or at the last one before it.
function place() {
  for (const run of data.runs) {
    const steps = column(run.steps, 'iteration'), xs = abscissa(run, run.steps);
    run.placed = run.state.marks.map((m) => {
      const i = firstFrom(steps, m.iteration);
      return {kind: m.kind, place: xs[Math.min(i, xs.length - 1)] ?? null};
    });
  }
}

// drawStalls puts a tick below each step that took long.
function drawStalls(u) {
  const {ctx, bbox} = u;
  ctx.save();
  ctx.strokeStyle = colour('alert');
  ctx.lineWidth = 2;
  data.runs.forEach((run, i) => {
    if (hidden.has(i)) return;
    const xs = abscissa(run, run.steps);
    for (const at of run.stalled ?? []) {
      const x = Math.round(u.valToPos(xs[at], 'x', true));
      if (x < bbox.left || x > bbox.left + bbox.width) continue;
      ctx.beginPath();
      ctx.moveTo(x, bbox.top + bbox.height - 12);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
    }
  });
  ctx.restore();
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
      ctx.lineWidth = kind === 'checkpoint' || kind === 'alert' ? 1 : 2;
      ctx.globalAlpha = kind === 'alert' ? 0.6 : 1;
      ctx.setLineDash(kind === 'checkpoint' ? [2, 4] : []);
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
    }
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
  insert($('charts'), figure, panels.map((p) => p.id));
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
    hooks: {draw: panel.id === 'speed' ? [drawMarks, drawStalls] : [drawMarks], setCursor: [(u) => { made.out.textContent = readout(panel, u, made.list, u.cursor.idx); }], setSelect: [() => { made.zoomed = true; }]},
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
  made.note.textContent = panel.note ? data.runs.map((r) => [r, panel.note(r)]).filter(([, told]) => told).map(([r, told]) => data.runs.length > 1 ? `${r.name}: ${told}` : told).join(', ') : '';
}

function median(values) {
  const sorted = values.filter((v) => v !== null).sort((a, b) => a - b);
  return sorted.length ? sorted[sorted.length >> 1] : null;
}

function span(seconds) {
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${(seconds / 3600).toFixed(1)} h`;
  return `${(seconds / 86400).toFixed(1)} days`;
}

function summary() {
  const priced = data.runs.some((r) => r.state.summary.cost !== null);
  table($('summary'), ['run', 'step', 'tokens', 'loss', 'validation', 'best validation', 'tokens/s', 'MFU', 'time', ...(priced ? ['cost'] : [])], data.runs.map((r) => {
    const s = r.state.summary;
    return [r.name, s.train_iters ? `${s.step} of ${s.train_iters}` : String(s.step), short(s.tokens), short(s.loss), short(s.validation), short(s.best), short(s.tokens_per_second),
      s.mfu === null ? '–' : percent(s.mfu), s.hours === null ? '–' : span(3600 * s.hours), ...(priced ? [short(s.cost)] : [])];
  }));
  for (const r of data.runs) {
    const s = r.state.summary;
    const said = [r.note, s.torn ? `${s.torn} torn line${s.torn === 1 ? '' : 's'} skipped` : '', s.replaced ? `${s.replaced} lines replaced by training again` : '',
      r.thinned ? `of ${r.thinned + r.steps[0].length} steps the ${r.steps[0].length} that stand out are here; report --format csv has all` : ''].filter(Boolean);
    if (said.length) element('p', `${r.name}: ${said.join('; ')}.`, $('summary')).className = 'note';
  }
}

// courses show how far each run is, and when it will end.
function courses() {
  const box = $('courses');
  box.replaceChildren();
  for (const r of data.runs) {
    const s = r.state.summary;
    if (!s.train_iters || s.left_seconds === null) continue;
    const seen = last(column(r.steps, 'time')), going = source && Date.now() / 1000 - seen < Math.max(60, 20 * (median(column(r.steps, 'seconds')) ?? 0));
    const cost = s.whole_cost === null ? '' : `; cost ${short(s.cost)} so far, ${short(s.whole_cost)} in all`;
    let text = `step ${s.step} of ${s.train_iters}`;
    if (s.step >= s.train_iters) text += ', done';
    else if (going) text += `, ${span(s.left_seconds)} left, until about ${new Date(1000 * (seen + s.left_seconds)).toLocaleString([], {weekday: 'short', hour: '2-digit', minute: '2-digit'})}`;
    else text += `; at its pace ${span(s.left_seconds)} were left`;
    const label = element('label', undefined, box);
    if (data.runs.length > 1) element('span', r.name, label);
    const bar = element('progress', undefined, label);
    bar.max = s.train_iters;
    bar.value = s.step;
    element('span', text + cost, label);
  }
}

const svg = (name, attributes, parent) => {
  const e = document.createElementNS('http://www.w3.org/2000/svg', name);
  for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
  if (parent) parent.append(e);
  return e;
};

// detail is the frame of something that is no curve; none where there is nothing to show.
function detail(id, title, runs, fill) {
  let figure = $(id);
  if (!runs.length) {
    figure?.remove();
    return;
  }
  if (!figure) {
    figure = element('figure');
    figure.id = id;
    insert($('details'), figure, ['memory-by-purpose', 'rank-spread', 'expert-balance', 'lanes', 'samples']);
  }
  const told = JSON.stringify(runs.map((r) => fill.of(r)));
  if (figure.dataset.told === told && figure.dataset.width === String(innerWidth)) return;
  figure.dataset.told = told;
  figure.dataset.width = innerWidth;
  figure.replaceChildren();
  element('b', title, element('figcaption', undefined, figure));
  for (const r of runs) {
    if (data.runs.length > 1) element('p', r.name, figure).className = 'note';
    fill.draw(r, figure);
  }
}

// held is an amount of memory in the unit that leaves it at least 1.
function held(bytes) {
  const unit = bytes < 1 ? 0 : Math.min(4, Math.floor(Math.log2(bytes) / 10));
  return `${short(bytes / 1024 ** unit)} ${['B', 'KiB', 'MiB', 'GiB', 'TiB'][unit]}`;
}

// bars are a list of numbers with names, each maybe with what it was planned to be.
function bars(rows, parent, say) {
  const most = rows.reduce((a, [, v, planned]) => Math.max(a, v, planned ?? 0), 0) || 1;
  const t = element('table', undefined, parent);
  t.className = 'bars';
  const body = element('tbody', undefined, t);
  for (const [name, v, planned] of rows) {
    const tr = element('tr', undefined, body);
    element('th', name, tr).scope = 'row';
    const track = element('div', undefined, element('td', undefined, tr)), bar = element('span', undefined, track);
    track.className = 'track';
    bar.className = 'bar';
    bar.style.width = `${100 * v / most}%`;
    if (planned !== undefined) {
      const mark = element('span', undefined, track);
      mark.className = 'planned';
      mark.style.left = `${100 * planned / most}%`;
    }
    element('td', planned === undefined ? say(v) : `${say(v)} of ${say(planned)}`, tr);
  }
}

const memory = {
  of: (r) => [r.state.latest.memory, r.state.latest.planned],
  draw: (r, figure) => {
    const {memory, planned} = r.state.latest;
    const rows = Object.keys({...planned, ...memory}).map((k) => [k, memory[k] ?? 0, planned ? planned[k] ?? 0 : undefined]);
    bars(rows.sort((a, b) => b[1] - a[1]), figure, held);
    if (planned) element('p', 'A line across a bar, and the second number: what the plan before the run said.', figure).className = 'note';
  },
};
const ranks = {
  of: (r) => r.state.latest.ranks,
  draw: (r, figure) => {
    const rows = r.state.latest.ranks.map((v, i) => [`rank ${i}`, v]);
    bars(rows.length <= 32 ? rows : rows.sort((a, b) => b[1] - a[1]).slice(0, 32), figure, (v) => `${short(1000 * v)} ms`);
    if (rows.length > 32) element('p', `The 32 slowest of ${rows.length} ranks.`, figure).className = 'note';
  },
};

// experts are a map: a row a layer, a column an expert.
const experts = {
  of: (r) => r.state.latest.experts,
  draw: (r, figure) => {
    const layers = Object.entries(r.state.latest.experts), width = Math.max(...layers.map(([, s]) => s.length));
    const size = Math.max(3, Math.min(22, Math.floor((figure.clientWidth - 70) / width))), height = Math.max(10, size);
    const all = layers.flatMap(([n, s]) => s.map((v, i) => ({n, i, v}))), most = all.reduce((a, b) => b.v > a.v ? b : a), least = all.reduce((a, b) => b.v < a.v ? b : a);
    const text = `Fullest: layer ${most.n}, expert ${most.i}, ${most.v} times an even part. Emptiest: layer ${least.n}, expert ${least.i}, ${least.v} times.`;
    const picture = svg('svg', {width: 50 + width * size, height: layers.length * height, role: 'img', 'aria-label': text}, figure);
    layers.forEach(([n, shares], row) => {
      svg('text', {x: 0, y: row * height + height - 2, class: 'tick'}, picture).textContent = `layer ${n}`;
      shares.forEach((v, i) => {
        const box = svg('rect', {x: 50 + i * size, y: row * height, width: size - (size > 5 ? 1 : 0), height: height - 1, fill: heat(v)}, picture);
        svg('title', {}, box).textContent = `layer ${n}, expert ${i}: ${v} times an even part`;
      });
    });
    element('p', `${text} Blue: less than an even part, red: more.`, figure).className = 'note';
  },
};

// heat is blue below an even part, red above, the stronger the further.
function heat(v) {
  const far = Math.min(1, Math.abs(Math.log2(Math.max(v, 1e-3))) / 2);
  return v < 1 ? `hsl(215 70% ${92 - 47 * far}%)` : `hsl(8 75% ${92 - 45 * far}%)`;
}

const kinds = [['forward', 'run0'], ['backward', 'run1'], ['optimizer', 'run2'], ['send', 'run4'], ['recv', 'run4'], ['all-reduce', 'run3'], ['sync', 'run3'], ['gather', 'run3'], ['batch', 'run5']];

// lanes are what each rank did when, of one step of a trace.
const lanes = {
  of: (r) => r.lanes,
  draw: (r, figure) => {
    const {file, step, ranks} = r.lanes, width = Math.max(280, figure.clientWidth - 26), high = 22;
    const end = ranks.reduce((a, l) => l.boxes.reduce((b, x) => Math.max(b, x.start + x.takes), a), 0) || 1;
    const picture = svg('svg', {width, height: ranks.length * high + 18, role: 'img', 'aria-label': `What ${ranks.length} ranks did in ${step}, ${short(end)} ms`}, figure);
    ranks.forEach((lane, row) => {
      svg('text', {x: 0, y: row * high + 15, class: 'tick'}, picture).textContent = `rank ${lane.rank}`;
      for (const b of lane.boxes) {
        const kind = kinds.find(([k]) => b.name.includes(k)), outer = b.name === 'forward-backward';
        const box = svg('rect', {x: 52 + (width - 54) * b.start / end, y: row * high + (outer ? 1 : 4), width: Math.max(0.5, (width - 54) * b.takes / end), height: outer ? high - 2 : high - 8}, picture);
        box.style.fill = outer ? 'var(--rule)' : `var(--${kind ? kind[1] : 'checkpoint'})`;
        svg('title', {}, box).textContent = `${b.name}: ${short(b.takes)} ms, from ${short(b.start)} ms`;
      }
    });
    svg('text', {x: 52, y: ranks.length * high + 14, class: 'tick'}, picture).textContent = '0 ms';
    svg('text', {x: width - 2, y: ranks.length * high + 14, class: 'tick', 'text-anchor': 'end'}, picture).textContent = `${short(end)} ms`;
    const key = element('p', undefined, figure);
    key.className = 'note key';
    for (const [name, at] of [['forward', 'run0'], ['backward', 'run1'], ['optimizer', 'run2'], ['between stages', 'run4'], ['gradients, parameters', 'run3'], ['batch', 'run5']]) {
      const one = element('span', undefined, key), swatch = element('i', undefined, one);
      swatch.className = 'swatch';
      swatch.style.background = `var(--${at})`;
      element('span', name, one);
    }
    element('p', `${step}, of ${file}.`, figure).className = 'note';
  },
};

const samples = {
  of: (r) => r.state.written,
  draw: (r, figure) => {
    r.state.written.slice(-12).reverse().forEach((w, i) => {
      const d = element('details', undefined, figure);
      d.open = i === 0;
      element('summary', `step ${w.iteration}: ${w.prompt.slice(0, 60)}`, d);
      element('pre', w.text, d);
    });
  },
};

function details() {
  const shown = data.runs.filter((_, i) => !hidden.has(i));
  detail('memory-by-purpose', 'Memory by purpose, most held so far on the last rank', shown.filter((r) => r.state.latest.memory), memory);
  detail('rank-spread', "Each rank's own work, a step", shown.filter((r) => r.state.latest.ranks?.length > 1), ranks);
  detail('expert-balance', "Experts' shares of the tokens", shown.filter((r) => r.state.latest.experts), experts);
  detail('lanes', 'One step, rank by rank', shown.filter((r) => r.lanes), lanes);
  detail('samples', 'Texts written at evaluations', shown.filter((r) => r.state.written.length), samples);
}

function differences() {
  const box = $('differences'), d = data.differences;
  if (data.runs.length < 2) {
    box.parentElement.hidden = true;
  } else if (d.length) {
    table(box, ['flag', ...data.runs.map((r) => r.name)], d.map((row) => ['--' + row.flag, ...row.values]));
  } else {
    box.replaceChildren();
    element('p', 'No flag differs, of those that are known.', box);
  }
}

function events() {
  const one = data.runs.length === 1, rows = data.runs.flatMap((r) => r.state.marks.map((m) => [...(one ? [] : [r.name]), m.kind, String(m.iteration), m.text]));
  table($('events'), [...(one ? [] : ['run']), 'what', 'step', ''], rows.slice(-200));
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
    box.addEventListener('change', () => { box.checked ? hidden.delete(i) : hidden.add(i); draw(true); details(); });
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
  courses();
  details();
  events();
  numbers();
}

// take adds a row: a step that was trained again replaces itself and what followed it.
function take(news) {
  const run = data.runs[news.run], at = data.fields.indexOf('iteration'), i = news.row[at];
  const cut = (columns, from) => {
    let n = columns[at].length;
    while (n && columns[at][n - 1] >= from) n--;
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
  cut(e, i);
  push(e);
}

let due = 0;
function soon() {
  due ||= setTimeout(() => { due = 0; tell(); draw(false); }, 200);
}

function listen() {
  source = new EventSource('events?from=' + encodeURIComponent(data.position));
  source.onopen = () => { $('state').textContent = 'Live: new steps appear by themselves.'; };
  source.onerror = () => {
    $('state').textContent = 'No connection; trying again.';
    if (source.readyState === EventSource.CLOSED) setTimeout(again, 2000);
  };
  source.addEventListener('row', (e) => {
    take(JSON.parse(e.data));
    if (++rows > data.most_rows) again(); else soon();
  });
  source.addEventListener('state', (e) => { JSON.parse(e.data).forEach((s, i) => { data.runs[i].state = s; }); soon(); });
  source.addEventListener('lanes', (e) => { JSON.parse(e.data).forEach((l, i) => { data.runs[i].lanes = l; }); soon(); });
  source.addEventListener('again', again);
}

// again asks for all anew: the log is another one, or more has come than a page should hold.
function again() {
  source.close();
  rows = 0;
  begin();
}

// begin starts, and tries again where the run's server cannot be reached.
function begin() {
  start().catch((e) => {
    $('state').textContent = 'This page could not be drawn: ' + e.message;
    if (!inlined) setTimeout(begin, 2000);
  });
}

const inlined = JSON.parse($('data').textContent);

async function start() {
  data = inlined ?? await (await fetch('data')).json();
  $('runs').replaceChildren($('runs').firstElementChild);
  document.title = data.runs.map((r) => r.name).join(', ') + ' – monotron';
  document.querySelector('h1').textContent = data.runs.map((r) => r.name).join(', ');
  chooseRuns();
  if (!inlined) listen();
  tell();
  draw(true);
  document.body.dataset.ready = 'yes';
}

for (const id of ['x', 'smoothing', 'log']) $(id).addEventListener('input', () => draw(true));
$('controls').addEventListener('submit', (e) => e.preventDefault());
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => draw(true));
let width = innerWidth;
addEventListener('resize', () => { if (innerWidth !== width) { width = innerWidth; draw(true); details(); } });
begin();
