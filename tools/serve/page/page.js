'use strict';
// The chat page: a conversation with this server's model, or a text that it continues.

const kept = ['way', 'system', 'temperature', 'top_p', 'top_k', 'min_p', 'repetition_penalty', 'seed', 'tokens'];
const preset = Object.fromEntries(kept.map((id) => [id, $(id).value]));
let turns = []; // {role, content, element}; in the way "continue" one of {role: 'text', content}
let forgotten = 0; // turns at the beginning that are not sent any more
let props = {}; // what the server says of its model
let control = null; // of the answer under way

const chatting = () => $('way').value === 'chat';
const headers = () => ({'Content-Type': 'application/json', ...($('key').value ? {Authorization: 'Bearer ' + $('key').value} : {})});

// call asks the server; what it refuses is an error with its message and code.
async function call(path, body, signal) {
  const r = await fetch(path, {method: body ? 'POST' : 'GET', headers: headers(), body: body && JSON.stringify(body), signal});
  if (r.ok) return r;
  const {error} = await r.json().catch(() => ({error: {message: `the server answers with status ${r.status}`}}));
  throw Object.assign(new Error(error.message), {code: error.code, status: r.status});
}

function short(n) {
  for (const [size, unit] of [[1e12, 'T'], [1e9, 'B'], [1e6, 'M'], [1e3, 'k']]) if (n >= size) return Number((n / size).toPrecision(3)) + unit;
  return String(n);
}

// meet asks what the model is, until it is loaded.
async function meet() {
  try {
    props = await (await call('props')).json();
  } catch (e) {
    $('hello').textContent = e.status === 401 ? 'This server needs a key' : e.status === 503 ? 'Loading the model' : 'No connection to the server';
    $('hint').textContent = e.status === 401 ? 'Give the API key in the settings.' : '';
    if (e.status === 401) drawer(true, 'key'); else setTimeout(meet, 1000);
    return;
  }
  $('model').textContent = props.model;
  document.title = props.model + ' – monotron';
  $('which').hidden = props.models.length < 2;
  $('name').replaceChildren(...props.models.map((name) => element('option', name)));
  if (!props.chat) {
    $('way').querySelector('[value=chat]').disabled = true;
    $('way').value = 'text';
  }
  welcome();
}

// welcome says what the model is, and shows how to begin.
function welcome() {
  const chat = chatting();
  $('hello').textContent = chat ? `Chat with ${props.model}` : `${props.model} continues a text`;
  const facts = [['parameters', short(props.parameters)], ['shape', `${props.layers} layers, hidden size ${props.hidden_size}`], ['context', props.context ? `${props.context.toLocaleString('en')} tokens` : 'no limit'],
    ['vocabulary', `${props.vocabulary.toLocaleString('en')} tokens`], ['weights', props.weights]].filter(([, v]) => v);
  $('facts').replaceChildren(...facts.flatMap(([name, value]) => [element('dt', name), element('dd', value)]));
  $('hint').textContent = chat ? 'Answers may be wrong: check what matters.' : props.chat ? '' : 'This model has no chat template: it was trained to continue texts, not to answer.';
  $('examples').replaceChildren(...props.examples[chat ? 'chat' : 'text'].map((text) => {
    const b = element('button', text);
    b.type = 'button';
    b.addEventListener('click', () => ask(text));
    return b;
  }));
  $('system').parentElement.hidden = !chat;
  $('text').placeholder = chat ? 'Write a message' : 'Begin a text';
  $('welcome').hidden = turns.length > 0;
}

function add(kind, name) {
  const e = element('article', undefined, $('turns'), 'turn ' + kind);
  e.setAttribute('aria-label', name);
  const body = element('div', undefined, e, 'body');
  element('div', undefined, e, 'tools');
  return {e, body};
}

const note = (text, kind) => element('p', text, $('turns'), kind ?? 'note').scrollIntoView({block: 'end'});

// paint shows a turn's text: what a person wrote as it is, a model's as Markdown.
function paint(turn) {
  const {body} = turn.element;
  if (turn.role === 'assistant') return markdown(turn.content, body);
  body.textContent = '';
  body.classList.add('plain');
  if (turn.given) element('b', turn.given, body);
  body.append(turn.content.slice((turn.given ?? '').length));
}

function tool(turn, name, press, label) {
  const b = element('button', name, turn.element.e.querySelector('.tools'));
  b.type = 'button';
  if (label) b.setAttribute('aria-label', label);
  b.addEventListener('click', () => press(b));
}

// tools are what one can do with a turn.
function tools(turn) {
  const box = turn.element.e.querySelector('.tools');
  box.replaceChildren();
  tool(turn, 'Copy', (b) => copy(turn.content, b));
  if (turn.role === 'user') tool(turn, 'Edit', () => edit(turn));
  if (turn.role === 'assistant') tool(turn, 'Regenerate', () => again(turn));
  if (turn.role === 'text') {
    tool(turn, 'Regenerate', () => { if (!control) { turn.content = turn.given; proceed(turn); } });
    tool(turn, 'Continue', () => { if (!control) { turn.given = turn.content; proceed(turn); } });
  }
  if (turn.speed) element('span', turn.speed, box);
}

// cut removes a turn and those behind it.
function cut(turn) {
  const at = turns.indexOf(turn);
  for (let e = turn.element.e, next; e; e = next) { next = e.nextElementSibling; e.remove(); }
  turns = turns.slice(0, at);
  forgotten = Math.min(forgotten, at);
}

function edit(turn) {
  if (control) return;
  $('text').value = turn.content;
  cut(turn);
  welcome();
  grow();
  $('text').focus();
}

function again(turn) {
  if (control) return;
  cut(turn);
  answer();
}

const system = () => $('system').value.trim() ? [{role: 'system', content: $('system').value}] : [];
const plain = (list) => list.map(({role, content}) => ({role, content}));

function ask(text) {
  if (control) return;
  if (chatting()) {
    const turn = {role: 'user', content: text, element: add('user', 'You')};
    turns.push(turn);
    paint(turn);
    tools(turn);
    answer();
    return;
  }
  const turn = {role: 'text', content: text, given: text, element: add('text', 'Text')};
  turns.push(turn);
  proceed(turn);
}

// reserve is how many tokens an answer has at least.
const reserve = () => Math.min(Number($('tokens').value) || 1, Math.max(8, Math.floor(props.context / 4)));

// count asks how many tokens something has.
const count = async (body, signal) => (await call('tokenize', {model: chosen(), ...body}, signal)).json();
const chosen = () => $('name').value || undefined;

// fitting is the conversation without its first turns, as many as the context does not hold, with the tokens that are left.
async function fitting(signal) {
  const ask = (from) => [...system(), ...plain(turns.slice(from))];
  if (!props.context) return {messages: ask(0), left: Infinity};
  let from = forgotten, used;
  for (;; from += 2) {
    used = (await count({messages: ask(from)}, signal)).count;
    if (used + reserve() <= props.context || from >= turns.length - 1) break;
  }
  if (used >= props.context) throw new Error(`the message has ${used} tokens and the context ${props.context}: this was not answered`);
  if (from > forgotten) {
    forgotten = from;
    note(`The context of ${props.context} tokens is full: the first ${from} messages are not sent any more. New chat begins a new conversation.`);
  }
  return {messages: ask(from), left: props.context - used};
}

// sampling are the settings of a request.
function sampling(left) {
  const number = (id) => $(id).value === '' ? undefined : Number($(id).value);
  return {model: chosen(), stream: true, stream_options: {include_usage: true}, temperature: number('temperature'), top_p: number('top_p'), top_k: number('top_k') || undefined, min_p: number('min_p'),
    repetition_penalty: number('repetition_penalty'), seed: number('seed'), max_tokens: Math.max(1, Math.min(number('tokens') || 1, left))};
}

// answer has the model answer the conversation.
async function answer() {
  const turn = {role: 'assistant', content: '', element: add('assistant', 'Model')};
  await run(turn, async (signal) => {
    const {messages, left} = await fitting(signal);
    return ['v1/chat/completions', {...sampling(left), messages}, (c) => c.delta?.content ?? ''];
  });
  if (!turn.element.e.isConnected) return; // a new conversation has begun
  if (turn.content) {
    turns.push(turn);
    tools(turn);
    return;
  }
  turn.element.e.remove();
  const asked = turns[turns.length - 1];
  if (asked?.role === 'user') { // what was not answered is not part of the conversation
    turns.pop();
    if (!$('text').value) $('text').value = asked.content;
  }
}

// proceed has the model go on with a text, of whose beginning it sees as much as the context holds.
async function proceed(turn) {
  paint(turn);
  await run(turn, async (signal) => {
    let prompt = turn.content, left = Infinity;
    if (props.context && prompt) {
      const {tokens} = await count({prompt}, signal), room = Math.max(1, props.context - reserve());
      if (tokens.length > room) note(`The context of ${props.context} tokens is full: the model sees the last ${room} of ${tokens.length} tokens.`);
      prompt = tokens.length > room ? tokens.slice(-room) : prompt;
      left = props.context - Math.min(tokens.length, room);
    }
    return ['v1/completions', {...sampling(left), prompt}, (c) => c.text ?? ''];
  });
  tools(turn);
}

// run streams an answer into a turn. prepare gives the address, the request and how to read a choice.
async function run(turn, prepare) {
  control = new AbortController();
  busy(true);
  let painting = 0, first = 0, failed = false, usage, reason;
  const began = performance.now(), {body} = turn.element;
  const show = () => { painting = 0; const end = atEnd(); paint(turn); if (end) $('turns').scrollTop = $('turns').scrollHeight; };
  body.classList.add('waiting');
  $('turns').scrollTop = $('turns').scrollHeight;
  try {
    const [path, request, read] = await prepare(control.signal);
    for await (const x of events(await call(path, request, control.signal))) {
      if (x.error) throw new Error(x.error.message);
      usage = x.usage ?? usage;
      const c = x.choices?.[0];
      if (!c) continue;
      reason = c.finish_reason ?? reason;
      const piece = read(c);
      if (!piece) continue;
      first ||= performance.now();
      turn.content += piece;
      painting ||= requestAnimationFrame(show);
    }
  } catch (e) {
    failed = e.name !== 'AbortError';
    if (failed) fail(e);
  }
  if (painting) cancelAnimationFrame(painting);
  show();
  body.classList.remove('waiting');
  const seconds = (performance.now() - first) / 1000;
  turn.speed = usage && first ? `${usage.completion_tokens} tokens, ${short(Number((Math.max(0, usage.completion_tokens - 1) / Math.max(seconds, 1e-3)).toPrecision(3)))} tokens/s, first after ${((first - began) / 1000).toFixed(2)} s` : first ? 'stopped' : '';
  if (usage && reason === 'length') turn.speed += props.context && usage.total_tokens >= props.context ? `; cut: the context of ${props.context} tokens is full` : '; cut at the maximum of new tokens';
  control = null;
  busy(false);
  $('said').textContent = failed || !turn.content ? '' : reason ? 'The answer is complete.' : 'The answer is stopped.';
}

// events are the JSON of a stream's parts.
async function* events(reply) {
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = ''; ;) {
    const {value, done} = await reader.read();
    if (done) return;
    const list = (rest + value).split('\n\n');
    rest = list.pop();
    for (const e of list) if (e.startsWith('data: ') && e !== 'data: [DONE]') yield JSON.parse(e.slice(6));
  }
}

function fail(e) {
  if (e.status === 401) drawer(true, 'key');
  note(e instanceof TypeError ? 'No connection to the server.' : e.message, 'error');
}

const atEnd = () => $('turns').scrollHeight - $('turns').scrollTop - $('turns').clientHeight < 80;

function busy(on) {
  $('welcome').hidden = true;
  $('send').hidden = on;
  $('stop').hidden = !on;
  $('turns').setAttribute('aria-busy', on);
  $('said').textContent = on ? 'The model writes.' : '';
  if (!on) $('text').focus({preventScroll: true});
}

function fresh() {
  control?.abort();
  turns = [];
  forgotten = 0;
  $('turns').replaceChildren($('welcome'));
  $('said').textContent = '';
  welcome();
  $('text').focus();
}

function drawer(open, focus) {
  $('drawer').hidden = !open;
  $('open').setAttribute('aria-expanded', open);
  if (open) $(focus ?? 'way').focus(); else $('open').focus();
}

function grow() {
  $('text').style.height = 'auto';
  $('text').style.height = $('text').scrollHeight + 2 + 'px';
}

// The settings stay in this browser, but for the key.
function remember() {
  try {
    localStorage.setItem('monotron', JSON.stringify(Object.fromEntries(kept.map((id) => [id, $(id).value]))));
  } catch {
    // a browser that stores nothing
  }
}

function recall() {
  try {
    for (const [id, v] of Object.entries(JSON.parse(localStorage.getItem('monotron') ?? '{}'))) if (kept.includes(id)) $(id).value = v;
  } catch {
    // nothing is stored
  }
}

recall();
for (const id of kept) $(id).addEventListener('change', remember);
$('way').addEventListener('change', fresh);
$('system').addEventListener('change', () => { if (turns.length) note('The system text holds from the next message on.'); });
$('name').addEventListener('change', fresh);
$('defaults').addEventListener('click', () => { for (const id of kept) if (id !== 'way') $(id).value = preset[id]; remember(); });
$('key').addEventListener('change', meet);
$('new').addEventListener('click', fresh);
$('open').addEventListener('click', () => drawer($('drawer').hidden));
$('close').addEventListener('click', () => drawer(false));
$('drawer').addEventListener('keydown', (e) => { if (e.key === 'Escape') drawer(false); });
$('form').addEventListener('submit', (e) => {
  e.preventDefault();
  const text = $('text').value;
  if (control || !text.trim()) return;
  $('text').value = '';
  grow();
  ask(text);
});
$('text').addEventListener('input', grow);
$('text').addEventListener('keydown', (e) => { if (e.key === 'Enter' && !e.shiftKey && !e.isComposing) { e.preventDefault(); $('form').requestSubmit(); } });
$('stop').addEventListener('click', () => control?.abort());
addEventListener('keydown', (e) => { if (e.key === 'Escape' && control) control.abort(); });
meet();
