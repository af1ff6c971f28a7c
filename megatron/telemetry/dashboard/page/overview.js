'use strict';
// What a reader wants to know first: how the run is, what it is, what needs attention.

// going tells whether a run has made a step a short while ago.
function going(r) {
  const seen = last(column(r.steps, 'time')), now = source ? Date.now() / 1000 : data.written;
  return seen !== undefined && now - seen < Math.max(60, 20 * (median(column(r.steps, 'seconds')) ?? 0));
}

// status is a run's condition, as a word.
function status(r) {
  const s = r.state.summary, {ended} = r.state, verdict = r.state.marks.filter((m) => m.kind === 'verdict').pop();
  if (verdict && verdict.iteration >= s.step) return 'failed';
  if (s.train_iters && s.step >= s.train_iters) return 'done';
  if (ended) return ended.code ? 'stopped' : 'done';
  const ongoing = source && r.ongoing && connected;
  if (!r.steps[0].length) return ongoing ? 'starting' : source ? 'waiting' : 'no step';
  return going(r) ? 'running' : ongoing ? 'stalled' : 'stopped';
}

function pill(r, parent) {
  const word = status(r);
  return element('span', word, parent, 'pill ' + word.replace(' ', '-'));
}

// quiet says how long a run that should train has made no step.
function quiet(r) {
  const seen = last(column(r.steps, 'time')), usual = median(column(r.steps, 'seconds'));
  return `no step for ${span(Date.now() / 1000 - seen)}${usual === null ? '' : `, usually one takes ${usual < 1 ? `${short(Number((1000 * usual).toPrecision(2)))} ms` : span(usual)}`}`;
}

// header is the name and the condition.
function header() {
  const one = data.runs.length === 1, name = one ? data.runs[0].name : `${data.runs.length} runs: ${data.runs.map((r) => r.name).join(', ')}`;
  document.title = (one ? name : data.runs.map((r) => r.name).join(', ')) + ' – monotron';
  document.querySelector('h1').textContent = name;
  document.body.classList.toggle('one', one && data.runs[0].steps[0].length > 0); // else there is nothing beside which to put what the run is
  $('status').replaceChildren();
  if (!one) return;
  pill(data.runs[0], $('status'));
}

// courses show how far each run is, and when it will end.
function courses() {
  const box = $('courses');
  box.replaceChildren();
  for (const r of data.runs) {
    const s = r.state.summary;
    if (!s.train_iters || s.left_seconds === null) continue;
    const seen = last(column(r.steps, 'time'));
    let text = `step ${s.step.toLocaleString('en')} of ${s.train_iters.toLocaleString('en')}`;
    if (s.step >= s.train_iters) text += ', done';
    else if (r.state.ended) text += `; ${r.state.ended.text || 'done'}`;
    else if (going(r)) text += `, ${span(s.left_seconds)} left, until about ${new Date(1000 * (seen + s.left_seconds)).toLocaleString([], {weekday: 'short', hour: '2-digit', minute: '2-digit'})}`;
    else if (status(r) === 'stalled') text += `; ${quiet(r)}`;
    else text += `; at its pace ${span(s.left_seconds)} were left`;
    if (s.whole_cost !== null) text += `; cost ${short(s.cost)} so far, ${short(s.whole_cost)} in all`;
    const label = element('label', undefined, box);
    if (data.runs.length > 1) element('span', r.name, label, 'who');
    const bar = element('progress', undefined, label);
    bar.max = s.train_iters;
    bar.value = s.step;
    bar.style.accentColor = `var(--${runColour(data.runs.indexOf(r))})`;
    element('span', text, label);
  }
}

// tiles are the big numbers of a single run.
function tiles() {
  const box = $('tiles'), [r] = data.runs, s = r.state.summary, l = r.state.latest;
  box.replaceChildren();
  box.hidden = data.runs.length > 1;
  if (box.hidden) return;
  if (!r.steps[0].length) {
    element('p', source ? 'No step has ended yet. Numbers and charts appear with the first.' : 'No step ended: there is nothing to draw.', box, 'tile nothing');
    return;
  }
  const tile = (name, big, small) => {
    const t = element('div', undefined, box, 'tile');
    element('span', name, t, 'name');
    element('b', big, t);
    element('span', small, t, 'small');
  };
  const usual = `median of ${Math.min(1000, r.steps[0].length + r.thinned)} steps`;
  if (s.validation !== null) tile('Validation loss', short(s.validation), s.best < s.validation ? `best ${short(s.best)} at step ${s.best_step}` : 'the best so far');
  if (s.bits_per_byte !== null) tile('Bits per byte', short(s.bits_per_byte), 'in validation');
  tile('Training loss', short(lastKnown(smoothed(column(r.steps, 'loss'), 0.8))), `last step ${short(s.loss)}`);
  tile('Tokens', short(s.tokens), s.train_iters > s.step && s.step ? `of about ${short(s.tokens / s.step * s.train_iters)}` : 'trained on');
  tile('Tokens a second', short(s.tokens_per_second), usual);
  if (s.mfu !== null) tile('MFU', percent(s.mfu), usual);
  if (s.left_seconds !== null && s.step < s.train_iters && status(r) === 'running') tile('Time left', span(s.left_seconds), `${span(3600 * s.hours)} so far`);
  else if (s.hours !== null) tile('Time', span(3600 * s.hours), 'first to last step');
  const memory = lastKnown(column(r.steps, 'memory_bytes')), limit = r.about?.memory_limit_bytes;
  if (memory !== null) tile('Memory', held(memory), limit ? `of ${held(limit)} a rank` : 'on the last rank');
}

// facts are the model, data, layout and so on of one run, its command, its flags, its notes.
function facts() {
  const box = $('about');
  box.replaceChildren();
  for (const r of data.runs) {
    const a = r.about, d = data.runs.length > 1 ? element('details', undefined, box) : box;
    if (d !== box) element('summary', r.name, d);
    notes(r, element('div', undefined, d, 'written'));
    if (a) about(a, d);
    const flags = a?.flags ?? [];
    if (flags.length) {
      const f = element('details', undefined, d);
      element('summary', `${flags.length} flags differ from their defaults`, f);
      table(wide(f, 'Flags'), ['flag', 'value', 'default'], flags.map((x) => ['--' + x.name, x.value, x.default || '(none)']));
    }
  }
  $('about-title').hidden = box.hidden = !data.runs.some((r) => r.about || r.state.notes || data.writable);
}

// notes are what somebody wrote about a run. Where the page's server keeps them, they can be changed here.
function notes(r, box) {
  if (box.querySelector('textarea')) return; // somebody is writing
  box.replaceChildren();
  if (r.state.notes) element('p', r.state.notes, box, 'notes');
  if (data.writable) button(r.state.notes ? 'Edit notes' : 'Write notes', box, () => write(data.runs.indexOf(r), box));
}

// write lets the reader change the notes of the run of that number.
function write(number, box) {
  box.replaceChildren();
  const label = element('label', 'Notes', box), area = element('textarea', undefined, label), row = element('div', undefined, box, 'row');
  area.value = data.runs[number].state.notes;
  area.rows = 6;
  const end = () => { box.replaceChildren(); notes(data.runs[number], box); box.querySelector('button').focus(); };
  button('Save', row, async () => {
    try {
      const reply = await fetch('notes?run=' + number, {method: 'PUT', body: area.value});
      if (!reply.ok) throw new Error(await reply.text());
      data.runs[number].state.notes = area.value.trim();
      end();
    } catch (e) {
      said.textContent = 'Not saved: ' + (e instanceof TypeError ? 'no connection' : e.message);
    }
  });
  button('Cancel', row, end);
  const said = element('span', '', row, 'unit');
  said.setAttribute('role', 'status');
  area.addEventListener('keydown', (e) => { if (e.key === 'Escape') end(); });
  area.focus();
}

function about(a, parent) {
  const list = element('dl', undefined, parent);
  for (const {label, text} of [...a.facts ?? [], {label: 'started', text: new Date(a.started).toLocaleString()}]) {
    const pair = element('div', undefined, list);
    element('dt', label, pair);
    element('dd', text, pair);
  }
  if (!a.command?.length) return;
  const command = a.command.map(quoted).join(' '), line = element('div', undefined, parent, 'command');
  element('code', command, line).tabIndex = 0; // it scrolls
  button('Copy command', line, (e) => copy(command, e.target));
}

// quoted is a word as a POSIX shell takes it.
const quoted = (word) => /^[\w@%+=:,./-]+$/.test(word) ? word : "'" + word.replaceAll("'", "'\\''") + "'";

let sorting = {by: 0, down: false};

// columnsOfRuns are the columns of the table of several runs: name, value to sort by, text.
function columnsOfRuns() {
  const s = (r) => r.state.summary, number = (name, of, say = short) => ({name, of, say: (r) => known(of(r)) ? say(of(r)) : '–'});
  const flags = data.differences.map((d) => {
    const of = (r) => { const v = d.values[data.runs.indexOf(r)]; return v !== '' && isFinite(v) ? Number(v) : v; };
    return {name: '--' + d.flag, of, say: (r) => d.values[data.runs.indexOf(r)], flag: !d.where};
  });
  return [{name: 'run', of: (r) => r.name}, ...flags.filter((f) => f.flag), {name: 'status', of: status},
    number('step', (r) => s(r).step, (v) => v.toLocaleString('en')), number('loss', (r) => s(r).loss), number('validation', (r) => s(r).validation), number('best', (r) => s(r).best),
    number('bits per byte', (r) => s(r).bits_per_byte), number('tokens', (r) => s(r).tokens), number('tokens/s', (r) => s(r).tokens_per_second), number('MFU', (r) => s(r).mfu, percent),
    number('time', (r) => s(r).hours, (v) => span(3600 * v)), number('cost', (r) => s(r).cost), ...flags.filter((f) => !f.flag)].filter((c) => !c.say || data.runs.some((r) => c.say(r) !== '–'));
}

// summary is the table of several runs, flags that differ first.
function summary() {
  const box = $('summary');
  box.replaceChildren();
  $('summary-title').hidden = data.runs.length < 2;
  if (data.runs.length > 1) runsTable(box);
  for (const r of data.runs) {
    const s = r.state.summary;
    const said = [r.note, s.torn ? `${plural(s.torn, 'torn line')} skipped` : '', s.replaced ? `${plural(s.replaced, 'line')} replaced by training again` : '',
      r.thinned ? `of ${r.thinned + r.steps[0].length} steps the ${r.steps[0].length} that stand out are here; report --format csv has all` : ''].filter(Boolean);
    if (said.length) element('p', `${data.runs.length > 1 ? r.name + ': ' : ''}${said.join('; ')}.`, box, 'note');
  }
}

function runsTable(box) {
  const columns = columnsOfRuns(), t = element('table', undefined, wide(box, 'Runs')), top = element('tr', undefined, element('thead', undefined, t)), body = element('tbody', undefined, t);
  columns.forEach((c, i) => {
    const th = element('th', undefined, top, c.flag ? 'flag' : '');
    th.scope = 'col';
    const sorted = sorting.by === i;
    th.setAttribute('aria-sort', sorted ? (sorting.down ? 'descending' : 'ascending') : 'none');
    button(c.name + (sorted ? (sorting.down ? ' ↓' : ' ↑') : ''), th, () => { sorting = {by: i, down: sorting.by === i && !sorting.down}; summary(); }, 'sort');
  });
  const of = columns[sorting.by]?.of ?? columns[0].of, compare = (a, b) => known(a) && known(b) ? a - b : known(a) - known(b) || String(a).localeCompare(String(b));
  const runs = sorting.by === 0 && !sorting.down ? data.runs : [...data.runs].sort((a, b) => (sorting.down ? -1 : 1) * compare(of(a), of(b)));
  for (const r of runs) {
    const tr = element('tr', undefined, body);
    columns.forEach((c, i) => {
      const cell = element(i ? 'td' : 'th', undefined, tr, c.flag ? 'flag' : '');
      if (!i) { cell.scope = 'row'; swatch(cell, runColour(data.runs.indexOf(r))); }
      if (c.name === 'status') pill(r, cell); else cell.append(c.say ? c.say(r) : r.name);
    });
  }
  if (!data.differences.some((d) => !d.where)) element('p', 'No flag differs, of those that are known.', box, 'note');
}

// placesOfAlerts are the panels that an alert is about.
const placesOfAlerts = {gradient_norm: 'gradient-norm', data_wait: 'data-wait', slow_rank: 'ranks', uneven_expert: 'experts'};

// jump shows a step in all charts, and the panel that it is about.
function jump(run, mark) {
  const x = placeOf(run, mark.iteration), made = drawn.get(placesOfAlerts[mark.about]);
  const panel = made && !made.figure.hidden ? made : drawn.get('loss');
  if (!panel || x === null) return;
  if (zoom && (x < zoom[0] || x > zoom[1])) zoomTo(null);
  panel.figure.scrollIntoView({block: 'center'});
  panel.plot.focus({preventScroll: true});
  point(x, null);
}

// alerts are what needs attention; each leads to its step.
function alerts() {
  const all = data.runs.flatMap((run) => run.state.marks.filter((m) => m.kind === 'alert' || m.kind === 'verdict').map((mark) => ({run, mark}))), box = $('alerts');
  const open = box.querySelector('details')?.open;
  box.replaceChildren();
  $('alerts-title').hidden = !all.length;
  $('alerts-title').textContent = plural(all.length, 'alert');
  const item = ({run, mark}, list) => {
    const b = button('', element('li', undefined, list), () => jump(run, mark));
    swatch(b, mark.kind);
    element('span', `step ${mark.iteration}`, b, 'where');
    element('span', (data.runs.length > 1 ? run.name + ': ' : '') + mark.text, b);
  };
  const newest = all.slice(-4).reverse(), rest = all.slice(0, -4).reverse().slice(0, 200), list = element('ol', undefined, box);
  newest.forEach((a) => item(a, list));
  if (!rest.length) return;
  const d = element('details', undefined, box);
  d.open = !!open;
  element('summary', `${rest.length} earlier`, d);
  const more = element('ol', undefined, d);
  rest.forEach((a) => item(a, more));
}
