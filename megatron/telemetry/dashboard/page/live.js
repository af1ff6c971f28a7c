'use strict';
// The page begins, and follows its run: its data is inlined, or comes from /data and then /events.

let rows = 0; // that came by events since all was asked for
let connected = false;

function chooseRuns() {
  const box = $('runs');
  box.replaceChildren(box.firstElementChild);
  box.hidden = data.runs.length < 2;
  data.runs.forEach((run, i) => {
    const label = element('label', undefined, box), tick = element('input', undefined, label);
    tick.type = 'checkbox';
    tick.checked = !hidden.has(i);
    tick.addEventListener('change', () => { tick.checked ? hidden.delete(i) : hidden.add(i); draw(true); details(); remember(); });
    swatch(label, runColour(i));
    element('span', run.name, label);
  });
}

function tell() {
  header();
  courses();
  tiles();
  summary();
  alerts();
  document.querySelectorAll('#about .written').forEach((box, i) => notes(data.runs[i], box));
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
  source.onopen = () => { connected = true; $('state').textContent = 'Live: new steps appear by themselves.'; };
  source.onerror = () => {
    connected = false;
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
  const panel = recall();
  chooseRuns();
  if (!inlined) listen();
  if (!$('about').querySelector('textarea')) facts(); // else somebody writes notes there
  tell();
  draw(true);
  if (panel) setTimeout(() => $(panel)?.scrollIntoView({block: 'center'}));
  document.body.dataset.ready = 'yes';
}

for (const id of ['x', 'smoothing', 'log', 'all']) {
  $(id).addEventListener('input', () => { if (id === 'x') zoom = null; draw(true); $('reset').hidden = !zoom; remember(); });
}
$('reset').addEventListener('click', () => zoomTo(null));
$('controls').addEventListener('submit', (e) => e.preventDefault());
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => draw(true));
setInterval(() => { if (source) { header(); courses(); } }, 5000); // a run that stands still sends nothing
let width = innerWidth;
addEventListener('resize', () => { if (innerWidth !== width) { width = innerWidth; draw(true); details(); } });
begin();
