'use strict';
// What is no curve: memory, ranks, experts, one step rank by rank, texts, events, values.

const detailed = ['memory-by-purpose', 'rank-spread', 'expert-balance', 'lanes', 'samples'];

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
    figure.className = data.runs.length > 1 ? 'main' : '';
    insert($('details'), figure, detailed);
  }
  const key = JSON.stringify(runs.map((r) => fill.of(r)));
  if (figure.dataset.key === key && figure.dataset.width === String(innerWidth)) return;
  figure.dataset.key = key;
  figure.dataset.width = innerWidth;
  figure.replaceChildren();
  const caption = element('figcaption', undefined, figure);
  element('b', title, caption);
  if (fill.together) fill.together(runs, figure);
  else for (const r of runs) {
    if (data.runs.length > 1) named(r, element('p', undefined, figure, 'who'));
    fill.draw(r, figure);
  }
  const pictures = figure.querySelectorAll('svg.figure');
  menu(title, id, caption, [...(pictures.length ? [['SVG', () => pictures.forEach((p, i) => drawing(runs.length > 1 ? `${id}-${runs[i].name}` : id, p))]] : []),
    ['CSV', () => saveCommas(id, [['run', ...fill.head], ...runs.flatMap((r) => fill.rows(r).map((row) => [r.name, ...row]))].map((row) => row.map((v) => typeof v === 'number' ? v : cell(v ?? '')).join(',')).join('\n') + '\n')]]);
}

// drawing saves a picture with the colours that it has on the page.
function drawing(name, picture) {
  const copied = picture.cloneNode(true), to = copied.querySelectorAll('*');
  picture.querySelectorAll('*').forEach((e, i) => {
    const s = getComputedStyle(e);
    to[i].removeAttribute('class');
    to[i].setAttribute('style', `fill: ${s.fill}; font: ${s.font}`);
  });
  copied.setAttribute('style', `background: ${colour('panel')}`);
  save(name + '.svg', new Blob([new XMLSerializer().serializeToString(copied)], {type: 'image/svg+xml'}));
}

// named is a run's name in its color.
function named(r, parent) {
  swatch(parent, runColour(data.runs.indexOf(r)));
  element('span', r.name, parent);
}

// bars are numbers with names, as bars, with what else is known of each.
function bars(head, rows, parent, paint) {
  const most = rows.reduce((a, [, v]) => Math.max(a, v), 0) || 1, t = element('table', undefined, parent, 'bars'), top = element('tr', undefined, element('thead', undefined, t)), body = element('tbody', undefined, t);
  head.forEach((h, i) => { const th = element('th', h, top); th.scope = 'col'; if (i === 1) th.colSpan = 2; });
  for (const [name, v, ...more] of rows) {
    const tr = element('tr', undefined, body);
    element('th', name, tr).scope = 'row';
    const bar = element('span', undefined, element('td', undefined, tr), 'bar');
    bar.style.width = `${100 * v / most}%`;
    bar.style.background = `var(--${paint})`;
    for (const text of more) element('td', text, tr);
  }
}

// stack is one bar of parts, each as wide as its share of most.
function stack(name, parts, most, parent, sum) {
  const all = parts.reduce((a, [, v]) => a + v, 0), line = element('div', undefined, parent, 'stack');
  element('span', name, line, 'name');
  const track = element('div', undefined, line, 'track');
  parts.forEach(([what, v, i]) => {
    const part = element('i', undefined, track);
    part.style.width = `${100 * v / most}%`;
    part.style.background = `var(--run${i % colours})`;
    part.title = `${what}: ${held(v)}`;
  });
  element('span', sum ?? `≤ ${held(all)}`, line, 'sum');
}

// purposes are the names of what memory is held for, of all runs, in one order: that of their colors.
const purposes = () => [...new Set(data.runs.flatMap((r) => Object.entries({...r.state.latest.planned, ...r.state.latest.memory}).sort((a, b) => b[1] - a[1]).map(([n]) => n)))];

const memory = {
  head: ['purpose', 'held bytes', 'planned bytes'],
  rows: (r) => purposes().map((n) => [n, r.state.latest.memory?.[n] ?? 0, r.state.latest.planned?.[n] ?? '']),
  of: (r) => [r.state.latest.memory, r.state.latest.planned],
  together: (runs, figure) => {
    const names = purposes(), sum = (of) => Object.values(of ?? {}).reduce((a, v) => a + (v ?? 0), 0), parts = (of) => names.map((n, i) => [n, of[n] ?? 0, i]).filter(([, v]) => v > 0);
    const most = Math.max(...runs.map((r) => Math.max(sum(r.state.latest.memory), sum(r.state.latest.planned)))) || 1, one = data.runs.length === 1;
    for (const r of runs) {
      const {memory, planned} = r.state.latest, limit = r.about?.memory_limit_bytes;
      if (!one) named(r, element('p', undefined, figure, 'who'));
      stack('held', parts(memory), most, figure);
      if (planned) stack('planned', parts(planned), most, figure);
      if (limit) stack('limit', parts(memory), limit, figure, `≤ ${percent(sum(memory) / limit)} of ${held(limit)}`);
    }
    const t = wide(figure, 'Memory by purpose, as numbers'), held1 = (of, n) => of ? held(of[n] ?? 0) : '–', l = (r) => r.state.latest;
    table(t, ['purpose', ...(one ? ['held', 'planned'] : runs.map((r) => r.name))], names.map((n) => [n, ...(one ? [held1(l(runs[0]).memory, n), held1(l(runs[0]).planned, n)] : runs.map((r) => held1(l(r).memory, n)))]));
    t.querySelectorAll('tbody th').forEach((th, i) => th.prepend(swatch(th, 'run' + i % colours)));
    element('p', 'Most held so far for each purpose on the last rank; the peaks of two purposes need not be at the same time, so the sum (≤) may exceed the peak of all memory.', figure, 'note');
  },
};

const slow = 0.7; // below this score a rank counts as a straggler (docs/logging.md)

const ranks = {
  of: (r) => [r.state.latest.ranks, r.state.latest.scores, r.state.latest.own_scores],
  head: ['rank', 'seconds', 'score', 'own score'],
  rows: (r) => { const l = r.state.latest; return l.ranks.map((v, i) => [i, v, l.scores?.[i] ?? '', l.own_scores?.[i] ?? '']); },
  draw: (r, figure) => {
    const scored = !!r.state.latest.scores, say = (v) => scored ? [v.toFixed(2) + (v < slow ? ' slow' : '')] : [];
    const rows = ranks.rows(r).map(([i, v, score, own]) => [`rank ${i}`, v, `${short(1000 * v)} ms`, ...say(score), ...say(own)]);
    const shown = rows.length <= 32 ? rows : rows.sort((a, b) => b[1] - a[1]).slice(0, 32);
    bars(['', 'work', ...(scored ? ['score', 'own score'] : [])], shown, wide(figure, 'Ranks'), runColour(data.runs.indexOf(r)));
    if (rows.length > 32) element('p', `The 32 slowest of ${rows.length} ranks.`, figure, 'note');
    if (scored) element('p', `Score: 1 is as fast as the fastest rank of the same stage, own score: as the rank itself at its best; 0.5 takes twice as long. Below ${slow} a rank is slow.`, figure, 'note');
  },
};

// experts are a map: a row a layer, a column an expert, with the mean of each column and the fullest of each row.
const experts = {
  head: ['layer', 'expert', 'times an even part'],
  rows: (r) => Object.entries(r.state.latest.experts).flatMap(([n, shares]) => shares.map((v, i) => [Number(n), i, v])),
  of: (r) => r.state.latest.experts,
  draw: (r, figure) => {
    const layers = Object.entries(r.state.latest.experts), width = Math.max(...layers.map(([, s]) => s.length));
    const size = Math.max(3, Math.min(34, Math.floor((figure.clientWidth - 130) / width))), height = Math.max(14, Math.min(22, size));
    const all = layers.flatMap(([n, s]) => s.map((v, i) => ({n, i, v}))), most = all.reduce((a, b) => b.v > a.v ? b : a), least = all.reduce((a, b) => b.v < a.v ? b : a);
    const text = `Fullest: layer ${most.n}, expert ${most.i}, ${most.v} times an even part. Emptiest: layer ${least.n}, expert ${least.i}, ${least.v} times.`;
    const means = Array.from({length: width}, (_, i) => { const has = layers.map(([, s]) => s[i]).filter(known); return has.reduce((a, b) => a + b, 0) / has.length; });
    const picture = svg('svg', {class: 'figure', width: 104 + width * size, height: (layers.length + 1) * height + 20, role: 'img', 'aria-label': text}, wide(figure, 'Map of the experts'));
    const said = element('output', text, figure), write = (x, y, words, end) => { svg('text', {x, y, class: 'tick', ...(end ? {'text-anchor': 'end'} : {})}, picture).textContent = words; };
    const row = (name, shares, y, what) => {
      write(0, y + height - 4, name);
      shares.forEach((v, i) => {
        const box = svg('rect', {x: 52 + i * size, y, width: size - (size > 5 ? 1 : 0), height: height - 1, fill: heat(v)}, picture), words = `${what}, expert ${i}: ${short(v)} times an even part`;
        svg('title', {}, box).textContent = words;
        box.addEventListener('mouseenter', () => { said.textContent = words; });
        if (size >= 30) svg('text', {x: 52 + i * size + (size - 1) / 2, y: y + height - 4, class: 'cell', 'text-anchor': 'middle'}, picture).textContent = v.toFixed(2);
      });
      write(58 + width * size, y + height - 4, short(Math.max(...shares)));
    };
    write(52, 11, width === 1 ? 'expert 0' : `experts 0 to ${width - 1}`);
    write(58 + width * size, 11, 'most');
    layers.forEach(([n, shares], k) => row(`layer ${n}`, shares, 16 + k * height, `layer ${n}`));
    row('mean', means, 20 + layers.length * height, 'mean of the layers');
    element('p', 'Times an even part. Blue: fewer tokens than that, red: more.', figure, 'note');
  },
};

// heat is blue below an even part, red above, the stronger the further.
function heat(v) {
  const far = Math.min(1, Math.abs(Math.log2(Math.max(v, 1e-3))) / 2);
  return v < 1 ? `hsl(215 70% ${92 - 30 * far}%)` : `hsl(8 75% ${92 - 32 * far}%)`;
}

const kinds = [['forward', 'run0'], ['backward', 'run1'], ['optimizer', 'run2'], ['send', 'run4'], ['recv', 'run4'], ['all-reduce', 'run3'], ['sync', 'run3'], ['gather', 'run3'], ['batch', 'run5']];

// lanes are what each rank did when, of one step of a trace.
const lanes = {
  head: ['rank', 'what', 'start ms', 'takes ms'],
  rows: (r) => r.lanes.ranks.flatMap((lane) => lane.boxes.map((b) => [lane.rank, b.name, b.start, b.takes])),
  of: (r) => r.lanes,
  draw: (r, figure) => {
    const {file, step, ranks} = r.lanes, width = Math.max(280, figure.clientWidth - 26), high = 24;
    const end = ranks.reduce((a, l) => l.boxes.reduce((b, x) => Math.max(b, x.start + x.takes), a), 0) || 1, wide = width - 54;
    const picture = svg('svg', {class: 'figure', width, height: ranks.length * high + 18, role: 'img', 'aria-label': `What ${ranks.length} ranks did in ${step}, ${short(end)} ms`}, figure);
    const said = element('output', 'Point at a box to read it.', figure);
    ranks.forEach((lane, row) => {
      svg('text', {x: 0, y: row * high + 16, class: 'tick'}, picture).textContent = `rank ${lane.rank}`;
      for (const b of lane.boxes) {
        const kind = kinds.find(([k]) => b.name.includes(k)), outer = b.name === 'forward-backward';
        const box = svg('rect', {x: 52 + wide * b.start / end, y: row * high + (outer ? 1 : 4), width: Math.max(0.5, wide * b.takes / end), height: outer ? high - 2 : high - 8, class: 'lane'}, picture);
        box.style.fill = outer ? 'var(--rule)' : `var(--${kind ? kind[1] : 'checkpoint'})`;
        const words = `rank ${lane.rank}, ${b.name}: ${short(b.takes)} ms, from ${short(b.start)} to ${short(b.start + b.takes)} ms`;
        svg('title', {}, box).textContent = words;
        box.addEventListener('mouseenter', () => { said.textContent = words; });
      }
    });
    for (const at of ticks(0, end, width > 600 ? 10 : 5)) svg('text', {x: 52 + wide * at / end, y: ranks.length * high + 14, class: 'tick', 'text-anchor': at ? (at > 0.97 * end ? 'end' : 'middle') : 'start'}, picture).textContent = `${short(at)} ms`;
    const key = element('p', undefined, figure, 'note key');
    for (const [name, at] of [['forward', 'run0'], ['backward', 'run1'], ['optimizer', 'run2'], ['between stages', 'run4'], ['gradients, parameters', 'run3'], ['batch', 'run5']]) {
      const one = element('span', undefined, key);
      swatch(one, at);
      element('span', name, one);
    }
    element('p', `${step}, of ${file}.`, figure, 'note');
  },
};

let shownAt = null; // step whose texts are shown; null: the newest

// samples are texts by prompt: those of all runs next to each other, or of one run at two steps.
const samples = {
  head: ['step', 'prompt', 'text'],
  rows: (r) => r.state.written.map((w) => [w.iteration, w.prompt, w.text]),
  of: (r) => [r.state.written, shownAt],
  together: (runs, figure) => {
    const all = [...new Set(runs.flatMap((r) => r.state.written.map((w) => w.iteration)))].sort((a, b) => a - b), at = all.includes(shownAt) ? shownAt : last(all);
    if (all.length > 1) {
      const label = element('label', 'At step ', figure.firstChild), choose = element('select', undefined, label);
      for (const i of all) element('option', String(i), choose).selected = i === at;
      choose.addEventListener('change', () => { shownAt = Number(choose.value); details(); $('samples').querySelector('select').focus(); });
    }
    for (const prompt of new Set(runs.flatMap((r) => r.state.written.map((w) => w.prompt)))) {
      element('h3', prompt, figure);
      const row = element('div', undefined, figure, 'texts');
      for (const r of runs) {
        const found = r.state.written.filter((w) => w.prompt === prompt && w.iteration <= at), shown = runs.length > 1 ? [last(found)] : [...new Set([last(found), found[0]])];
        for (const w of shown.filter(Boolean)) {
          const box = element('div', undefined, row), head = element('p', undefined, box, 'who');
          if (data.runs.length > 1) named(r, head);
          element('span', `step ${w.iteration}`, head, 'unit');
          const pre = element('pre', undefined, box);
          if (w.text.startsWith(prompt)) element('b', prompt, pre);
          pre.append(w.text.startsWith(prompt) ? w.text.slice(prompt.length) : w.text);
        }
      }
    }
  },
};

function details() {
  const shown = data.runs.filter((_, i) => !hidden.has(i));
  detail('memory-by-purpose', 'Memory by purpose', shown.filter((r) => r.state.latest.memory), memory);
  detail('rank-spread', "Each rank's own work, a step", shown.filter((r) => r.state.latest.ranks?.length > 1), ranks);
  detail('expert-balance', "Experts' shares of the tokens", shown.filter((r) => r.state.latest.experts), experts);
  detail('lanes', 'One step, rank by rank', shown.filter((r) => r.lanes), lanes);
  detail('samples', 'Texts written at evaluations', shown.filter((r) => r.state.written.length), samples);
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
