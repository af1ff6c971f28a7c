'use strict';
// What all of the page's scripts share: numbers, the state of the page. Elements are of internal/web/shared.js.
// Text from outside goes through textContent alone.

const colours = 6;
const hidden = new Set(); // numbers of runs that are not drawn
let data; // pageData of page.go
let source; // of events; undefined: the data is inlined

const svg = (name, attributes, parent) => {
  const e = document.createElementNS('http://www.w3.org/2000/svg', name);
  for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
  if (parent) parent.append(e);
  return e;
};

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

// wide is a place that scrolls sideways, also by the keyboard.
function wide(parent, name) {
  const box = element('div', undefined, parent, 'wide');
  box.tabIndex = 0;
  box.setAttribute('role', 'region');
  box.setAttribute('aria-label', name);
  return box;
}

// swatch is the colour of something, as a short line.
function swatch(parent, name) {
  const s = element('i', undefined, parent, 'swatch');
  s.style.background = `var(--${name})`;
  return s;
}

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue('--' + name).trim();
const runColour = (i) => 'run' + i % colours;
const column = (columns, name) => columns[data.fields.indexOf(name)];
const last = (list) => list[list.length - 1];
const known = (v) => v !== null && v !== undefined && isFinite(v);
const lastKnown = (list) => { for (let i = list.length - 1; i >= 0; i--) if (known(list[i])) return list[i]; return null; };
const percent = (v) => (100 * v).toFixed(v < 0.1 ? 1 : 0) + '%';
const plural = (n, word) => `${n} ${word}${n === 1 ? '' : 's'}`;

function short(v) {
  if (!known(v)) return '–';
  const a = Math.abs(v);
  if (a >= 1e12) return (v / 1e12).toPrecision(3) + 'T';
  if (a >= 1e9) return (v / 1e9).toPrecision(3) + 'B';
  if (a >= 1e6) return (v / 1e6).toPrecision(3) + 'M';
  if (a >= 1e4) return (v / 1e3).toPrecision(3) + 'k';
  if (a !== 0 && a < 1e-3) return v.toExponential(2);
  return String(Number(v.toPrecision(4)));
}

// held is an amount of memory in the unit that leaves it at least 1.
function held(bytes) {
  const unit = bytes < 1 ? 0 : Math.min(4, Math.floor(Math.log2(bytes) / 10));
  return `${Number((bytes / 1024 ** unit).toPrecision(3))} ${['B', 'KiB', 'MiB', 'GiB', 'TiB'][unit]}`;
}

function span(seconds) {
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${(seconds / 3600).toFixed(1)} h`;
  return `${(seconds / 86400).toFixed(1)} days`;
}

function median(values) {
  const sorted = values.filter((v) => v !== null).sort((a, b) => a - b);
  return sorted.length ? sorted[sorted.length >> 1] : null;
}

// steps are nice distances between ticks, in rising order, for a range that wide.
function* steps(range) {
  for (let e = Math.floor(Math.log10(range)) - 2; ; e++) for (const m of [1, 2, 2.5, 5]) yield m * 10 ** e;
}

// ticks are at most `most` round places between two numbers, and no fewer than half as many; of whole numbers fewer where there are none.
function ticks(low, high, most, whole) {
  if (!(high > low)) return [low];
  for (const step of steps(high - low)) {
    if (whole && !Number.isInteger(step)) continue;
    const first = Math.ceil(low / step - 1e-9), n = Math.floor(high / step + 1e-9) - first + 1;
    if (n <= most) return Array.from({length: n}, (_, i) => Number(((first + i) * step).toPrecision(12)));
  }
}

// tens are round places of a logarithmic axis: 1, 2 and 5 times powers of ten, or of a narrow one those of ticks.
function tens(low, high, most) {
  if (!(low > 0) || high < 10 * low) return ticks(low, high, most);
  const first = Math.floor(Math.log10(low)), count = Math.ceil(Math.log10(high)) - first + 1, all = [];
  for (let e = first, by = Math.max(1, Math.ceil(count / most)); e < first + count; e += by) {
    for (const m of 3 * count <= most + 4 ? [1, 2, 5] : [1]) all.push(Number(`${m}e${e}`));
  }
  return all.filter((v) => v >= low * (1 - 1e-9) && v <= high * (1 + 1e-9));
}

// labels write numbers of one axis alike: one unit, one count of digits.
function labels(list) {
  const most = list.reduce((a, v) => Math.max(a, Math.abs(v)), 0);
  if (!most) return list.map(String);
  const [unit, name] = most >= 1e12 ? [1e12, 'T'] : most >= 1e9 ? [1e9, 'B'] : most >= 1e6 ? [1e6, 'M'] : most >= 1e4 ? [1e3, 'k'] : [1, ''];
  const power = most < 1e-3 ? Math.floor(Math.log10(most) + 1e-9) : 0, scaled = list.map((v) => v / unit / 10 ** power);
  let digits = 0;
  while (digits < 6 && scaled.some((v) => Math.abs(v - Number(v.toFixed(digits))) > 1e-6 * Math.max(1, Math.abs(v)))) digits++;
  return scaled.map((v, i) => list[i] === 0 ? '0' : v.toFixed(digits) + name + (power ? 'e' + power : ''));
}

// powers are the labels of places that are far apart.
const powers = (list) => list.some((v) => v < 1e-3) ? list.map((v) => v.toExponential()) : list.map(short);

// before sums, for each place, the values left of it, weighed by s a step: weights, weights by distance and by its square, values,
// values by distance.
function before(values, s, backwards) {
  const n = values.length, sums = Array.from({length: 5}, () => new Float64Array(n));
  let w0 = 0, w1 = 0, w2 = 0, y0 = 0, y1 = 0;
  for (let k = 0; k < n; k++) {
    const i = backwards ? n - 1 - k : k, v = values[i];
    [w2, w1, w0, y1, y0] = [s * (w2 + 2 * w1 + w0), s * (w1 + w0), s * w0, s * (y1 + y0), s * y0];
    [w0, w1, w2, y0, y1].forEach((sum, j) => { sums[j][i] = sum; });
    if (known(v)) { w0++; y0 += v; }
  }
  return sums;
}

// smoothed fits a line through the neighbors of each value, which count the less the further away they are (s a step). So it lags
// at neither end, what rises evenly stays as it is, and nothing lies outside of all the values.
function smoothed(values, s) {
  const l = before(values, s, false), r = before(values, s, true);
  let low = Infinity, high = -Infinity;
  for (const v of values) if (known(v)) { low = Math.min(low, v); high = Math.max(high, v); }
  return values.map((v, i) => {
    if (!known(v)) return null;
    const w0 = l[0][i] + r[0][i] + 1, w1 = r[1][i] - l[1][i], w2 = l[2][i] + r[2][i], y0 = l[3][i] + r[3][i] + v, y1 = r[4][i] - l[4][i];
    const whole = w0 * w2 - w1 * w1;
    return Math.min(high, Math.max(low, whole > 1e-9 * w0 * w0 ? (w2 * y0 - w1 * y1) / whole : y0 / w0));
  });
}

// save hands the reader a file.
function save(name, blob) {
  const link = element('a');
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}
